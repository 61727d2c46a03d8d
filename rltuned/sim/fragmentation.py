"""How far the free GPUs are scraps, over the time of a schedule.

The figure is feature `cff` of core/features: 1 - sum(f^2 / G) / sum(f) over nodes with f of G GPUs
free; 0 when every free GPU stands on an otherwise free node or none is free.
"""

import numpy as np
from numpy.typing import NDArray

from rltuned.sim.cluster import Cluster
from rltuned.sim.metrics import Schedule

FloatArray = NDArray[np.float64]


def over_time(schedule: Schedule, cluster: Cluster) -> tuple[FloatArray, FloatArray]:
    """(times, levels): each level holds from its time to the next one."""
    total: dict[str, int] = {n.name: n.total.gpus for n in cluster.nodes}
    changes: list[tuple[float, int, str, int]] = []
    for i, text in enumerate(schedule.nodes):
        for part in text.split("|"):
            node, _, gpus = part.rpartition(":")
            if int(gpus):
                changes.append((float(schedule.start_s[i]), 1, node, -int(gpus)))
                changes.append((float(schedule.end_s[i]), 0, node, int(gpus)))
    changes.sort()
    free = dict(total)
    all_free = float(sum(total.values()))
    whole = all_free  # sum of f^2 / G
    times: list[float] = []
    levels: list[float] = []
    for at, _, name, change in changes:
        size, old = total[name], free[name]
        free[name] = old + change
        all_free += change
        whole += (free[name] ** 2 - old**2) / size
        level = max(0.0, 1.0 - whole / all_free) if all_free > 0 else 0.0
        if times and times[-1] == at:
            levels[-1] = level
        else:
            times.append(at)
            levels.append(level)
    return np.array(times), np.array(levels)


def mean(schedule: Schedule, cluster: Cluster) -> float:
    """Time-weighted mean from the first start to the last end."""
    times, levels = over_time(schedule, cluster)
    if len(times) < 2:  # noqa: PLR2004 - a span has two ends
        return 0.0
    spans = np.diff(times)
    return float((levels[:-1] * spans).sum() / spans.sum())
