"""docs/img/tune-promises.svg: what nights of `rltuned tune` promised, and what came of it.

From docs/data/tune-blind.jsonl, the nights that promoted; `make docs` writes it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.tools.draw_results import picture

DATA = Path(__file__).resolve().parents[2] / "docs" / "data" / "tune-blind.jsonl"
_LEFT, _PANEL, _TOP, _ROW = 120, 600, 66, 46
_LOW, _HIGH, _TICKS = -0.5, 0.3, (-0.4, -0.2, 0.0, 0.2)
_TITLE = "Mean wait promised by the test period, and mean wait of the fortnight that followed"


def promises() -> str:
    """One row per world: the test period's interval above, the later fortnight's below."""
    nights = [json.loads(line) for line in DATA.read_text().splitlines()]
    kept = [night for night in nights if night["promoted"]]
    height = _TOP + _ROW * len(kept) + 30
    parts = [
        '<text x="10" y="20" font-weight="600">Change of the mean wait, 95 % intervals</text>',
        '<circle class="dot" cx="332" cy="16" r="4.5"/><text x="342" y="20">promised</text>',
        '<circle class="saf" cx="432" cy="16" r="4.5"/><text x="442" y="20">came true</text>',
    ]
    for tick in _TICKS:
        x, kind = _x(tick), "grid" if tick else "zero"
        parts.append(f'<line class="{kind}" x1="{x}" y1="52" x2="{x}" y2="{height - 30}"/>')
        parts.append(f'<text class="small" text-anchor="middle" x="{x}" y="46">{tick:+.0%}</text>')
    for row, night in enumerate(kept):
        y = _TOP + row * _ROW
        parts.append(f'<text x="10" y="{y + 16}">world {night["seed"]}</text>')
        parts += _mark(night["promised"], y + 4, "span", "dot")
        parts += _mark(night["later"], y + 20, "later", "saf")
    others = {night["seed"] for night in nights} - {night["seed"] for night in kept}
    left = " and ".join(map(str, sorted(others)))
    note = f"worlds {left}: no order passed, so Slurm's own stayed; left of 0 is better"
    parts.append(f'<text class="small" x="10" y="{height - 8}">{note}</text>')
    return picture(height, _TITLE, parts, ".later{stroke:#bc4c00;stroke-width:3;opacity:.45}")


def _x(change: float) -> float:
    return round(_LEFT + (change - _LOW) / (_HIGH - _LOW) * _PANEL, 1)


def _mark(found: dict[str, Any], y: int, bar: str, dot: str) -> Iterator[str]:
    low, high = (_x(end) for end in found["interval"])
    yield f'<line class="{bar}" x1="{low}" y1="{y}" x2="{high}" y2="{y}"/>'
    yield f'<circle class="{dot}" cx="{_x(found["wait"])}" cy="{y}" r="4.5"/>'
