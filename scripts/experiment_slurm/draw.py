"""The plots of scripts/studies/results/real-slurm.md."""

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from scripts.experiment_slurm.arms import ARMS
from scripts.experiment_slurm.figures import over_repeats
from scripts.experiment_slurm.report import Found, comparisons, pairs_of
from scripts.experiment_slurm.store import Key

PAPER = {"makespan_s": -24.8, "wait_s": -30.5, "utilisation": 3.9}
"""Percent; the paper's figures 18 and 19, on its testbed."""
SHOWN = {"makespan_s": "makespan", "wait_s": "mean wait", "utilisation": "GPUs used"}
COLOURS = dict(
    zip(ARMS, ("#1f77b4", "#2ca02c", "#17becf", "#7f7f7f", "#d62728", "#9467bd"), strict=True)
)


def draw(found: dict[Key, Found], folder: Path) -> list[Path]:
    """Changes against the base; waits; GPUs in use over time. The files that were written."""
    mpl.rcParams["svg.hashsalt"] = "rltuned"
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / "slurm-changes.svg"]
    _changes(found, made[0])
    for jobs in sorted({key.jobs for key in found}):
        made.append(folder / f"slurm-waits-{jobs}.svg")
        _waits(found, jobs, made[-1])
    return made


def _changes(found: dict[Key, Found], out: Path) -> None:
    """One panel per figure: dots are pairs of runs, bars the interval over the 256-job repeats."""
    named = [pair for pair in comparisons() if pairs_of(found, *pair, 256)]
    figure, axes = plt.subplots(1, len(SHOWN), figsize=(11, 0.6 * len(named) + 1.2), sharey=True)
    for axis, (name, title) in zip(axes, SHOWN.items(), strict=True):
        for row, (arm, base) in enumerate(named):
            _row(axis, found, arm, base, name, row)
        axis.axvline(0, color="grey", linewidth=0.8)
        axis.axvline(PAPER[name], color="black", linewidth=0.8, linestyle=":")
        axis.set_title(title)
        axis.set_xlabel("change, %")
    axes[0].set_yticks(range(len(named)), [f"{arm}\nagainst {base}" for arm, base in named])
    axes[0].invert_yaxis()
    axes[0].legend(*_legend(axes[0]), frameon=False, fontsize=7, loc="best")
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def _row(  # noqa: PLR0917 - what one line of the plot is made of
    axis: Axes, found: dict[Key, Found], arm: str, base: str, name: str, row: int
) -> None:
    pairs = pairs_of(found, arm, base, 256)
    colour = COLOURS[arm]
    real = [100 * (a.figures[name] / b.figures[name] - 1) for a, b in pairs]
    said = [100 * (a.foretold_held[name] / b.foretold_held[name] - 1) for a, b in pairs]
    axis.plot(real, [row] * len(real), "o", color=colour, markersize=5, label="256 jobs")
    axis.plot(said, [row + 0.22] * len(said), "x", color=colour, markersize=4, label="simulator")
    if len(pairs) > 1:
        at = over_repeats([(a.real, b.real) for a, b in pairs], name)
        axis.plot([100 * at.low, 100 * at.high], [row, row], "-", color=colour, linewidth=1)
    for a, b in pairs_of(found, arm, base, 1024):
        change = 100 * (a.figures[name] / b.figures[name] - 1)
        axis.plot([change], [row - 0.22], "D", color=colour, markersize=5, label="1,024 jobs")


def _legend(axis: Axes) -> tuple[list[object], list[str]]:
    """Each kind of mark once."""
    handles, labels = axis.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    return list(once.values()), list(once)


def _waits(found: dict[Key, Found], jobs: int, out: Path) -> None:
    """Distribution of waits, and GPUs in use over time, of the first seed of this size."""
    seeds = sorted({key.seed for key in found if key.jobs == jobs})
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6))
    for name, arm in ARMS.items():
        waits = [one.real.wait_s for key, one in found.items()
                 if (key.arm, key.jobs) == (name, jobs)]  # fmt: skip
        if waits:
            all_s = np.sort(np.concatenate(waits)) / 60
            shares = np.arange(1, len(all_s) + 1) / len(all_s)
            left.plot(all_s, shares, color=COLOURS[name], label=arm.words, linewidth=1.2)
        one = found.get(Key(name, jobs, seeds[0]))
        if one is not None:
            hours, used = _in_use(one)
            right.plot(hours, used, color=COLOURS[name], linewidth=1.2)
    left.set_xscale("symlog", linthresh=10)
    left.set_xlabel("wait, minutes of the faster clock")
    left.set_ylabel("share of jobs")
    left.legend(frameon=False, fontsize=7)
    right.set_xlabel(f"hours of the faster clock, seed {seeds[0]}")
    right.set_ylabel("of 13 GPUs at work, mean over 3 h")
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def _in_use(one: Found, step_s: float = 10_800.0) -> tuple[np.ndarray, np.ndarray]:
    """(n,) hours and (n,) mean GPUs at work in windows of step_s."""
    run = one.real
    edges = np.arange(0.0, run.end_s.max() + step_s, step_s)
    until = [
        float((np.clip(run.end_s, 0, t) - np.clip(run.start_s, 0, t)) @ run.gpus) for t in edges
    ]
    return (edges[:-1] + step_s / 2) / 3_600, np.diff(until) / step_s
