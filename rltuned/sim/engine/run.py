"""The engine's face: trace and cluster in, starts and shares out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.features import cpus_per_unit
from rltuned.core.placement import ceil_div, width
from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.jobs import Request
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import GpuType, UnixTime
from rltuned.errors import TraceError
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.engine.arrays import FloatArray, Free, Hardware, IntArray, Jobs, Shapes, Shares
from rltuned.sim.engine.cycles import NO_CYCLES, Cycles
from rltuned.sim.engine.dispatch import Setup, State
from rltuned.sim.engine.loop import Log, PendingQueue, play
from rltuned.sim.engine.ranking import FIXED, NO_BOUNDS, NO_EYES, NO_MEMORY, Eyes, Ranking
from rltuned.sim.fitting import impossible, in_partition
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules


@dataclass(frozen=True, slots=True)
class Played:
    """What happened to each job, in trace order; shares of job i: rows offset[i]:offset[i+1].

    passes: those that found a queue. cycles: of the daemon, see engine/cycles.cycle. writes: (n,)
    how often it wrote each job.
    """

    start_s: FloatArray
    end_s: FloatArray
    offset: IntArray
    shares: Shares
    passes: int
    cycles: Log
    writes: IntArray
    by_cycles: bool

    @property
    def decisions(self) -> int:
        """How often the queue was ranked."""
        return len(self.cycles) if self.by_cycles else self.passes


@dataclass(frozen=True, slots=True)
class Prepared:
    """A trace on a cluster as arrays, ready to be played under any order."""

    hardware: Hardware
    shapes: Shapes
    jobs: Jobs
    requests: tuple[Request, ...]
    partition_factor: FloatArray
    cluster_gpus: int
    size: FloatArray


def prepare(cluster: Cluster, jobs: Sequence[TraceJob]) -> Prepared:
    """Turn objects into arrays.

    Raises:
        TraceError: a job can never run on this cluster.
    """
    snapshot = Snapshot(UnixTime(0.0), cluster.name, (), (), cluster.nodes, cluster.partitions)
    capacity = Capacity.of(snapshot)
    names = [p.name for p in cluster.partitions]
    by_name = {p.name: p for p in cluster.partitions}
    row_of: dict[object, int] = {}
    known: dict[tuple[int, str], tuple[int, Request]] = {}
    found: list[tuple[Request, str]] = []
    shape = np.empty(len(jobs), dtype=np.int64)
    requests, kept = [], []
    for i, job in enumerate(jobs):
        partition = job.partition or cluster.default_partition
        request = job.request()
        kept.append(request)  # alive, so that its id stays its own
        if (id(request), partition) not in known:
            why = impossible(job, cluster, capacity)
            if why is not None:
                raise TraceError(f"job {job.job_id} can never run on {cluster.name}: {why}")
            asked = in_partition(request, by_name[partition])
            key = (asked.total, asked.gpu_types, asked.nodes, asked.exclusive, partition)
            if key not in row_of:
                row_of[key] = len(found)
                found.append((asked, partition))
            known[id(request), partition] = (row_of[key], asked)
        shape[i], asked = known[id(request), partition]
        requests.append(asked)
    shapes = _shapes(found, names, capacity)
    factors = np.array([p.priority_factor for p in cluster.partitions], dtype=np.float64)
    return Prepared(
        _hardware(capacity, names),
        shapes,
        _jobs(jobs, requests, shape, shapes),
        tuple(requests),
        (factors / max(1.0, factors.max()))[shapes.partition[shape]],
        max(1, cluster.gpus),
        _sizes(requests, shapes.partition[shape], names, capacity),
    )


def _sizes(
    requests: Sequence[Request], partition: IntArray, names: Sequence[str], capacity: Capacity
) -> FloatArray:
    """(n,) as StateMatrix.size."""
    unit = [cpus_per_unit(capacity.members_of((name,)), capacity) for name in names]
    sizes = [
        r.total.gpus or r.total.cpus / unit[p]
        for r, p in zip(requests, partition.tolist(), strict=True)
    ]
    return np.maximum(np.array(sizes, dtype=np.float64), 1.0)


@cache
def load() -> None:
    """Compile the engine, or read it from disk, before somebody holds a stop-watch."""
    cluster = Cluster("tiny", (idle_node("n", GpuType("g"), Resources(1, 1, 1), ("p",)),), (_TINY,))
    jobs = (TraceJob("1", 0.0, 1.0, 1),)
    prepared = prepare(cluster, jobs)
    zero, none = np.zeros(1), np.zeros(1, dtype=np.int64)
    ranking = Ranking(
        FIXED, zero, zero, zero, np.zeros((1, 3)), np.ones(2), none, zero, NO_MEMORY, NO_BOUNDS, 1.0
    )
    run(prepared, ranking, Rules())


_TINY = Partition("p", default=True)


def run(
    prepared: Prepared,
    ranking: Ranking,
    rules: Rules,
    *,
    cycles: Cycles = NO_CYCLES,
    eyes: Eyes = NO_EYES,
    arrive_s: FloatArray | None = None,
) -> Played:
    """Play the trace to its end.

    Args:
        prepared: trace and cluster.
        ranking: of the queue, or of Slurm where a daemon runs beside it.
        rules: placement and backfill.
        cycles: the daemon.
        eyes: of a network.
        arrive_s: (n,) when each job comes, where that is not when it was submitted.

    Raises:
        TraceError: a job never started.
    """
    jobs, shapes = prepared.jobs, prepared.shapes
    state = empty_state(prepared)
    setup = Setup(prepared.hardware, shapes, jobs, spreads(rules), rules.backfill == "easy")
    arrive_s = jobs.submit_s if arrive_s is None else arrive_s
    order = np.argsort(arrive_s, kind="stable")
    count = len(order)
    queue = PendingQueue(
        np.empty(count, dtype=np.int64), np.zeros(1, dtype=np.int64), order, arrive_s
    )
    passes, log = play(setup, state, ranking, queue, cycles, eyes)
    stuck = np.flatnonzero(np.isnan(state.start_s))
    if len(stuck):
        raise TraceError(f"{len(stuck)} jobs never started, the first is row {stuck[0] + 1}")
    offset = np.append(jobs.offset, len(state.shares.node))
    return Played(
        start_s=state.start_s,
        end_s=state.start_s + jobs.runs_s,
        offset=offset,
        shares=state.shares,
        passes=int(passes),
        cycles=log,
        writes=cycles.writes,
        by_cycles=len(cycles.managed) > 0,
    )


def empty_state(prepared: Prepared) -> State:
    """An empty cluster before the first job."""
    jobs, shapes, hardware = prepared.jobs, prepared.shapes, prepared.hardware
    count, nodes, kinds = len(jobs.submit_s), len(hardware.row), len(shapes.gpus)
    partitions, total = len(hardware.near), int(shapes.width[jobs.shape].sum())
    return State(
        free=free_of(hardware),
        start_s=np.full(count, np.nan),
        shares=Shares(*(np.zeros(total, dtype=np.int64) for _ in range(5))),
        running=np.empty(count, dtype=np.int64),
        latest=np.empty(count),
        head=np.full(partitions, -1),
        shadow_s=np.full(partitions, np.inf),
        later_gpus=np.zeros((partitions, nodes), dtype=np.int64),
        later_of_type=np.zeros((partitions, *hardware.of_type.shape), dtype=np.int64),
        later_cpus=np.zeros((partitions, nodes), dtype=np.int64),
        later_mem=np.zeros((partitions, nodes), dtype=np.int64),
        failed=np.full(kinds, -1),
        refused=np.full(kinds, -1),
        counters=np.zeros(5, dtype=np.int64),
        chosen=np.empty(2 * int(shapes.width.max()) + 1, dtype=np.int64),
    )


def free_of(hardware: Hardware) -> Free:
    """An empty cluster."""
    return Free(
        hardware.gpus.copy(),
        hardware.of_type.copy(),
        hardware.cpus.copy(),
        hardware.mem_mib.copy(),
    )


def spreads(rules: Rules) -> bool:
    """Whether to spread; otherwise the engine packs. It knows no first fit."""
    if rules.placement == "first":
        raise ValueError("first fit is played by the plain world only")
    return rules.placement == "spread"


def _hardware(capacity: Capacity, names: Sequence[str]) -> Hardware:
    member = np.array([capacity.members_of((name,)) for name in names])
    near = (member.astype(np.int64) @ member.T.astype(np.int64)) > 0
    np.fill_diagonal(near, True)
    return Hardware(
        row=_rows(capacity),
        gpus=capacity.total_gpus.sum(axis=0),
        of_type=capacity.total_gpus,
        cpus=capacity.total_cpus,
        mem_mib=capacity.total_mem_mib,
        member=member,
        near=near,
    )


def _rows(capacity: Capacity) -> IntArray:
    """(N,) the GPU type of each node, or the zero row."""
    has = capacity.total_gpus > 0
    return np.where(has.any(axis=0), has.argmax(axis=0), len(capacity.gpu_types))


def _shapes(
    found: Sequence[tuple[Request, str]], names: Sequence[str], capacity: Capacity
) -> Shapes:
    widths, accepts = [], np.zeros((len(found), len(capacity.gpu_types) + 1), dtype=bool)
    for i, (request, partition) in enumerate(found):
        count, rows = width(request, capacity.members_of((partition,)), capacity)
        widths.append(count)
        accepts[i, list(rows)] = True
    need = [(r.total, w) for (r, _), w in zip(found, widths, strict=True)]
    return Shapes(
        gpus=_ints([t.gpus for t, _ in need]),
        cpus=_ints([t.cpus for t, _ in need]),
        mem_mib=_ints([t.mem_mib for t, _ in need]),
        width=_ints(widths),
        accepts=accepts,
        low=_ints([t.gpus // w for t, w in need]),
        larger=_ints([t.gpus % w for t, w in need]),
        cpus_each=_ints([ceil_div(t.cpus, w) for t, w in need]),
        mem_each=_ints([ceil_div(t.mem_mib, w) for t, w in need]),
        exclusive=np.array([r.exclusive for r, _ in found]),
        partition=_ints([names.index(p) for _, p in found]),
    )


def _jobs(
    jobs: Sequence[TraceJob], requests: Sequence[Request], shape: IntArray, shapes: Shapes
) -> Jobs:
    limit_s = np.array([math.inf if r.time_limit_s is None else r.time_limit_s for r in requests])
    duration_s = np.array([j.duration_s for j in jobs])
    wide = shapes.width[shape]
    return Jobs(
        submit_s=np.array([j.submit_s for j in jobs]),
        runs_s=np.minimum(duration_s, limit_s),
        limit_s=limit_s,
        shape=shape,
        offset=np.cumsum(wide) - wide,
    )


def _ints(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
