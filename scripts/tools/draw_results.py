"""docs/img/results.svg and the tables of README and docs/results.md.

Runs are those of docs/data/delays.jsonl, of the default order those of docs/data/trust.jsonl.

The mean wait under the default order, compared with first come, first served, with the rule that it
corrects and with SAF without bounds, on the same jobs: geometric mean of the ratios over the
copies of a cell, with Student's 95% interval over the copies. `make docs` writes the picture; a
test compares the tables of the pages with `table()`.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rltuned.core.order import DEFAULT
from rltuned.lab.compare import Change, geometric
from rltuned.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DATA, OF_DEFAULT = (ROOT / "docs" / "data" / f"{name}.jsonl" for name in ("delays", "trust"))
GROUNDS = {
    "philly-nov-1": "Philly, November, part 1",
    "philly-nov-2": "Philly, November, part 2",
    "helios-venus": "Helios Venus",
    "thetagpu-1": "ThetaGPU, part 1",
    "thetagpu-2": "ThetaGPU, part 2",
    "testbed": "Testbed, 13 GPUs",
}
LOADS = (0.7, 0.9, 1.1)
DRAWN = 0.9
ORDERS = {
    "rule": ("delay", DEFAULT.own, DEFAULT.share, DEFAULT.max_delay_s / 86_400),
    "length": ("delay", 0.1, 0.0, 7.0),
    "fcfs": ("fcfs", 0.0, 0.0, 0.0),
    "saf": ("saf", 0.0, 0.0, 0.0),
}
"""Policy, own, share, and max_delay in days: of the rule that the default corrects, of release
0.2.0, and two that are played without bounds."""
COPIES, FRONT_COPIES = 4, 2
SMALL = "testbed"
"""The trace where first come, first served is best; geometric means leave it out."""
WIDTH, _ROW, _TOP = 860, 30, 62
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
_BELOW = 50
"""Room for them."""
_TITLE = "Mean and longest wait under rltuned's order and under smallest area first, FCFS = 1"
STYLE = """\
text{font:13px system-ui,sans-serif;fill:#1f2328}.small{font-size:11px;fill:#59636e}
.grid{stroke:#d1d9e0}.zero{stroke:#59636e}.span{stroke:#0969da;stroke-width:3;opacity:.45}
.dot{fill:#0969da}.saf{fill:none;stroke:#bc4c00;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.small{fill:#9198a1}.grid{stroke:#3d444d}
.zero{stroke:#9198a1}.span{stroke:#4493f8}.dot{fill:#4493f8}.saf{stroke:#f0883e}}"""


@dataclass(frozen=True)
class Cell:
    """One trace at one load. longest: ratio to the longest wait under FCFS."""

    ground: str
    load: float
    fcfs_h: float
    default_h: float
    saf_h: float
    against_fcfs: Change
    against_rule: Change
    against_saf: Change
    longest: float
    saf_longest: float


def cells() -> list[Cell]:
    """Every trace and load that was played in all copies under the default and all of ORDERS."""
    found, orders = [], {name: _of(_rows(), order, "own") for name, order in ORDERS.items()}
    trust = Settings().policy.trust
    orders["default"] = [
        r for r in _rows(OF_DEFAULT) if (r["limits"], r["trust"]) == ("own", trust)
    ]
    for ground in GROUNDS:
        for load in LOADS:
            by_policy = {
                policy: sorted(
                    (r for r in rows if (r["ground"], r["load"]) == (ground, load)),
                    key=lambda r: r["copy"],
                )
                for policy, rows in orders.items()
            }
            if all(len(played) == COPIES for played in by_policy.values()):
                found.append(_cell(ground, load, by_policy))
    return found


def _cell(ground: str, load: float, played: dict[str, list[dict[str, Any]]]) -> Cell:
    waits = {policy: [r["wait_s"] for r in rows] for policy, rows in played.items()}
    longest = {p: float(np.mean([r["wait_max_s"] for r in rows])) for p, rows in played.items()}
    hours = {policy: float(np.mean(found)) / 3600 for policy, found in waits.items()}
    return Cell(
        ground, load, hours["fcfs"], hours["default"], hours["saf"],
        geometric(waits["default"], waits["fcfs"]), geometric(waits["default"], waits["rule"]),
        geometric(waits["default"], waits["saf"]),
        longest["default"] / longest["fcfs"], longest["saf"] / longest["fcfs"],
    )  # fmt: skip


def _text(found: Change) -> str:
    """In percent."""
    change, low, high = (100 * part for part in found.known)
    return f"{change:+.0f} [{low:+.0f}, {high:+.0f}]"


def short_table() -> Iterator[str]:
    """Lines of a Markdown table for the README, at load DRAWN."""
    yield "| jobs and cluster | mean wait, FCFS, h | with rltuned, h | change, % | longest wait |"
    yield f"|{'---|' * 5}"
    for one in cells():
        if one.load == DRAWN:
            yield (
                f"| {GROUNDS[one.ground]} | {one.fcfs_h:.1f} | {one.default_h:.1f} "
                f"| {_text(one.against_fcfs)} | {one.longest:.2f} |"
            )


def table() -> Iterator[str]:
    """Lines of a Markdown table."""
    waits = "FCFS, h | default, h | SAF, h"
    changes = "against FCFS, % | against the rule, % | against SAF, %"
    yield f"| jobs and cluster | load | {waits} | {changes} | longest |"
    yield f"|{'---|' * 9}"
    for one in cells():
        waits = " | ".join(f"{x:.1f}" for x in (one.fcfs_h, one.default_h, one.saf_h))
        yield (
            f"| {GROUNDS[one.ground]} | {one.load} | {waits} | {_text(one.against_fcfs)} "
            f"| {_text(one.against_rule)} | {_text(one.against_saf)} "
            f"| {one.longest:.2f} ({one.saf_longest:.2f}) |"
        )


FIGURES = ("wait_s", "wait_p99_s", "wait_max_s", "bsld")
"""Mean, 99% and longest wait, mean slowdown."""


def frontier() -> Iterator[str]:
    """What own, share and max_delay do, one at a time, at load DRAWN: lines of a Markdown table."""
    rows = [
        r for r in _rows()
        if (r["policy"], r["load"], r["limits"], r["fair_d"]) == ("delay", DRAWN, "own", 0)
        and r["copy"] <= FRONT_COPIES
    ]  # fmt: skip
    yield "| own | share | max_delay, d | mean wait | 99% | longest | slowdown | writes per job |"
    yield f"|{'---|' * 8}"
    for order in sorted({(r["own"], r["share"], r["max_delay_d"]) for r in rows}):
        own = [r for r in rows if (r["own"], r["share"], r["max_delay_d"]) == order]
        fcfs = [r for r in _of(_rows(), ORDERS["fcfs"], "own") if r["copy"] <= FRONT_COPIES]
        bold = "**" if order == ORDERS["rule"][1:] else ""
        numbers = " | ".join(f"{bold}{x:g}{bold}" for x in order)
        writes = np.mean([r["writes_per_job"] for r in own if r["ground"] != SMALL])
        cells = " | ".join(f"{x:.2f}" for x in _against(own, fcfs))
        yield f"| {numbers} | {cells} | {writes:.2f} |"


def by_limits() -> Iterator[str]:
    """The rule and that of 0.2.0 with every kind of limits: lines of a Markdown table."""
    yield "| limits, load | order | mean wait | 99% | longest | slowdown | writes per job |"
    yield f"|{'---|' * 7}"
    for limits in ("own", "weak", "none"):
        for load in LOADS:
            fcfs = [r for r in _of(_rows(), ORDERS["fcfs"], limits) if r["load"] == load]
            for name, label in (("length", "0.2.0"), ("rule", "rule"), ("saf", "SAF")):
                own = [r for r in _of(_rows(), ORDERS[name], limits) if r["load"] == load]
                if len(own) < COPIES * len(GROUNDS):
                    continue
                cells = " | ".join(f"{x:.2f}" for x in _against(own, fcfs))
                writes = np.mean([r["writes_per_job"] for r in own if r["ground"] != SMALL])
                yield f"| {limits}, {load} | {label} | {cells} | {writes:.2f} |"


def _rows(data: Path = DATA) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.read_text().splitlines()]


def _of(
    rows: Sequence[dict[str, Any]], order: tuple[str, float, float, float], limits: str
) -> list[dict[str, Any]]:
    return [
        r for r in rows
        if (r["policy"], r["own"], r["share"], r["max_delay_d"]) == order
        and (r["limits"], r["fair_d"]) == (limits, 0)
    ]  # fmt: skip


def _against(own: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> list[float]:
    """By FIGURES, geometric means over the traces but SMALL of own / base, means over copies."""
    found = []
    for name in FIGURES:
        logs = []
        for ground in set(GROUNDS) - {SMALL}:
            both = [
                np.mean([r[name] for r in rows if r["ground"] == ground]) for rows in (own, base)
            ]
            logs.append(math.log(both[0] / both[1]))
        found.append(math.exp(float(np.mean(logs))))
    return found


def results() -> str:
    """The picture: mean and longest wait of the default order and SAF as multiples of FCFS's."""
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
        y, waits = _TOP + row * _ROW + 22, f"{one.fcfs_h:.1f} → {one.default_h:.1f} h"
        parts.append(f'<text x="10" y="{y}">{GROUNDS[one.ground]}</text>')
        parts.append(f'<text text-anchor="end" x="{_LEFT - 16}" y="{y}">{waits}</text>')
    for line, note in enumerate(_NOTES):
        y = height - 8 - 16 * (len(_NOTES) - 1 - line)
        parts.append(f'<text class="small" x="10" y="{y}">{note}</text>')
    return picture(height, _TITLE, parts)


def picture(height: int, title: str, parts: Sequence[str], style: str = "") -> str:
    """An SVG of WIDTH with its title and STYLE, and more style."""
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f'<title id="title">{title}</title>',
        f"<style>{STYLE}{style}</style>",
    )
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


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
    own, saf = one.longest, one.saf_longest
    if name == "mean wait":
        change, *ends = one.against_fcfs.known
        own, saf = 1 + change, one.saf_h / one.fcfs_h
        low, high = (_x(left, 1 + share, name) for share in ends)
        yield f'<line class="span" x1="{low:.1f}" y1="{y}" x2="{high:.1f}" y2="{y}"/>'
    for kind, ratio in (("saf", saf), ("dot", own)):
        yield f'<circle class="{kind}" cx="{_x(left, ratio, name):.1f}" cy="{y}" r="4.5"/>'
