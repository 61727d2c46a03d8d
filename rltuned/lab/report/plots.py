"""Plots of the reports as inline SVG whose colours are those of the page, so that it can turn dark.

Every function takes plain values and returns markup; waits and differences are seconds.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from rltuned.lab.compare import SHARES, Change, FloatArray

INK, MUTED, GRID = "#010101", "#020202", "#030303"
"""Stand-ins, replaced by variables of the style sheet."""
SERIES: Final = ("#050500", "#050501")
VARIABLES: Final = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    **{colour: f"--c{i}" for i, colour in enumerate(SERIES)},
}
LOOK: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 8,
}
SHORT: Final = EngFormatter(sep="")
WIDE: Final = 10.5
ROW_INCHES: Final = 0.27
BAND: Final = 0.12
FULL: Final = 5.0
"""Changes beyond +500% are drawn at the edge."""
HOUR_S, DAY_S = 3_600.0, 86_400.0


def svg(salt: str, height: float, draw: Callable[[Figure], None]) -> Markup:
    """What `draw` puts on a wide figure of so many inches; same figure and salt, same text."""
    buffer = io.StringIO()
    with mpl.rc_context({**LOOK, "svg.hashsalt": salt}):
        figure = Figure(figsize=(WIDE, height), layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for stand_in, variable in VARIABLES.items():
        text = text.replace(stand_in, f"var({variable})")
    # several pictures stand on one page, and no part of one refers to a group by its name
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    # text is real text, in the page's own typeface
    text = re.sub(r"font: ([^;']*?)px [^;\"]*", r"font-size: \1px", text)
    return Markup(text)  # noqa: S704 - matplotlib's SVG


def calibration(
    days: Sequence[tuple[float, float, float, int]], split_s: float, waits: Sequence[FloatArray]
) -> Markup:
    """Left: mean wait over the record, real and simulated. Right: the waits of all jobs. days:
    (begin, real mean, simulated mean, jobs). split_s: when rltuned is switched on.
    """
    kinds = (("real", SERIES[0], "-", "o"), ("simulated, same weights", SERIES[1], "--", "s"))

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
        for i, (name, colour, line, mark) in enumerate(kinds):
            at = [d[0] / DAY_S for d in days]
            means = [d[1 + i] / HOUR_S for d in days]
            left.plot(at, means, line, marker=mark, ms=3, color=colour, label=name)
            quantiles = np.quantile(waits[i], SHARES)
            right.plot(quantiles, SHARES, line, color=colour, label=name, linewidth=1.4)
        left.axvline(split_s / DAY_S, color=MUTED, linewidth=0.9)
        across = left.get_xaxis_transform()
        left.text(split_s / DAY_S, 0.97, " judged from here on", transform=across, va="top",
                  fontsize=8)  # fmt: skip
        left.set(xlabel="days since the record began", ylabel="mean wait, h")
        left.set_ylim(bottom=0)
        right.set(xlabel="wait of a job, s", ylabel="share of the jobs")
        # linear up to 10 s, logarithmic from there
        right.set_xscale("symlog", linthresh=10)
        right.set_xlim(left=0)
        right.xaxis.set_major_formatter(SHORT)
        for axis in (left, right):
            axis.grid()
            axis.legend()

    return svg("calibration", 3.2, draw)


def forests(salt: str, panels: Sequence[tuple[str, Mapping[str, Change]]]) -> Markup:
    """Changes with intervals: a panel per title, a row per name; the names are shared."""

    def draw(figure: Figure) -> None:
        axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
        for axis, (title, changes) in zip(axes, panels, strict=True):
            _forest(axis, changes)
            axis.set_title(title, fontsize=9)

    return svg(salt, 1.0 + ROW_INCHES * max(len(changes) for _, changes in panels), draw)


def _forest(axis: Axes, changes: Mapping[str, Change]) -> None:
    axis.axvline(0.0, color=MUTED, linewidth=0.9)
    for row, found in enumerate(changes.values()):
        if found.change is None:
            axis.annotate("no job waits", (0.0, row), fontsize=7, color=MUTED, va="center")
            continue
        if found.low is not None and found.high is not None:
            ends = [min(found.low, FULL), min(found.high, FULL)]
            axis.plot(ends, [row, row], color=SERIES[0], linewidth=1.6)
        axis.plot([min(found.change, FULL)], [row], "o", ms=4.5, color=SERIES[0])
    axis.set_yticks(range(len(changes)), list(changes))
    axis.set_ylim(len(changes) - 0.4, -0.6)
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, -BAND), max(high, BAND))
    axis.xaxis.set_major_formatter(lambda v, _at: f"{v:+.0%}")
    axis.locator_params(axis="x", nbins=4)
    axis.grid(axis="x")
