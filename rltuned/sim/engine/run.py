"""The engine's face: trace and cluster in, starts and shares out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.features import UNLIMITED_AS_S, StateMatrix, planning_limit_s
from rltuned.core.placement import ceil_div, width
from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.jobs import Request
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import GpuType, UnixTime
from rltuned.errors import TraceError
from rltuned.policies.baselines import BASELINES, F1_EPOCH_S
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.engine.arrays import FloatArray, Free, Hardware, IntArray, Jobs, Shapes, Shares
from rltuned.sim.engine.dispatch import Setup, State
from rltuned.sim.engine.loop import (
    F1,
    FIXED,
    MULTIFACTOR,
    QSSF,
    UNICEP,
    WFP3,
    Memory,
    Queue,
    Ranking,
    play,
)
from rltuned.sim.fitting import impossible, in_partition
from rltuned.sim.history import RUNGS, kinds
from rltuned.sim.natural import Natural
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules

FORMULAS = {"wfp3": WFP3, "unicep": UNICEP, "f1": F1, "multifactor": MULTIFACTOR}
FIXED_ORDERS = ("fcfs", "sjf", "saf", "smallest")
CLAIRVOYANT = "clairvoyant:sjf"


@dataclass(frozen=True, slots=True)
class Played:
    """What happened to each job, in trace order; shares of job i: rows offset[i]:offset[i+1]."""

    start_s: FloatArray
    end_s: FloatArray
    offset: IntArray
    shares: Shares
    passes: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A trace on a cluster as arrays, ready to be played under any order."""

    hardware: Hardware
    shapes: Shapes
    jobs: Jobs
    requests: tuple[Request, ...]
    partition_factor: FloatArray
    cluster_gpus: int


def prepare(cluster: Cluster, jobs: Sequence[TraceJob]) -> Prepared:
    """Turn objects into arrays.

    Raises:
        TraceError: a job can never run on this cluster, or a node has GPUs of several types.
    """
    mixed = next((n.name for n in cluster.nodes if len(n.gpus) > 1), None)
    if mixed is not None:
        raise TraceError(
            f"node {mixed} has GPUs of several types: `simulate` and `backtest` play such a "
            "cluster, training does not"
        )
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
    )


@cache
def load() -> None:
    """Compile the engine, or read it from disk, before somebody holds a stop-watch."""
    cluster = Cluster("tiny", (idle_node("n", GpuType("g"), Resources(1, 1, 1), ("p",)),), (_TINY,))
    jobs = (TraceJob("1", 0.0, 1.0, 1),)
    prepared = prepare(cluster, jobs)
    run(prepared, ranking_of("fcfs", prepared, jobs, Natural()), Rules())


_TINY = Partition("p", default=True)


def run(prepared: Prepared, ranking: Ranking, rules: Rules) -> Played:
    """Play the trace to its end."""
    jobs, shapes, hardware = prepared.jobs, prepared.shapes, prepared.hardware
    count, nodes = len(jobs.submit_s), len(hardware.row)
    partitions, total = len(hardware.near), int(shapes.width[jobs.shape].sum())
    shares = Shares(*(np.zeros(total, dtype=np.int64) for _ in range(4)))
    state = State(
        free=Free(hardware.gpus.copy(), hardware.cpus.copy(), hardware.mem_mib.copy()),
        start_s=np.full(count, np.nan),
        shares=shares,
        running=np.empty(count, dtype=np.int64),
        latest=np.empty(count),
        head=np.full(partitions, -1),
        shadow_s=np.full(partitions, np.inf),
        later_gpus=np.zeros((partitions, nodes), dtype=np.int64),
        later_cpus=np.zeros((partitions, nodes), dtype=np.int64),
        later_mem=np.zeros((partitions, nodes), dtype=np.int64),
        failed=np.full(len(shapes.gpus), -1),
        refused=np.full(len(shapes.gpus), -1),
        counters=np.zeros(4, dtype=np.int64),
        chosen=np.empty(2 * int(shapes.width.max()), dtype=np.int64),
    )
    setup = Setup(hardware, shapes, jobs, spreads(rules), rules.backfill == "easy")
    queue = Queue(np.empty(count, dtype=np.int64), np.zeros(1, dtype=np.int64))
    passes = play(setup, state, ranking, queue)
    stuck = np.flatnonzero(np.isnan(state.start_s))
    if len(stuck):
        raise TraceError(f"{len(stuck)} jobs never started, the first is row {stuck[0] + 1}")
    offset = np.append(jobs.offset, total)
    return Played(state.start_s, state.start_s + jobs.runs_s, offset, shares, int(passes))


def spreads(rules: Rules) -> bool:
    """Whether to spread; otherwise the engine packs. It knows no first fit."""
    if rules.placement == "first":
        raise ValueError("first fit is played by the plain world only")
    return rules.placement == "spread"


def ranking_of(
    policy: str, prepared: Prepared, jobs: Sequence[TraceJob], natural: Natural
) -> Ranking:
    """The engine's form of a policy by name.

    Raises:
        KeyError: the engine does not know it.
    """
    asked = [r.total for r in prepared.requests]
    gpus = np.array([a.gpus for a in asked], dtype=np.float64)
    limit_s = np.array([planning_limit_s(r.time_limit_s) for r in prepared.requests])
    rank = np.zeros(len(jobs), dtype=np.int64)
    constants = np.array([F1_EPOCH_S, 1.0])
    terms = np.zeros((len(jobs), 2))
    rule = FORMULAS.get(policy, FIXED)
    if policy == "multifactor":
        constants = np.array([float(natural.age_weight), natural.max_age_s])
        share = gpus / prepared.cluster_gpus
        terms[:, 0] = natural.size_weight * (1.0 - share if natural.favor_small else share)
        terms[:, 1] = natural.partition_weight * prepared.partition_factor
    elif rule == FIXED:
        keys = _fixed_keys(policy, prepared, jobs, gpus, limit_s)
        rank[np.argsort(-keys, kind="stable")] = np.arange(len(jobs))
    return Ranking(rule, rank, limit_s, gpus, terms, constants)


def learning_ranking(prepared: Prepared, jobs: Sequence[TraceJob], natural: Natural) -> Ranking:
    """qssf, which learns as it goes: every run needs one of its own."""
    plain = ranking_of("fcfs", prepared, jobs, natural)
    return plain._replace(rule=QSSF, memory=_memory(jobs, plain.limit_s))


def _memory(jobs: Sequence[TraceJob], limit_s: FloatArray) -> Memory:
    """An empty memory with room for what these jobs will tell."""
    numbers: dict[object, int] = {}
    rows = [
        [-1 if k is None else numbers.setdefault(k, len(numbers)) for k in likened]
        for likened in (kinds(j.user, j.account, j.gpus) for j in jobs)
    ]
    limited = bool((limit_s < UNLIMITED_AS_S).all())
    return Memory(
        kinds=np.array(rows, dtype=np.int64).reshape(-1, RUNGS),
        total=np.zeros(len(numbers)),
        weight=np.zeros(len(numbers)),
        runs_s=np.zeros(0 if limited else len(jobs)),
        seen=np.zeros(1, dtype=np.int64),
    )


def _fixed_keys(
    policy: str,
    prepared: Prepared,
    jobs: Sequence[TraceJob],
    gpus: FloatArray,
    limit_s: FloatArray,
) -> FloatArray:
    if policy == CLAIRVOYANT:
        return -np.array([j.duration_s for j in jobs])
    if policy not in FIXED_ORDERS:
        raise KeyError(policy)
    nothing = np.zeros(len(gpus))
    matrix = StateMatrix(
        jobs=(),
        values=np.zeros((0, 0), dtype=np.float32),
        submit_s=prepared.jobs.submit_s,
        wait_s=nothing,
        limit_s=limit_s,
        gpus=gpus,
        cpus=nothing,
        mem_mib=nothing,
        priority=nothing,
        cff=0.0,
    )
    return BASELINES[policy].score(matrix)


def _hardware(capacity: Capacity, names: Sequence[str]) -> Hardware:
    member = np.array([capacity.members_of((name,)) for name in names])
    near = (member.astype(np.int64) @ member.T.astype(np.int64)) > 0
    np.fill_diagonal(near, True)
    return Hardware(
        row=_rows(capacity),
        gpus=capacity.total_gpus.sum(axis=0),
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
