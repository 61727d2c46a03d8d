"""Small charts as SVG: shapes that stretch to their place, with labels as text beside them.

No style is inside, since the pages' policy allows none: classes say what a shape is.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Final

Point = tuple[float, float | None]
"""A moment in Unix seconds and a value; None = not known, and the line has a gap."""
WIDE, HIGH = 1_000, 100
_SPARK: Final = (120, 28)
_ROW: Final = 26
"""Height of a line of a list of moves, in pixels, as in status.css."""
_DAY_S: Final = 86_400.0
_DOT: Final = 0.004
"""Width of a single value, as a part of the time that is shown."""
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One row of values. kind: the class of its shape. filled: an area down to the axis."""

    name: str
    kind: str
    points: Sequence[Point]
    filled: bool = False


@dataclass(frozen=True, slots=True)
class TimeChart:
    """Values over time. shaded: spans of time. marked: a value with a line across, and its name.
    say: a value in words.
    """

    title: str
    begin: float
    end: float
    rows: Sequence[Drawn]
    shaded: Sequence[tuple[float, float]] = ()
    shade_name: str = ""
    marked: tuple[float, str] | None = None
    say: Callable[[float], str] = "{:g}".format
    tops: Sequence[float] = ()
    """Where the axis may end; beyond the last, and without any, at a round number."""

    def drawn(self) -> str:
        """A figure; empty where no value is known."""
        known = [v for row in self.rows for _, v in row.points if v is not None]
        if not known:
            return ""
        top = ceiling(max([*known, self.marked[0] if self.marked else 0.0]), self.tops)
        shapes = "".join(self._shade(*span) for span in self.shaded)
        shapes += "".join(
            f"<line class=grid x1=0 x2={WIDE} y1={y} y2={y} />" for y in (0, HIGH // 2, HIGH)
        )
        shapes += "".join(self._shape(row, top) for row in self.rows)
        if self.marked is not None:
            y = _round(HIGH * (1 - self.marked[0] / top))
            shapes += f"<line class=cap x1=0 x2={WIDE} y1={y} y2={y} />"
        ticks = "".join(f"<li>{escape(self.say(top * part))}" for part in (1.0, 0.5, 0.0))
        times = "".join(f"<li>{escape(text)}" for text in self._times())
        return (
            f"<figure class=chart><figcaption><b>{escape(self.title)}</b>{self._key()}</figcaption>"
            f"<div class=plot><ol class=y aria-hidden=true>{ticks}</ol>"
            f'<svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio=none role=img '
            f'aria-label="{escape(self._label())}">{shapes}</svg>'
            f"<ol class=x aria-hidden=true>{times}</ol></div></figure>"
        )

    def _key(self) -> str:
        keys = [(row.kind, row.name) for row in self.rows]
        keys += [("shade", self.shade_name)] if self.shaded else []
        keys += [("cap", self.marked[1])] if self.marked else []
        return "".join(f'<span class=key><i class={kind}></i>{escape(name)}</span>'
                       for kind, name in keys)  # fmt: skip

    def _label(self) -> str:
        last = []
        for row in self.rows:
            known = [v for _, v in row.points if v is not None]
            if known:
                low, high = self.say(min(known)), self.say(max(known))
                last.append(f"{row.name} {self.say(known[-1])} at last, between {low} and {high}")
        return f"{self.title}: {'; '.join(last)}"

    def _x(self, at: float) -> float:
        return WIDE * (at - self.begin) / (self.end - self.begin)

    def _shade(self, begin: float, end: float) -> str:
        left = max(0.0, self._x(begin))
        wide = min(float(WIDE), self._x(end)) - left
        return f"<rect class=shade x={_round(left)} y=0 width={_round(wide)} height={HIGH} />"

    def _shape(self, row: Drawn, top: float) -> str:
        found = ""
        for run in _runs(row.points):
            if len(run) == 1:  # the first look of a new daemon is seen too
                run.insert(0, (run[0][0] - (self.end - self.begin) * _DOT, run[0][1]))
            dots = [f"{_round(self._x(at))},{_round(HIGH * (1 - v / top))}" for at, v in run]
            if row.filled:
                first, last = _round(self._x(run[0][0])), _round(self._x(run[-1][0]))
                dots = [f"{first},{HIGH}", *dots, f"{last},{HIGH}"]
            shape = "polygon" if row.filled else "polyline"
            found += f'<{shape} class={row.kind} points="{" ".join(dots)}" />'
        return found

    def _times(self) -> list[str]:
        step = (self.end - self.begin) / 4
        style = "%H:%M" if self.end - self.begin <= 2 * _DAY_S else "%d %b"
        ticks = [self.begin + n * step for n in range(5)]
        return [f"{datetime.fromtimestamp(at).astimezone():{style}}" for at in ticks]


def spark(values: Sequence[float | None], label: str) -> str:
    """A line without axes; empty for less than two values."""
    known = [v for v in values if v is not None]
    if len(known) < 2:  # noqa: PLR2004 - a line has two ends
        return ""
    wide, high = _SPARK
    top, step = max(*known, 1e-9), wide / (len(values) - 1)
    shapes = ""
    for run in _runs([(n * step, v) for n, v in enumerate(values)]):
        dots = " ".join(f"{_round(x)},{_round(high - 2 - (high - 4) * v / top)}" for x, v in run)
        shapes += f'<polyline class=spark points="{dots}" />'
    return (
        f'<svg class=small viewBox="0 0 {wide} {high}" preserveAspectRatio=none role=img '
        f'aria-label="{escape(label)}">{shapes}</svg>'
    )


def slopes(moves: Sequence[tuple[int, int, str]]) -> str:
    """Lines from the rows of one list to those of another; moves: row there, row here, from 0, and
    the class of the line.
    """
    high = _ROW * len(moves)
    lines = "".join(
        f"<line class={kind} x1=0 x2=100 "
        f"y1={_ROW * there + _ROW // 2} y2={_ROW * here + _ROW // 2} />"
        for there, here, kind in moves
    )
    return (
        f'<svg class=slopes viewBox="0 0 100 {high}" height={high} preserveAspectRatio=none '
        f"aria-hidden=true>{lines}</svg>"
    )


def bar(parts: Iterable[tuple[str, float]], whole: float) -> str:
    """Amounts side by side, by class; whole: what fills it."""
    left, shapes = 0.0, ""
    for kind, amount in parts:
        wide = 100 * amount / whole if whole else 0.0
        shapes += f"<rect class={kind} x={_round(left)} width={_round(wide)} height=10 />"
        left += wide
    return (
        f'<svg class=bar viewBox="0 0 100 10" preserveAspectRatio=none aria-hidden=true>{shapes}'
        "</svg>"
    )


def ceiling(most: float, tops: Sequence[float] = ()) -> float:
    """The first of these at or above the largest value, else a round number."""
    found = next((top for top in tops if top >= most), None)
    if found is not None:
        return found
    most = max(most, 1e-9)
    size = 10.0 ** math.floor(math.log10(most))
    return next(step * size for step in _STEPS if step * size >= most * (1 - 1e-9))


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
