"""A plan as a Gantt chart: one SVG with a row for each GPU. Needs no other program."""

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from rltuned.text import span

_LEFT, _WIDE, _ROW, _FOOT = 120, 800, 16, 24
_PALE, _DARK = "#9ec5e8", "#d98a3d"
_TICKS: Final = 5
_STYLE: Final = "text{font:11px sans-serif;fill:CanvasText}rect{stroke:Canvas}"


class Bar(NamedTuple):
    """A job on a node, in seconds. marked: drawn in the second colour."""

    job: str
    node: str
    gpus: int
    start_s: float
    end_s: float
    marked: bool


def gantt(nodes: Sequence[tuple[str, int]], bars: Sequence[Bar]) -> str:
    """The chart. nodes: name and GPUs of each, in the order of the rows."""
    end_s = max((bar.end_s for bar in bars), default=0.0) or 1.0
    scale, base, height = _WIDE / end_s, dict[str, int](), 0
    parts: list[str] = []
    for name, gpus in nodes:
        base[name] = height
        parts.append(_text(4, height + _ROW - 4, name))
        height += _ROW * max(1, gpus)
        parts.append(
            f'<line x1="0" x2="{_LEFT + _WIDE}" y1="{height}" y2="{height}" stroke="#888"/>'
        )
    free_s = {name: [0.0] * max(1, gpus) for name, gpus in nodes}
    for bar in sorted(bars, key=lambda bar: bar.start_s):
        lanes = [i for i, at in enumerate(free_s[bar.node]) if at <= bar.start_s + 1e-6]
        x, colour = _LEFT + bar.start_s * scale, _DARK if bar.marked else _PALE
        wide = max(1.0, (bar.end_s - bar.start_s) * scale)
        about = escape(f"{bar.job}: {bar.gpus} GPUs, {span(bar.start_s)} to {span(bar.end_s)}")
        for lane in lanes[: max(1, bar.gpus)]:
            if bar.gpus:
                free_s[bar.node][lane] = bar.end_s
            y = base[bar.node] + _ROW * lane
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_ROW}" fill="{colour}">'
                f"<title>{about}</title></rect>"
            )
    for tick in range(_TICKS + 1):
        at_s = end_s * tick / _TICKS
        parts.append(_text(_LEFT + at_s * scale, height + _ROW, span(at_s)))
    size = f"0 0 {_LEFT + _WIDE + 60} {height + _FOOT}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}"><style>{_STYLE}</style>'
        + "".join(parts)
        + "</svg>\n"
    )


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.0f}" y="{y}">{escape(text)}</text>'
