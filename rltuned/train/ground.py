"""Where episodes take place: a trace on a cluster as arrays, and windows cut from it.

A ground is prepared once; a window is a slice of it, with submit times stretched to the load that
was asked for, so thousands of windows cost almost nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.features import NUM_FEATURES, encode, planning_limit_s
from rltuned.core.order import Order, upper_bounds_s
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import TraceError
from rltuned.sim.cluster import Cluster
from rltuned.sim.engine.arrays import FloatArray, Jobs
from rltuned.sim.engine.loop import Ranking
from rltuned.sim.engine.orders import STATIC, delayed_ranking, ranking_of
from rltuned.sim.engine.run import Prepared, prepare
from rltuned.sim.natural import Natural
from rltuned.sim.policy import FUTURE
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from rltuned.train.reward import Work
from rltuned.train.rollout.state import Float32Array, Sight

SLOTS_OF_THE_MOMENT = (2, 5, 6, 7, 8, 10, 11, 12)
"""Columns of the features that change while a job waits; the rollout fills them in."""
MULTIFACTOR = Natural(kind="multifactor")


@dataclass(frozen=True, slots=True)
class Ground:
    """A trace on a cluster. duration_s: (n,) true run times, which only rewards may use."""

    name: str
    cluster: Cluster
    jobs: tuple[TraceJob, ...]
    prepared: Prepared
    sight: Sight
    duration_s: FloatArray
    rules: Rules

    def __len__(self) -> int:
        return len(self.jobs)


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive jobs of a ground, submitted from second 0."""

    ground: Ground
    first: int
    jobs: tuple[TraceJob, ...]
    prepared: Prepared
    fixed: Float32Array
    duration_s: FloatArray

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def submit_s(self) -> FloatArray:
        """(n,)"""
        return self.prepared.jobs.submit_s

    @property
    def work(self) -> Work:
        """The jobs as rewards see them."""
        return Work(self.submit_s, self.prepared.jobs.runs_s, self.duration_s)

    def foretold(self, columns: Float32Array) -> "Window":
        """The same window with predictions of all jobs of the ground, (len(ground), 3)."""
        mine = columns[self.first : self.first + len(self)]
        fixed = np.column_stack([self.fixed[:, :NUM_FEATURES], mine]).astype(np.float32)
        return replace(self, fixed=fixed)

    def upper_s(self, order: Order) -> FloatArray:
        """(n,) the bounds of these jobs' delays, in seconds."""
        limit_s = np.array([planning_limit_s(r.time_limit_s) for r in self.prepared.requests])
        return upper_bounds_s(limit_s, self.prepared.size, order)

    def ranking(self, policy: str, order: Order | None = None) -> Ranking:
        """A rule's ranking of these jobs; order: the bounds of its delays, None = pure.

        Raises:
            TraceError: there is no such rule, or its delays change while a job waits.
        """
        bounded = order is not None and policy not in {*FUTURE, "multifactor"}
        try:
            if bounded and order is not None and policy in STATIC:
                return delayed_ranking(policy, self.prepared, self.jobs, MULTIFACTOR, order)
            return ranking_of(policy, self.prepared, self.jobs, MULTIFACTOR)
        except KeyError:
            raise TraceError(f"no rule named {policy!r}") from None


def make_ground(
    name: str,
    cluster: Cluster,
    jobs: Sequence[TraceJob],
    rules: Rules | None = None,
    predicted: Float32Array | None = None,
) -> Ground:
    """Prepare a trace on a cluster.

    Args:
        name: for messages and tables.
        cluster: the hardware.
        jobs: in submit order.
        rules: of the simulated Slurm.
        predicted: (n, 3) quantiles of a run-time predictor, further columns of the features.

    Raises:
        TraceError: a job can never run on this cluster, a node has GPUs of several types, or there
            are no jobs.
    """
    if not jobs:
        raise TraceError(f"{name}: no jobs")
    if (mixed := cluster.mixed_node) is not None:
        raise TraceError(
            f"node {mixed} has GPUs of several types: `simulate` and `backtest` play such a "
            "cluster, training does not"
        )
    prepared = prepare(cluster, jobs)
    sight = _sight(cluster, jobs, prepared)
    if predicted is not None:
        sight = sight._replace(fixed=np.column_stack([sight.fixed, predicted]).astype(np.float32))
    return Ground(
        name=name,
        cluster=cluster,
        jobs=tuple(jobs),
        prepared=prepared,
        sight=sight,
        duration_s=np.array([j.duration_s for j in jobs]),
        rules=rules or Rules(),
    )


def cut(
    ground: Ground,
    first: int,
    size: int,
    *,
    load: float | None = None,
    jitter: np.random.Generator | None = None,
    jitter_s: float = 60.0,
) -> Window:
    """Consecutive jobs, from an empty cluster.

    Args:
        ground: where from.
        first: the first job's place.
        size: how many.
        load: mean GPU demand over the arrival span, as a part of the cluster's GPUs, to which
            submit times are stretched; None = as in the trace.
        jitter: moves every submit time by up to jitter_s, keeping the order of the rows.
        jitter_s: how far.

    Raises:
        TraceError: the trace has not so many jobs.
    """
    if size < 1 or first < 0 or first + size > len(ground):
        raise TraceError(
            f"{ground.name}: no window of {size} jobs from job {first + 1}: it has {len(ground)}"
        )
    part = slice(first, first + size)
    old = ground.prepared.jobs
    submit_s = old.submit_s[part] - old.submit_s[first]
    if jitter is not None:
        submit_s = np.sort(submit_s + jitter.uniform(0.0, jitter_s, size))
        submit_s -= submit_s[0]
    if load is not None:
        gpus = ground.prepared.shapes.gpus[old.shape[part]].astype(np.float64)
        submit_s = submit_s * stretch(
            submit_s, old.runs_s[part], gpus, load * ground.prepared.cluster_gpus
        )
    wide = ground.prepared.shapes.width[old.shape[part]]
    jobs = Jobs(
        submit_s=submit_s,
        runs_s=old.runs_s[part].copy(),
        limit_s=old.limit_s[part].copy(),
        shape=old.shape[part].copy(),
        offset=np.cumsum(wide) - wide,
    )
    prepared = replace(
        ground.prepared,
        jobs=jobs,
        requests=ground.prepared.requests[part],
        partition_factor=ground.prepared.partition_factor[part],
        size=ground.prepared.size[part],
    )
    return Window(
        ground,
        first,
        ground.jobs[part],
        prepared,
        ground.sight.fixed[part],
        ground.duration_s[part],
    )


def demand(submit_s: FloatArray, runs_s: FloatArray, gpus: FloatArray) -> float:
    """Mean GPUs that would be in use over the arrival span if no job ever waited."""
    span_s = float(submit_s[-1] - submit_s[0])
    if span_s <= 0:
        return math.inf
    inside_s = np.minimum(submit_s + runs_s, submit_s[-1]) - submit_s
    return float((inside_s * gpus).sum() / span_s)


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


def _sight(cluster: Cluster, jobs: Sequence[TraceJob], prepared: Prepared) -> Sight:
    nodes = cluster.nodes
    snapshot = Snapshot(UnixTime(0.0), cluster.name, (), (), nodes, cluster.partitions)
    capacity = Capacity.of(snapshot)
    rows = len(capacity.gpu_types) + 1
    partitions = [p.name for p in cluster.partitions]
    shapes = prepared.jobs.shape
    wanted = np.zeros((len(prepared.shapes.gpus), rows), dtype=bool)
    firsts = np.unique(shapes, return_index=True)[1]
    for job in firsts.tolist():
        wanted[shapes[job], list(capacity.accepted(prepared.requests[job]))] = True
    member = np.array([capacity.members_of((p,)) for p in partitions])
    has = np.vstack([capacity.total_gpus[:-1] > 0, np.ones(len(nodes), dtype=bool)])
    return Sight(
        wanted=wanted,
        all_gpus=member.astype(np.int64) @ capacity.total_gpus.T,
        nodes=member.astype(np.int64) @ has.T.astype(np.int64),
        fixed=_fixed(jobs, prepared, partitions, snapshot),
    )


def _fixed(
    jobs: Sequence[TraceJob], prepared: Prepared, partitions: Sequence[str], snapshot: Snapshot
) -> Float32Array:
    """What core/features makes of each job alone: its encoding, without the moment's columns."""
    shared: dict[Request, Request] = {}
    pending = tuple(
        _pending(i, shared.setdefault(request, request), partitions[partition])
        for i, (request, partition) in enumerate(
            zip(prepared.requests, prepared.shapes.partition[prepared.jobs.shape], strict=True)
        )
    )
    values = np.concatenate(
        [encode(pending[at : at + 4096], snapshot).values for at in range(0, len(jobs), 4096)]
    )
    values[:, SLOTS_OF_THE_MOMENT] = 0.0
    return values


def _pending(number: int, request: Request, partition: str) -> PendingJob:
    return PendingJob(
        job_id=JobId(number + 1),
        address=str(number + 1),
        submitted_at=UnixTime(0.0),
        request=request,
        priority=1,
        partitions=(partition,),
    )
