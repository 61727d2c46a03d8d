"""The picture results.svg, and the tables of README, docs/results.md, delays.md.

Runs are those of delays, of the default order those of trust. The mean wait under it is compared
with FCFS, the rule and SAF without bounds on the same jobs: geometric mean of the ratios over the
copies of a cell, with Student's 95% interval. A test compares the pages with these tables.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from rltuned.core.order import DEFAULT
from rltuned.lab.compare import Change, geometric
from rltuned.settings import Settings
from scripts.studies import data_of
from scripts.studies.plays import COPIES, GROUNDS, SMALL, STRENGTHS
from scripts.studies.runner import Row, head, row_of

LOADS, DRAWN = (0.7, 0.9, 1.1), 0.9
RULE = (DEFAULT.own, DEFAULT.share, DEFAULT.max_delay_s / 86_400)
ORDERS = {
    "rule": ("delay", *RULE),
    "0.2.0": ("delay", 0.1, 0.0, 7.0),
    "fcfs": ("fcfs", 0.0, 0.0, 0.0),
    "SAF": ("saf", 0.0, 0.0, 0.0),
}
"""Policy, own, share, and max_delay in days: of the rule that the default corrects, of release
0.2.0, and two that are played without bounds."""
FRONT_SHARES, FRONT_COPIES = (0.0, 0.5, 0.75, 1.0, 2.0, 4.0), 2
FIGURES = ("wait_s", "wait_p99_s", "wait_max_s", "bsld")
"""Mean, 99% and longest wait, mean slowdown."""
NAMES = ("mean wait", "99%", "longest", "slowdown", "writes per job")
WIDTH, _ROW, _TOP, _BELOW = 860, 30, 62, 50
_LEFT, _PANEL, _GAP = 320, 240, 40
_AXES = {
    "mean wait": (0.1, 0.25, 0.5, 1.0, 2.0, 4.0),
    "longest wait": (0.5, 1.0, 2.0, 5.0, 10.0, 40.0),
}
"""Panels and their ticks, ratios to FCFS."""
_NOTES = (
    "left of 1 is better; both scales are logarithmic; bars: 95 % interval over four copies",
    "ThetaGPU, part 1, gains at loads 0.7 and 1.1; on the testbed, five nodes, FCFS is best here",
)
_TITLE = "Mean and longest wait under rltuned's order and under smallest area first, FCFS = 1"
STYLE = """\
text{font:13px system-ui,sans-serif;fill:#1f2328}.small{font-size:11px;fill:#59636e}
.grid{stroke:#d1d9e0}.zero{stroke:#59636e}.span{stroke:#0969da;stroke-width:3;opacity:.45}
.dot{fill:#0969da}.saf{fill:none;stroke:#bc4c00;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.small{fill:#9198a1}.grid{stroke:#3d444d}
.zero{stroke:#9198a1}.span{stroke:#4493f8}.dot{fill:#4493f8}.saf{stroke:#f0883e}}"""


@cache
def _rows(name: str = "delays") -> list[Row]:
    folder = Path(__file__).resolve().parents[2]
    return [json.loads(line) for line in (folder / data_of(name)).read_text().splitlines()]


def _of(policy: str, limits: str = "own", load: float | None = None, copies: int = 99) -> list[Row]:
    """The rows of one of ORDERS, of another policy with the bounds of the rule, or of the default
    order.
    """
    if policy == "default":
        trust = Settings().policy.trust
        return [r for r in _rows("trust") if (r["limits"], r["trust"]) == (limits, trust)]
    order = ORDERS.get(policy, (policy, *RULE))
    return [
        r for r in _rows()
        if (r["policy"], r["own"], r["share"], r["max_delay_d"]) == order
        and r["limits"] == limits and r["load"] == (load or r["load"]) and r["copy"] <= copies
    ]  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One trace at one load. hours: mean waits; longest: ratios to the longest wait under FCFS."""

    title: str
    load: float
    hours: dict[str, float]
    against: dict[str, Change]
    longest: dict[str, float]


@cache
def cells() -> list[Cell]:
    """Every trace and load that was played in all copies under the default and all of ORDERS."""
    found = []
    for ground, load in product(GROUNDS, LOADS):
        played = {
            name: sorted(
                (r for r in _of(name) if (r["ground"], r["load"]) == (ground, load)),
                key=lambda r: int(r["copy"]),
            )
            for name in ("default", "rule", "fcfs", "SAF")
        }
        if not all(len(rows) == COPIES for rows in played.values()):
            continue
        waits = {name: [r["wait_s"] for r in rows] for name, rows in played.items()}
        most = {n: float(np.mean([r["wait_max_s"] for r in rows])) for n, rows in played.items()}
        hours = {name: float(np.mean(one)) / 3600 for name, one in waits.items()}
        against = {n: geometric(waits["default"], waits[n]) for n in ("fcfs", "rule", "SAF")}
        longest = {name: one / most["fcfs"] for name, one in most.items()}
        found.append(Cell(GROUNDS[ground].title, load, hours, against, longest))
    return found


def _text(found: Change) -> str:
    """In percent."""
    change, low, high = (100 * part for part in found.known)
    return f"{change:+.0f} [{low:+.0f}, {high:+.0f}]"


def short_table() -> Iterator[str]:
    """For the README, at load DRAWN."""
    yield head("jobs and cluster", "mean wait, FCFS, h", "with rltuned, h", "change, %",
               "longest wait")  # fmt: skip
    for one in cells():
        if one.load == DRAWN:
            hours = (f"{one.hours[name]:.1f}" for name in ("fcfs", "default"))
            yield row_of([one.title, *hours, _text(one.against["fcfs"]), one.longest["default"]])


def table() -> Iterator[str]:
    """The first of docs/results.md."""
    against = ("against FCFS, %", "against the rule, %", "against SAF, %")
    yield head("jobs and cluster", "load", "FCFS, h", "default, h", "SAF, h", *against, "longest")
    for one in cells():
        hours = (f"{one.hours[name]:.1f}" for name in ("fcfs", "default", "SAF"))
        changes = (_text(one.against[name]) for name in ("fcfs", "rule", "SAF"))
        longest = f"{one.longest['default']:.2f} ({one.longest['SAF']:.2f})"
        yield row_of([one.title, f"{one.load}", *hours, *changes, longest])


def by_limits() -> Iterator[str]:
    """The rule, that of 0.2.0 and SAF with every kind of limits."""
    yield head("limits, load", "order", *NAMES)
    for limits, load in product(STRENGTHS, LOADS):
        for name in ("0.2.0", "rule", "SAF"):
            own = _of(name, limits, load)
            if len(own) == COPIES * len(GROUNDS):
                ratios = _against(own, _of("fcfs", limits, load))
                yield row_of([f"{limits}, {load}", name, *ratios, _writes(own)])


def frontier() -> Iterator[str]:
    """What own, share and max_delay do, one at a time, at load DRAWN."""
    yield head("own", "share", "max_delay, d", *NAMES)
    base = _of("fcfs", "own", DRAWN, FRONT_COPIES)
    front: dict[tuple[float, ...], list[Row]] = defaultdict(list)
    for r in _rows():
        asked = r["policy"], r["limits"], r["load"]
        if asked == ("delay", "own", DRAWN) and r["copy"] <= FRONT_COPIES:
            front[r["own"], r["share"], r["max_delay_d"]].append(r)
    for order, own in sorted(front.items()):
        bold = "**" if order == RULE else ""
        numbers = (f"{bold}{x:g}{bold}" for x in order)
        yield row_of([*numbers, *_against(own, base), _writes(own)])


def hostile() -> Iterator[str]:
    """Orders that ask for parts of the bounds, over all clusters, in brackets the worst of them."""
    yield head("order", *NAMES[:-1])
    base = _of("fcfs", "own", DRAWN)
    words = {"rule": "the default",
             "clairvoyant": "the default with true run times, which no site knows"}  # fmt: skip
    for name in ("rule", "random", "longest", "largest", "largest-area", "clairvoyant"):
        own = _of(name, "own", DRAWN)
        each = zip(*(_against(own, base, (ground,)) for ground in GROUNDS), strict=True)
        pairs = zip(_against(own, base, tuple(GROUNDS)), map(max, each), strict=True)
        cells = (f"{middle:.2f} ({worst:.2f})" for middle, worst in pairs)
        yield row_of([words.get(name, name), *cells])


def _writes(own: Sequence[Row]) -> float:
    return float(np.mean([r["writes_per_job"] for r in own if r["ground"] != SMALL]))


def _against(
    own: Sequence[Row], base: Sequence[Row], grounds: Sequence[str] = tuple(set(GROUNDS) - {SMALL})
) -> list[float]:
    """By FIGURES, geometric means over the traces of own / base, means over copies."""
    found = []
    for name in FIGURES:
        logs = []
        for ground in grounds:
            top, bottom = (
                np.mean([r[name] for r in rows if r["ground"] == ground]) for rows in (own, base)
            )
            logs.append(math.log(top / bottom))
        found.append(math.exp(float(np.mean(logs))))
    return found


def print_tables() -> None:
    """All of them."""
    for part in (short_table, table, by_limits, frontier, hostile):
        print(*part(), "", sep="\n")


def results() -> str:
    """docs/img/results.svg: mean and longest wait of the default order and SAF against FCFS."""
    drawn = [cell for cell in cells() if cell.load == DRAWN]
    height = _TOP + _ROW * len(drawn) + _BELOW
    parts = [
        f'<text x="10" y="20" font-weight="600">Waits at load {DRAWN}, FCFS = 1</text>',
        '<text class="small" x="10" y="42">hours: mean wait under FCFS → rltuned</text>',
        f'<circle class="dot" cx="{_LEFT + 4}" cy="16" r="4.5"/>',
        f'<text x="{_LEFT + 14}" y="20">rltuned</text>',
        f'<circle class="saf" cx="{_LEFT + 84}" cy="16" r="4.5"/>',
        f'<text x="{_LEFT + 94}" y="20">SAF (smallest area first), no bounds</text>',
    ]
    for number, name in enumerate(_AXES):
        left = _LEFT + number * (_PANEL + _GAP)
        parts += _axis(left, name, height)
        for row, one in enumerate(drawn):
            parts += _marks(left, _TOP + row * _ROW + 18, one, name)
    for row, one in enumerate(drawn):
        y = _TOP + row * _ROW + 22
        waits = f"{one.hours['fcfs']:.1f} → {one.hours['default']:.1f} h"
        parts.append(f'<text x="10" y="{y}">{one.title}</text>')
        parts.append(f'<text text-anchor="end" x="{_LEFT - 16}" y="{y}">{waits}</text>')
    for line, note in enumerate(_NOTES):
        y = height - 8 - 16 * (len(_NOTES) - 1 - line)
        parts.append(f'<text class="small" x="10" y="{y}">{note}</text>')
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    first = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f'<title id="title">{_TITLE}</title>',
        f"<style>{STYLE}</style>",
    )
    return "\n".join([*first, *parts, "</svg>"]) + "\n"


def _x(left: float, ratio: float, name: str) -> float:
    low, high = _AXES[name][0], _AXES[name][-1]
    return left + math.log(ratio / low) / math.log(high / low) * _PANEL


def _axis(left: float, name: str, height: int) -> Iterator[str]:
    yield f'<text x="{left}" y="42" font-weight="600">{name}</text>'
    for ratio in _AXES[name]:
        x = _x(left, ratio, name)
        kind = "zero" if ratio == 1 else "grid"
        yield f'<line class="{kind}" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{height - _BELOW}"/>'
        yield f'<text class="small" text-anchor="middle" x="{x:.1f}" y="57">{ratio:g}</text>'


def _marks(left: float, y: float, one: Cell, name: str) -> Iterator[str]:
    own, saf = one.longest["default"], one.longest["SAF"]
    if name == "mean wait":
        change, *ends = one.against["fcfs"].known
        own, saf = 1 + change, one.hours["SAF"] / one.hours["fcfs"]
        low, high = (_x(left, 1 + share, name) for share in ends)
        yield f'<line class="span" x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}"/>'
    for kind, ratio in (("saf", saf), ("dot", own)):
        yield f'<circle class="{kind}" cx="{_x(left, ratio, name):.1f}" cy="{y}" r="4.5"/>'
