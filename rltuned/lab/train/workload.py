"""Where episodes take place: a trace on a cluster as arrays, and windows cut from it.

A workload is prepared once; a window is a slice of it, with submit times stretched to the load that
was asked for, so thousands of windows cost almost nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rltuned.core.queue_features import FIRST_OF_QUEUE, FIRST_QUANTILE
from rltuned.errors import TraceError
from rltuned.lab.kernel.compiler import Float32Array, FloatArray
from rltuned.lab.kernel.features import StaticFeatures
from rltuned.lab.kernel.state import Jobs
from rltuned.lab.replay.prepared import Prepared, prepare, sight_of
from rltuned.lab.replay.reshape import demand
from rltuned.lab.replay.stage import Stage
from rltuned.lab.train.reward import Work
from rltuned.sim.cluster import Cluster
from rltuned.sim.natural import Natural
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules

MULTIFACTOR = Natural(kind="multifactor")


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What is predicted of n jobs at submission. quantiles: (n, 3). plan_s, mean_s: (n,)."""

    quantiles: Float32Array
    plan_s: FloatArray
    mean_s: FloatArray


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace on a cluster, or a part from job `first` on. duration_s: (n,) true run times, for
    rewards alone, as price (n,), see train/reward. foreseen_s: (n, 2) plans and expected run times;
    None = by the limits.
    """

    name: str
    cluster: Cluster
    jobs: tuple[TraceJob, ...]
    prepared: Prepared
    sight: StaticFeatures
    duration_s: FloatArray
    price: FloatArray
    rules: Rules
    first: int = 0
    foreseen_s: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def submit_s(self) -> FloatArray:
        """(n,)"""
        return self.prepared.jobs.submit_s

    @property
    def work(self) -> Work:
        return Work(self.submit_s, self.prepared.jobs.runs_s, self.duration_s, self.price)

    def stage(self, natural: Natural = MULTIFACTOR) -> Stage:
        """The same for the kernel; natural: what Slurm's own priorities are made of."""
        return Stage(
            self.cluster,
            self.jobs,
            self.prepared,
            natural,
            self.sight,
            foreseen_s=self.foreseen_s,
        )


def make_workload(
    name: str, cluster: Cluster, jobs: Sequence[TraceJob], rules: Rules | None = None
) -> Workload:
    """Prepare a trace, in submit order, on a cluster. Raises TraceError: a job can never run."""
    if not jobs:
        raise TraceError(f"{name}: no jobs")
    prepared = prepare(cluster, jobs)
    return Workload(
        name=name,
        cluster=cluster,
        jobs=tuple(jobs),
        prepared=prepared,
        sight=sight_of(cluster, jobs, prepared),
        duration_s=np.array([j.duration_s for j in jobs]),
        price=np.ones(len(jobs)),
        rules=rules or Rules(),
    )


def foreseeing(workload: Workload, found: Foreseen | None) -> Workload:
    """The workload with what a run-time predictor says of its jobs; None: as it is."""
    if found is None:
        return workload
    fixed = workload.sight.fixed.copy()
    fixed[:, FIRST_QUANTILE:FIRST_OF_QUEUE] = found.quantiles
    foreseen_s = np.column_stack([found.plan_s, found.mean_s])
    return replace(workload, sight=workload.sight._replace(fixed=fixed), foreseen_s=foreseen_s)


def cut(
    workload: Workload,
    first: int,
    size: int,
    *,
    load: float | None = None,
    jitter: np.random.Generator | None = None,
    jitter_s: float = 60.0,
) -> Workload:
    """Consecutive jobs, from an empty cluster. load: GPU demand as a part of the cluster's GPUs;
    None = as in the trace. jitter: each submit moves by up to jitter_s. Raises TraceError.
    """
    if size < 1 or first < 0 or first + size > len(workload):
        raise TraceError(
            f"{workload.name}: no window of {size} jobs from job {first + 1}: "
            f"it has {len(workload)}"
        )
    part = slice(first, first + size)
    old = workload.prepared.jobs
    submit_s = _submits(workload, part, load, jitter, jitter_s)
    wide = workload.prepared.shapes.width[old.shape[part]]
    jobs = Jobs(
        submit_s=submit_s,
        runs_s=old.runs_s[part].copy(),
        limit_s=old.limit_s[part].copy(),
        shape=old.shape[part].copy(),
        offset=np.cumsum(wide) - wide,
    )
    prepared = replace(
        workload.prepared,
        jobs=jobs,
        requests=workload.prepared.requests[part],
        partition_factor=workload.prepared.partition_factor[part],
        size=workload.prepared.size[part],
        pool=workload.prepared.pool[part],
    )
    return replace(
        workload,
        jobs=workload.jobs[part],
        prepared=prepared,
        sight=workload.sight._replace(fixed=workload.sight.fixed[part]),
        duration_s=workload.duration_s[part],
        price=workload.price[part],
        first=first,
        foreseen_s=None if workload.foreseen_s is None else workload.foreseen_s[part],
    )


def _submits(
    workload: Workload,
    part: slice,
    load: float | None,
    jitter: np.random.Generator | None,
    jitter_s: float,
) -> FloatArray:
    """(n,) submit times of a part of a workload, from 0; see cut."""
    old = workload.prepared.jobs
    submit_s: FloatArray = old.submit_s[part] - old.submit_s[part][0]
    if jitter is not None:
        submit_s = np.sort(submit_s + jitter.uniform(0.0, jitter_s, len(submit_s)))
        submit_s -= submit_s[0]
    if load is None:
        return submit_s
    gpus = workload.prepared.shapes.gpus[old.shape[part]].astype(np.float64)
    wanted = load * workload.prepared.cluster_gpus
    submit_s *= stretch(submit_s, old.runs_s[part], gpus, wanted)
    return submit_s


def stretch(submit_s: FloatArray, runs_s: FloatArray, gpus: FloatArray, wanted: float) -> float:
    """Factor on the submit times that makes the demand what is wanted; bisection on its log."""
    low, high = -12.0, 12.0
    for _ in range(50):
        middle = (low + high) / 2
        if demand(submit_s * math.exp(middle), runs_s, gpus) > wanted:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)
