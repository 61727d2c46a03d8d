"""The report of a backtest: one HTML page that needs nothing else, and its plots."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rltuned.backtest.calibration import Calibration
from rltuned.backtest.chance import RelativeChange
from rltuned.backtest.outcome import HOUR_S, OrderOutcome
from rltuned.backtest.past import Past
from rltuned.backtest.study import Study
from rltuned.report import render
from rltuned.report.svg import INK, LOOK, MUTED, SERIES, seconds_axis, svg_of
from rltuned.sim.metrics import FloatArray

WIDE: Final = 10.5
ROW_INCHES: Final = 0.27
BAND: Final = 0.12
DAY_S: Final = 86_400.0
TALL_H: Final = 5.0
"""Beyond so many hours a difference is drawn on a logarithmic axis."""
FULL: Final = 5.0
"""Changes beyond +500% are drawn at the edge."""
REAL, SIMULATED = SERIES[0], SERIES[1]


def page_of(study: Study, found: Mapping[str, Any], shown: Mapping[str, Mapping[str, str]]) -> str:
    """The page.

    found: see study.document; the page has nothing else. shown: kind of group -> group -> its name.
    """
    calibration, outcomes = found["calibration"], study.outcomes
    matches = {"all": calibration["whole"], "after the switch": calibration["later"]}
    matches |= {f"partition {name}": match for name, match in calibration["partitions"].items()}
    plots = {
        "calibration": Markup(calibration_plot(study)),  # noqa: S704 - matplotlib's SVG
        "orders": Markup(orders_plot(outcomes)),  # noqa: S704
        "moves": Markup(moves_plot(outcomes)),  # noqa: S704
        "people": {name: Markup(people_plot(study, name)) for name in outcomes},  # noqa: S704
        "groups": {n: Markup(groups_plot(o, shown)) for n, o in outcomes.items()},  # noqa: S704
    }
    return render(
        "backtest.html",
        title=f"Backtest of {found['record']['cluster']}",
        study=found,
        matches=list(matches.items()),
        plots=plots,
        terms=[(k.replace("_", " "), v) for k, v in found["asked"].items() if k != "learned"],
    )


def calibration_plot(study: Study) -> str:
    """Left: mean wait over the record, real and simulated. Right: the waits of all jobs."""
    past, found = study.past, study.calibration
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDE, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
        _days(left, found, past)
        arrived = np.array([j.submit_s for j in past.jobs])
        _shares(right, past.wait_s[past.scored], "real", REAL, "-")
        simulated = (study.base.start_s - arrived)[past.scored]
        _shares(right, simulated, "simulated, same weights", SIMULATED, "--")
        right.set_xlabel("wait of a job, s")
        right.set_ylabel("share of the jobs")
        right.legend(loc="lower right", fontsize=8)
        return svg_of(figure, "calibration")


def _days(axis: Axes, found: Calibration, past: Past) -> None:
    at = [d[0] / DAY_S for d in found.days]
    axis.plot(at, [d[1] / HOUR_S for d in found.days], "o-", ms=3, color=REAL, label="real")
    same = "simulated, same weights"
    axis.plot(at, [d[2] / HOUR_S for d in found.days], "s--", ms=3, color=SIMULATED, label=same)
    axis.axvline(past.split_s / DAY_S, color=MUTED, linewidth=0.9)
    switch, across = past.split_s / DAY_S, axis.get_xaxis_transform()
    axis.text(switch, 0.97, " judged from here on", transform=across, va="top", fontsize=8)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("days since the record began")
    axis.set_ylabel("mean wait, h")
    axis.grid()
    axis.legend(fontsize=8)


def _shares(axis: Axes, waits: FloatArray, name: str, colour: str, line: str) -> None:
    ordered = np.quantile(waits, np.linspace(0, 1, 201))
    axis.plot(ordered, np.linspace(0, 1, 201), line, color=colour, label=name, linewidth=1.5)
    seconds_axis(axis)
    axis.grid()


SHOWN: Final = (
    ("wait_s", "mean wait"),
    ("wait_p50_s", "median wait"),
    ("wait_p95_s", "95% wait less"),
    ("jct_s", "mean completion"),
    ("bsld", "bounded slowdown"),
)


def orders_plot(outcomes: Mapping[str, OrderOutcome]) -> str:
    """Change of each metric under each order, with its interval."""
    with mpl.rc_context(LOOK):
        rows = len(outcomes)
        figure = Figure(figsize=(WIDE, 0.95 + ROW_INCHES * rows), layout="constrained")
        axes = figure.subplots(1, len(SHOWN), sharey=True)
        for axis, (metric, title) in zip(axes, SHOWN, strict=True):
            _forest(axis, [o.metrics[metric] for o in outcomes.values()], list(outcomes))
            axis.set_title(title, fontsize=9)
        return svg_of(figure, "orders")


def groups_plot(outcome: OrderOutcome, shown: Mapping[str, Mapping[str, str]]) -> str:
    """Change of the mean wait by group, with intervals.

    shown: kind of group -> group -> its name on the page.
    """
    kinds = [(k, g) for k, g in outcome.groups.items() if len(g) > 1] or list(
        outcome.groups.items()
    )[:1]
    with mpl.rc_context(LOOK):
        tallest = max(len(g) for _, g in kinds)
        figure = Figure(figsize=(WIDE, 1.0 + ROW_INCHES * tallest), layout="constrained")
        axes = np.atleast_1d(figure.subplots(1, len(kinds)))
        for axis, (kind, groups) in zip(axes, kinds, strict=True):
            names = [f"{shown.get(kind, {}).get(n, n)} ({g.jobs})" for n, g in groups.items()]
            _forest(axis, [g.wait for g in groups.values()], names)
            axis.set_title(f"mean wait, by {kind}", fontsize=9)
        return svg_of(figure, "groups")


def _forest(axis: Axes, changes: Sequence[RelativeChange], names: Sequence[str]) -> None:
    axis.axvline(0.0, color=MUTED, linewidth=0.9)
    for row, found in enumerate(changes):
        if found.change is None:
            axis.annotate("no job waits", (0.0, row), fontsize=7, color=MUTED, va="center")
            continue
        at = min(found.change, FULL)
        if found.low is not None and found.high is not None:
            low, high = min(found.low, FULL), min(found.high, FULL)
            axis.plot([low, high], [row, row], color=SERIES[0], linewidth=1.6)
        axis.plot([at], [row], "o", ms=4.5, color=SERIES[0])
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, -BAND), max(high, BAND))
    axis.xaxis.set_major_formatter(lambda v, _at: f"{v:+.0%}")
    axis.locator_params(axis="x", nbins=4)
    axis.grid(axis="x")
    axis.set_axisbelow(True)


def people_plot(study: Study, name: str) -> str:
    """Left: by how much jobs wait longer or less. Right: the same of users' means."""
    past, outcome = study.past, study.outcomes[name]
    gap = (study.own[name].start_s - study.base.start_s)[past.later]
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDE, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        _waterfall(left, np.sort(gap), "share of the jobs")
        _waterfall(right, np.array(outcome.people), "share of the users with five jobs and more")
        left.set_ylabel("wait minus that under\nmultifactor, h")
        return svg_of(figure, f"people {name}")


def _waterfall(axis: Axes, gaps: FloatArray, what: str) -> None:
    if not len(gaps):
        axis.annotate("none", (0.5, 0.5), xycoords="axes fraction", color=MUTED)
        return
    share = np.linspace(0, 1, len(gaps)) if len(gaps) > 1 else np.array([0.5])
    hours = gaps / HOUR_S
    axis.fill_between(share, np.minimum(hours, 0), 0, color=SERIES[2], alpha=0.55, linewidth=0)
    axis.fill_between(share, np.maximum(hours, 0), 0, color=SERIES[5], alpha=0.55, linewidth=0)
    axis.plot(share, hours, color=INK, linewidth=1.0)
    axis.axhline(0.0, color=MUTED, linewidth=0.9)
    if np.abs(hours).max() > TALL_H:
        axis.set_yscale("symlog", linthresh=1.0)
    axis.xaxis.set_major_formatter(lambda v, _at: f"{v:.0%}")
    axis.yaxis.set_major_formatter(lambda v, _at: f"{v:+.3g}")
    axis.set_xlabel(f"{what}, those who gain most first")
    axis.grid()


def moves_plot(outcomes: Mapping[str, OrderOutcome]) -> str:
    """Priorities changed per hour, over the later part."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(WIDE, 2.3), layout="constrained")
        axis = figure.subplots()
        for (name, outcome), colour in zip(outcomes.items(), SERIES * len(outcomes), strict=False):
            hours = outcome.moved.hours
            axis.step(np.arange(len(hours)) / 24, hours, where="post", color=colour, label=name,
                      linewidth=1.0)  # fmt: skip
        axis.set_xlabel("days since rltuned was switched on")
        axis.set_ylabel("changes per hour")
        axis.set_ylim(bottom=0)
        axis.grid()
        axis.legend(fontsize=8)
        return svg_of(figure, "moves")
