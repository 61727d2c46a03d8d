"""Small charts as SVG: shapes that stretch to their place, with labels as text beside them.

No style is inside, since the pages' policy allows none: classes say what a shape is.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from html import escape
from typing import Final, NamedTuple

Point = tuple[float, float | None]
"""A moment in Unix seconds and a value; None = not known, and the line has a gap."""
WIDE, HIGH = 1_000, 100
_DAY_S: Final = 86_400.0
_DOT: Final = 0.004
"""Width of a single value, as a part of the time that is shown."""
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


class Drawn(NamedTuple):
    """One row of values. kind: the class of its shape. filled: an area down to the axis."""

    name: str
    kind: str
    points: Sequence[Point]
    filled: bool = False


def over_time(
    title: str,
    begin: float,
    end: float,
    rows: Sequence[Drawn],
    *,
    shaded: tuple[str, Sequence[tuple[float, float]]] = ("", ()),
    marked: tuple[float, str] | None = None,
    say: Callable[[float], str] = "{:g}".format,
    tops: Sequence[float] = (),
) -> str:
    """A figure of values over time; empty where no value is known. shaded: a name, and spans.
    marked: a value with a line across, and its name. say: a value in words. tops: see ceiling.
    """
    known = [v for row in rows for _, v in row.points if v is not None]
    if not known:
        return ""
    top = ceiling(max([*known, marked[0] if marked else 0.0]), tops)

    def x(at: float) -> float:
        return min(max(0.0, WIDE * (at - begin) / (end - begin)), float(WIDE))

    shapes = "".join(
        f"<rect class=shade x={_round(x(a))} y=0 width={_round(x(b) - x(a))} height={HIGH} />"
        for a, b in shaded[1]
    )
    lines = [("grid", 0), ("grid", HIGH // 2), ("grid", HIGH)]
    shapes += "".join(f"<line class={k} x1=0 x2={WIDE} y1={y} y2={y} />" for k, y in lines)
    shapes += "".join(_row(row, x, top, (end - begin) * _DOT) for row in rows)
    keys = [(row.kind, row.name) for row in rows]
    if shaded[1]:
        keys.append(("shade", shaded[0]))
    if marked is not None:
        y = _round(HIGH * (1 - marked[0] / top))
        shapes += f"<line class=cap x1=0 x2={WIDE} y1={y} y2={y} />"
        keys.append(("cap", marked[1]))
    key = "".join(f"<span class=key><i class={k}></i>{escape(name)}</span>" for k, name in keys)
    ticks = "".join(f"<li>{escape(say(top * part))}" for part in (1.0, 0.5, 0.0))
    style = "%H:%M" if end - begin <= 2 * _DAY_S else "%d %b"
    moments = (datetime.fromtimestamp(begin + n * (end - begin) / 4).astimezone() for n in range(5))
    times = "".join(f"<li>{moment:{style}}" for moment in moments)
    label = f"{title}: {'; '.join(said for row in rows for said in _said(row, say))}"
    return (
        f"<figure class=chart><figcaption><b>{escape(title)}</b>{key}</figcaption>"
        f"<div class=plot><ol class=y aria-hidden=true>{ticks}</ol>"
        f'<svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio=none role=img '
        f'aria-label="{escape(label)}">{shapes}</svg>'
        f"<ol class=x aria-hidden=true>{times}</ol></div></figure>"
    )


def _row(row: Drawn, x: Callable[[float], float], top: float, dot_s: float) -> str:
    found = ""
    for run in _runs(row.points):
        if len(run) == 1:  # the first look of a new daemon is seen too
            run.insert(0, (run[0][0] - dot_s, run[0][1]))
        dots = [(x(at), HIGH * (1 - v / top)) for at, v in run]
        if row.filled:
            dots = [(dots[0][0], HIGH), *dots, (dots[-1][0], HIGH)]
        found += _line("polygon" if row.filled else "polyline", row.kind, dots)
    return found


def _said(row: Drawn, say: Callable[[float], str]) -> list[str]:
    """What is drawn of it, for who does not see it."""
    known = [v for _, v in row.points if v is not None]
    if not known:
        return []
    low, high = say(min(known)), say(max(known))
    return [f"{row.name} {say(known[-1])} at last, between {low} and {high}"]


def spark(values: Sequence[float | None], label: str) -> str:
    """A line without axes; empty for less than two values."""
    known = [v for v in values if v is not None]
    if len(known) < 2:  # noqa: PLR2004 - a line has two ends
        return ""
    wide, high = 120, 28
    top, step = max(*known, 1e-9), wide / (len(values) - 1)
    shapes = "".join(
        _line("polyline", "spark", [(x, high - 2 - (high - 4) * v / top) for x, v in run])
        for run in _runs((n * step, v) for n, v in enumerate(values))
    )
    return (
        f'<svg class=small viewBox="0 0 {wide} {high}" preserveAspectRatio=none role=img '
        f'aria-label="{escape(label)}">{shapes}</svg>'
    )


def ceiling(most: float, tops: Sequence[float] = ()) -> float:
    """The first of these at or above the largest value, else a round number."""
    most = max(most, 1e-9)
    size = 10.0 ** math.floor(math.log10(most))
    rounded = (step * size for step in _STEPS if step * size >= most * (1 - 1e-9))
    return next((top for top in (*tops, *rounded) if top >= most * (1 - 1e-9)), most)


def _line(shape: str, kind: str, dots: Iterable[tuple[float, float]]) -> str:
    points = " ".join(f"{_round(x)},{_round(y)}" for x, y in dots)
    return f'<{shape} class={kind} points="{points}" />'


def _runs(points: Iterable[Point]) -> list[list[tuple[float, float]]]:
    """Known values that follow each other."""
    found: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None:
            found.append([])
        else:
            found[-1].append((at, value))
    return [run for run in found if run]


def _round(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
