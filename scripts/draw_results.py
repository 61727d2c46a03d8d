"""docs/img/results.svg: waits of `rltune` against FCFS and SAF, from the tables of docs/results.md.

The picture is made of the page's own rows, so that it cannot say anything else: `make docs`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
ROWS = (
    ("Philly, held out, load 0.7", "Philly, weak", "0.7"),
    ("Philly, held out, load 0.9", "Philly, weak", "0.9"),
    ("Philly, held out, load 1.1", "Philly, weak", "1.1"),
    ("Helios-like, never seen, 0.9", "Helios, weak", "0.9"),
    ("PAI-like, never seen, 0.9", "PAI, weak", "0.9"),
    ("Testbed, never seen, 0.9", "testbed, weak", "0.9"),
)
"""Label, and place and load of the row; of rows that are alike the first counts."""
_CELL = re.compile(r"([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]")
_WIDTH, _ROW, _TOP = 760, 30, 62
_LEFT, _PANEL, _GAP = 210, 240, 40
_LOW, _HIGH = -70.0, 20.0
_TITLE = "Mean wait under rltune against first come, first served and smallest area first"
_STYLE = """\
text{font:13px system-ui,sans-serif;fill:#1f2328}.small{font-size:11px;fill:#59636e}
.grid{stroke:#d1d9e0}.zero{stroke:#59636e}.span{stroke:#0969da;stroke-width:3;opacity:.45}
.dot{fill:#0969da}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.small{fill:#9198a1}.grid{stroke:#3d444d}
.zero{stroke:#9198a1}.span{stroke:#4493f8}.dot{fill:#4493f8}}"""


@dataclass(frozen=True)
class Change:
    """Change of a mean in percent and its 95 % interval over windows."""

    mean: float
    low: float
    high: float


def change_of(cell: str) -> Change:
    """The figures at the beginning of a cell.

    Raises:
        ValueError: it does not begin with any.
    """
    match = _CELL.match(cell)
    if match is None:
        raise ValueError(f"no change in {cell!r}")
    return Change(*(float(text) for text in match.groups()))


def table_row(place: str, load: str, model: str = "rltune") -> list[str]:
    """The cells of a row of the page.

    Raises:
        ValueError: the page has no such row.
    """
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[:3] == [place, load, model]:
            return cells
    raise ValueError(f"{PAGE.name} has no row of {model} for {place} at load {load}")


def results() -> str:
    """The picture."""
    height = _TOP + _ROW * len(ROWS) + 34
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f'<title id="title">{_TITLE}</title>',
        f"<style>{_STYLE}</style>",
        '<text x="10" y="20" font-weight="600">Mean wait under model:rltune, change in %</text>',
    ]
    for number, rival in enumerate(("against FCFS", "against SAF")):
        left = _LEFT + number * (_PANEL + _GAP)
        parts += _axis(left, rival, height)
        for row, (_, place, load) in enumerate(ROWS):
            cell = change_of(table_row(place, load)[3 + number])
            parts += _mark(left, _TOP + row * _ROW + 18, cell)
    for row, (label, _, _) in enumerate(ROWS):
        parts.append(f'<text x="10" y="{_TOP + row * _ROW + 22}">{label}</text>')
    note = "left of 0 is better; bars: 95 % interval over windows (Philly: five windows only)"
    parts.append(f'<text class="small" x="10" y="{height - 8}">{note}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(left: float, percent: float) -> float:
    return left + (percent - _LOW) / (_HIGH - _LOW) * _PANEL


def _axis(left: float, rival: str, height: int) -> Iterator[str]:
    yield f'<text x="{left}" y="42" font-weight="600">{rival}</text>'
    for percent in range(-60, 21, 20):
        x = _x(left, percent)
        kind = "zero" if percent == 0 else "grid"
        yield f'<line class="{kind}" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{height - 34}"/>'
        sign = f"{percent:+d}".replace("-", "\u2212") if percent else "0"
        yield f'<text class="small" text-anchor="middle" x="{x:.1f}" y="57">{sign}</text>'


def _mark(left: float, y: float, change: Change) -> Iterator[str]:
    low, high = _x(left, max(change.low, _LOW)), _x(left, min(change.high, _HIGH))
    yield f'<line class="span" x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}"/>'
    yield f'<circle class="dot" cx="{_x(left, change.mean):.1f}" cy="{y}" r="4.5"/>'
