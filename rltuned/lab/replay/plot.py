"""Pictures of a comparison: who ran where, the queue and the use of the GPUs, the waits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from rltuned.lab.replay.metrics import FloatArray, Schedule, fragmentation
from rltuned.sim.cluster import Cluster

mpl.use("Agg")

MOST_ROWS = 400
"""GPUs drawn in the Gantt chart; a larger cluster shows its first ones."""
MOST_NAMES = 50
"""Of nodes that are named at its side."""
HOUR_S = 3_600.0


def draw(played: Mapping[str, Sequence[Schedule]], cluster: Cluster, path: Path) -> None:
    """Write one PNG: the first window's Gantt chart under the first policy, then the curves."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend is chosen

    figure, (gantt, queue, use, scraps, waits) = plt.subplots(
        5, 1, figsize=(11, 17), gridspec_kw={"height_ratios": [3, 1.2, 1.2, 1, 1.6]}
    )
    first_policy, first = next((name, schedules[0]) for name, schedules in played.items())
    _gantt(gantt, first, cluster)
    gantt.set_title(f"GPUs of {cluster.name} under {first_policy}, first window")
    for name, schedules in played.items():
        _curves(queue, use, name, schedules[0], cluster.gpus)
        times, level = fragmentation(schedules[0], cluster)
        hours = (times - float(schedules[0].submit_s.min())) / HOUR_S
        scraps.step(hours, level, where="post", label=name, linewidth=0.9)
        wait_h = np.sort(np.concatenate([s.wait_s[s.warmup :] for s in schedules])) / HOUR_S
        share = np.arange(1, len(wait_h) + 1) / len(wait_h)
        waits.step(wait_h, share, where="post", label=name)
    queue.set_ylabel("jobs waiting")
    use.set_ylabel("GPUs in use")
    scraps.set_ylabel("fragmentation")
    use.set_ylim(0, max(1, cluster.gpus) * 1.05)
    waits.set_xlabel("wait (hours)")
    waits.set_ylabel("share of jobs")
    waits.set_xscale("symlog", linthresh=0.01)
    for axes in (queue, use, scraps, waits):
        axes.legend(fontsize="small")
        axes.grid(alpha=0.3)
    for axes in (gantt, queue, use, scraps):
        axes.set_xlabel("hours since the first submit")
    figure.tight_layout()
    figure.savefig(path, dpi=110, format="png")
    plt.close(figure)


def _gantt(axes: Any, schedule: Schedule, cluster: Cluster) -> None:
    row, base = 0, {}
    for node in cluster.nodes:
        base[node.name] = row
        row += max(1, node.total.gpus)
    free_from = np.full(row, -np.inf)
    zero = float(schedule.submit_s.min())
    colours = [mpl.colormaps["tab20"](k) for k in range(20)]
    for i in np.argsort(schedule.start_s, kind="stable"):
        start, end = float(schedule.start_s[i]), float(schedule.end_s[i])
        for part in schedule.nodes[i].split("|"):
            name, _, gpus = part.rpartition(":")
            top = base[name] + max(1, _gpus_of(cluster, name))
            rows = [r for r in range(base[name], top) if free_from[r] <= start][: int(gpus)]
            for r in rows:
                free_from[r] = end
                if r < MOST_ROWS:
                    axes.broken_barh(
                        [((start - zero) / HOUR_S, (end - start) / HOUR_S)],
                        (r, 0.9),
                        facecolors=colours[i % len(colours)],
                    )
    shown = [n for n in cluster.nodes if base[n.name] < MOST_ROWS]
    shown = shown[:: -(-len(shown) // MOST_NAMES)]
    axes.set_yticks([base[n.name] for n in shown])
    axes.set_yticklabels([n.name for n in shown], fontsize=6 if len(shown) > len(colours) else 9)
    axes.set_ylim(0, min(row, MOST_ROWS))
    axes.invert_yaxis()


def _gpus_of(cluster: Cluster, name: str) -> int:
    return next(n.total.gpus for n in cluster.nodes if n.name == name)


def _curves(queue: Any, use: Any, name: str, schedule: Schedule, gpus: int) -> None:
    zero = float(schedule.submit_s.min())
    ones = np.ones(len(schedule.job_ids))
    for axes, began, ended, weight in (
        (queue, schedule.submit_s, schedule.start_s, ones),
        (use, schedule.start_s, schedule.end_s, np.minimum(schedule.gpus, gpus)),
    ):
        times, level = steps(began, ended, weight)
        axes.step((times - zero) / HOUR_S, level, where="post", label=name, linewidth=0.9)


def steps(
    began: FloatArray, ended: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """A sum over time: each weight counts from its begin to its end. Returns (times, levels)."""
    moments = np.concatenate([began, ended])
    change = np.concatenate([weight, -weight])
    times, inverse = np.unique(moments, return_inverse=True)
    return times, np.cumsum(np.bincount(inverse, weights=change))
