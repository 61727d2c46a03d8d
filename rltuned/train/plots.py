"""Plots of an evaluation."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from rltuned.errors import TraceError
from rltuned.kernel.compiler import FloatArray
from rltuned.report.svg import INK, LOOK, MUTED, PALE, SERIES, SHORT, seconds_axis, svg_of
from rltuned.sim.policy import CLAIRVOYANT
from rltuned.train.evaluate import SHARES, SINGLE, Comparison

LABELS: Final = {
    "wait_s": "wait, s",
    "bsld": "bounded slowdown",
    "jct_s": "job completion time, s",
}
SHOWN: Final = ("fcfs", "saf", "multifactor", CLAIRVOYANT)
"""Rules whose single jobs are drawn beside the models'; all would be a tangle."""
BOX_INCHES: Final = 0.21
FEW_DECADES: Final = 300.0
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
        axis.xaxis.set_major_formatter(SHORT)
    else:
        seconds_axis(axis)
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
