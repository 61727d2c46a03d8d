"""Plots of an evaluation as inline SVG whose colours are the page's, so that it can turn dark."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from rltuned.errors import TraceError
from rltuned.sim.engine.arrays import FloatArray
from rltuned.sim.policy import CLAIRVOYANT
from rltuned.train.evaluate import SHARES, SINGLE, Comparison

INK, MUTED, GRID, PALE = "#010101", "#020202", "#030303", "#040404"
"""Stand-ins, replaced by variables of the style sheet."""
SERIES: Final = tuple(f"#05050{i}" for i in range(8))
VARIABLES: Final = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    PALE: "--pale",
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
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
}
LABELS: Final = {
    "wait_s": "wait, s",
    "bsld": "bounded slowdown",
    "jct_s": "job completion time, s",
}
SHOWN: Final = ("fcfs", "saf", "multifactor", CLAIRVOYANT)
"""Rules whose single jobs are drawn beside the models'; all would be a tangle."""
BOX_INCHES: Final = 0.21
FEW_DECADES: Final = 300.0
SHORT: Final = EngFormatter(sep="")
WIDE_INCHES: Final = 11.0


def distributions(found: Comparison) -> str:
    """Boxes of the windows' means, every policy; below, shares of the jobs, models and few rules.

    As the paper's Figs. 12, 14 and 15, which show one metric and one rule each.
    """
    with mpl.rc_context(LOOK):
        tall = BOX_INCHES * len(found.values) + 0.9
        figure = Figure(figsize=(WIDE_INCHES, tall + 3.0), layout="constrained")
        axes = figure.subplots(2, 3, height_ratios=[tall, 3.0])
        for column, metric in enumerate(SINGLE):
            _boxes(axes[0][column], found, metric, named=column == 0)
            _shares(axes[1][column], found, metric, named=column == 0)
        return svg_of(figure, found.ground)


def _boxes(axis: Axes, found: Comparison, metric: str, *, named: bool) -> None:
    data = [np.atleast_2d(table[metric]).mean(axis=0) for table in found.values.values()]
    boxes = axis.boxplot(
        data,
        orientation="horizontal",
        showfliers=False,
        patch_artist=True,
        widths=0.62,
        medianprops={"color": INK, "linewidth": 1.2},
        whiskerprops={"color": MUTED},
        capprops={"color": MUTED},
        boxprops={"edgecolor": MUTED},
    )
    colours = _colours(found)
    for box, policy in zip(boxes["boxes"], found.values, strict=True):
        box.set_facecolor(colours[policy] if policy in found.paired else PALE)
    axis.set_yticks(range(1, len(data) + 1), list(found.values) if named else [])
    _stretch(axis, [float(v) for row in data for v in row])
    axis.set_xlabel(f"mean {LABELS[metric]}, per window")
    axis.grid(axis="x")
    axis.set_axisbelow(True)
    axis.invert_yaxis()


def _shares(axis: Axes, found: Comparison, metric: str, *, named: bool) -> None:
    colours = _colours(found)
    for policy in (*(r for r in SHOWN if r in found.values), *found.paired):
        line = "-" if policy in found.paired else RULE_LINES[policy]
        colour = colours[policy] if policy in found.paired else MUTED
        axis.plot(
            found.spread[policy][metric], SHARES, line, color=colour, label=policy, linewidth=1.4
        )
    if metric == "bsld":
        axis.set_xscale("log")
    else:
        axis.set_xscale("symlog", linthresh=10)
        axis.set_xlim(left=0)
    axis.xaxis.set_major_formatter(SHORT)
    axis.set_xlabel(f"{LABELS[metric]}, single jobs")
    axis.grid()
    if named:
        axis.set_ylabel("share of the jobs")
        axis.legend(loc="lower right", fontsize=8)


def _stretch(axis: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis with labels, however few decades the values span."""
    if min(values) <= 0:
        axis.set_xscale("symlog", linthresh=10)
    else:
        axis.set_xscale("log")
        wide = max(values) / min(values) > FEW_DECADES
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
        axis.xaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_formatter(SHORT)


RULE_LINES: Final = dict(zip(SHOWN, ("-", "--", ":", "-."), strict=True))


def _colours(found: Comparison) -> dict[str, str]:
    return dict(zip(found.paired, SERIES * len(found.paired), strict=False))


def curves(given: Mapping[str, Sequence[Path]]) -> str:
    """Learning curves as in the paper's Figs. 11 and 13; several seeds: their mean and range.

    Raises:
        TraceError: a file is no curves.csv.
    """
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDE_INCHES, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for (name, paths), colour in zip(given.items(), SERIES * len(given), strict=False):
            read = [_curve(path) for path in paths]
            for axis, which in ((left, 0), (right, 1)):
                _band(axis, [r[which] for r in read], name, colour)
        left.set_ylabel("gap to the base rule, training windows")
        right.set_ylabel("held-out windows: cost over SAF's")
        right.axhline(1.0, color=MUTED, linewidth=0.9)
        left.axhline(0.0, color=MUTED, linewidth=0.9)
        for axis in (left, right):
            axis.set_xlabel("epoch")
            axis.grid()
        right.set_yscale("log")
        right.yaxis.set_major_formatter("{x:.2f}")
        right.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0, 8.5)))
        right.yaxis.set_minor_formatter(NullFormatter())
        left.legend(fontsize=8)
        return svg_of(figure, "curves")


def _curve(path: Path) -> tuple[FloatArray, FloatArray]:
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        gap = np.array([float(r["gap"]) for r in rows])
        held = np.exp(np.array([float(r["validation"]) for r in rows]))
    except (OSError, KeyError, ValueError) as error:
        raise TraceError(f"{path}: not curves of a training: {error}") from error
    return gap, held


def _band(axis: Axes, seeds: Sequence[FloatArray], name: str, colour: str) -> None:
    """Mean over the seeds that are still learning, and between which values they lie."""
    longest = max(len(s) for s in seeds)
    table = np.full((len(seeds), longest), np.nan)
    for row, values in zip(table, seeds, strict=True):
        row[: len(values)] = values
    epochs = np.arange(longest)
    axis.plot(epochs, np.nanmean(table, axis=0), color=colour, label=name, linewidth=1.4)
    if len(seeds) > 1:
        low, high = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
        axis.fill_between(epochs, low, high, color=colour, alpha=0.18, linewidth=0)


def svg_of(figure: Figure, salt: str) -> str:
    """A figure as inline SVG in the colours of the page; same figure and salt, same text."""
    buffer = io.StringIO()
    with mpl.rc_context({**LOOK, "svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for stand_in, variable in VARIABLES.items():
        text = text.replace(stand_in, f"var({variable})")
    # text is real text, in the page's own typeface
    return re.sub(r"font: ([^;']*?)px [^;\"]*", r"font-size: \1px", text)
