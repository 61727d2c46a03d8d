"""Who competes with whom: the pools of a queue on the nodes that Slurm starts jobs on now."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.backlog import backlogs_s, places
from rltuned.core.capacity import Capacity
from rltuned.core.cluster import BoolArray, IntArray, idle, ways
from rltuned.core.placement import ask_of, width
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pools:
    """Who competes with whom: pool (n,) of each job, user (n,) and their number, overlap (P, P),
    gpus (P,) usable; tasks (n,) as waiting_tasks.
    """

    pool: IntArray
    user: IntArray
    users: int
    overlap: FloatArray
    gpus: FloatArray
    tasks: FloatArray

    def backlogs_s(self, area: FloatArray) -> FloatArray:
        """(n,) seconds. area: (n,) of one task each."""
        work = self.tasks * area
        return backlogs_s(work, self.pool, self.overlap, self.gpus, self.user, self.users)

    def places(self, key: FloatArray) -> FloatArray:
        """(n,) from 0 to 1 by a key, smaller first."""
        order = np.argsort(key, kind="stable")
        return places(key, order, self.tasks, self.pool, self.overlap, self.user, self.users)


def pools_of(
    jobs: Sequence[PendingJob],
    capacity: Capacity,
    room: Mapping[JobId, int],
    where: Mapping[JobId, tuple[str, ...]] = MappingProxyType({}),
) -> Pools:
    """The pools of a queue on the nodes that Slurm starts jobs on now. room: of
    Snapshot.room_in_arrays. where: see core/features.encode.
    """
    numbers: dict[tuple[tuple[str, ...], tuple[int, ...]], int] = {}
    pool = np.empty(len(jobs), dtype=np.int64)
    for at, job in enumerate(jobs):
        partitions = where.get(job.job_id, job.partitions)
        key = partitions, capacity.accepted(job.request)
        pool[at] = numbers.setdefault(key, len(numbers))
    units = [units_of(*key, capacity) for key in numbers]
    table = np.array(units).reshape(len(numbers), len(capacity.names))
    overlap, gpus = shared(table * capacity.usable)
    user, users = numbered([job.user for job in jobs])
    return Pools(pool, user, users, overlap, gpus, waiting_tasks(jobs, room))


def waiting_tasks(jobs: Iterable[PendingJob], room: Mapping[JobId, int]) -> FloatArray:
    """(n,) w of core/backlog: how many jobs each record stands for. room: how many more tasks of
    each bounded array may start, which its records share in their order.
    """
    left, found = dict(room), []
    for job in jobs:
        array = job.array
        tasks = 1 if array is None else max(1, array.tasks)
        if array is not None and array.array_job_id in left:
            tasks = min(tasks, left[array.array_job_id])
            left[array.array_job_id] -= tasks
        found.append(tasks)
    return np.array(found, dtype=np.float64)


def numbered(names: Sequence[str]) -> tuple[IntArray, int]:
    """(n,) a number for each user, and how many; each job without one is a user of its own. None
    has one: 0 users, as nothing tells them apart.
    """
    known: dict[str, int] = {}
    found = [known.setdefault(name, len(known)) if name else -1 for name in names]
    if not known:
        return np.zeros(len(names), dtype=np.int64), 0
    users = len(known)
    numbers = np.array(found, dtype=np.int64)
    strangers = np.flatnonzero(numbers < 0)
    numbers[strangers] = users + np.arange(len(strangers))
    return numbers, users + len(strangers)


def units_of(partitions: tuple[str, ...], rows: tuple[int, ...], capacity: Capacity) -> FloatArray:
    """(N,) GPUs of each node of a pool: of the types it accepts, or for a job without GPUs what its
    CPUs stand for.
    """
    member = capacity.members_of(partitions)
    if rows != (len(capacity.gpu_types),):
        gpus: IntArray = capacity.total.of_type[list(rows)].sum(axis=0) * member
        return gpus.astype(np.float64)
    found: FloatArray = capacity.total.cpus * member / cpus_per_unit(member, capacity)
    return found


def shared(units: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Overlap (P, P) and GPUs (P,) of pools with units (P, N); see the head of this file."""
    gpus: FloatArray = units.sum(axis=1)
    common = (units > 0).astype(np.float64) @ units.T
    overlap: FloatArray = common / np.maximum(gpus, 1e-9)
    return overlap, gpus


def cpus_per_unit(member: BoolArray, capacity: Capacity) -> float:
    """CPUs per GPU of some nodes, per node where they have no GPU; at least 1."""
    cpus, gpus = (int(x[member].sum()) for x in (capacity.total.cpus, capacity.total.gpus))
    return max(1.0, cpus / max(1, gpus or int(member.sum())))


# How large a job is: what it takes away from others.


MOST_OF_A_NODE: Final = 0.5
"""A job that asks for more of a node's CPUs or memory than this makes GPUs unusable to others."""


class Sizes:
    """What jobs take away from others, in GPUs, on one cluster; for a job without GPUs on nodes
    that have none, in nodes.

    A job takes the GPUs that it asks for. An exclusive one takes all of its nodes. One that asks
    for more than half of a node's CPUs or memory takes that part of the node's GPUs, as no other
    job can use them; a job without GPUs takes its part whatever it is.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._nodes: dict[tuple[tuple[str, ...], tuple[int, ...]], FloatArray] = {}

    def of(self, request: Request, partitions: tuple[str, ...]) -> float:
        """GPUs, at least 1."""
        asked = request.size
        units, cpus, mem_mib, most_gpus, most_cpus, most_mem = self._node(request, partitions)
        fewest = (asked.gpus / most_gpus, asked.cpus / most_cpus, asked.mem_mib / most_mem)
        width = request.nodes or max(1, *(int(np.ceil(part)) for part in fewest))
        part = max(asked.cpus / cpus, asked.mem_mib / mem_mib) / width
        if request.exclusive:
            part = 1.0
        elif asked.gpus and part <= MOST_OF_A_NODE:
            part = 0.0
        return float(max(asked.gpus, width * units * min(part, 1.0), 1.0))

    def _node(self, request: Request, partitions: tuple[str, ...]) -> FloatArray:
        """(6,) mean GPUs, CPUs and MiB of a node that the job could run on, and the most of each.
        Where no node has GPUs, one node is one unit.
        """
        capacity = self._capacity
        key = partitions, capacity.accepted(request)
        if key not in self._nodes:
            has = units_of(*key, capacity) > 0
            if not has.any():
                has = np.ones(len(capacity.names), dtype=bool)
            gpus = capacity.total.gpus[has]
            columns = (gpus, capacity.total.cpus[has], capacity.total.mem_mib[has])
            table = [float(np.mean(c)) if len(c) else 0.0 for c in columns]
            table += [float(np.max(c, initial=0)) for c in columns]
            if not table[0]:
                table[0] = 1.0
            self._nodes[key] = np.maximum(np.array(table, dtype=np.float64), [1e-9] * 3 + [1.0] * 3)
        return self._nodes[key]


# What the cluster offers to each job of a queue, for all jobs at once.
#
# Jobs that share one Request object and the same nodes are looked at once.


FUTURE_HORIZON_S: Final = 3_600.0
WAYS_CAP: Final = 8


@dataclass(frozen=True, slots=True)
class Survey:
    """Per job, shape (n,); cff is one number for the cluster.

    fits: 1.0 if it could start now. ways: disjoint placements of its width now. free_gpus,
    all_gpus, returning_gpus: of the types it accepts on the nodes of its partitions. idle_share:
    nodes it may use that are wholly free, as a share of all it may use.
    """

    fits: FloatArray
    ways: FloatArray
    free_gpus: FloatArray
    all_gpus: FloatArray
    returning_gpus: FloatArray
    idle_share: FloatArray
    cff: float


@dataclass(frozen=True, slots=True)
class JobShapes:
    """The different jobs of a queue. firsts: a job of each shape. rows: (n,) the shapes."""

    firsts: tuple[PendingJob, ...]
    rows: IntArray


def shapes_of(jobs: tuple[PendingJob, ...], capacity: Capacity) -> JobShapes:
    """Group a queue by shape. Identity, not equality, of requests: hashing them costs more."""
    known: dict[tuple[object, ...], int] = {}
    kept = capacity.kept
    rows = [
        known.setdefault(
            (id(job.request), job.partitions, job.required_nodes, job.excluded_nodes, kept.of(job)),
            len(known),
        )
        for job in jobs
    ]
    firsts = dict(zip(rows, jobs, strict=True)).values()
    return JobShapes(tuple(firsts), np.array(rows, dtype=np.int64))


def survey(shapes: JobShapes, snapshot: Snapshot, capacity: Capacity) -> Survey:
    """Look at the free state once for each shape; (n,) arrays, one entry per job."""
    table = np.zeros((len(shapes.firsts), 6))
    returning = returning_gpus(snapshot, capacity)
    together: dict[tuple[object, ...], list[int]] = {}
    for at, job in enumerate(shapes.firsts):
        nodes = job.partitions, job.required_nodes, job.excluded_nodes, job.request.outside
        together.setdefault((*nodes, capacity.kept.of(job)), []).append(at)
    for members in together.values():
        first = shapes.firsts[members[0]]
        left = capacity.without(capacity.kept.of(first))
        member = left.wanted_by(first)
        sums = _sums(member, left, returning)
        for at in members:
            table[at] = _look(shapes.firsts[at].request, member, left, sums)
    fits, some, free, every, back, idle_share = table[shapes.rows].T
    return Survey(fits, some, free, every, back, idle_share, fragmentation(capacity))


def returning_gpus(snapshot: Snapshot, capacity: Capacity) -> IntArray:
    """(T+1, N) GPUs that running jobs must return within the horizon, by their time limits."""
    back: dict[tuple[int, int], int] = {}
    horizon = snapshot.taken_at + FUTURE_HORIZON_S
    for job in snapshot.running:
        limit_s = job.request.time_limit_s
        if limit_s is None or job.started_at + limit_s > horizon:
            continue
        for share in job.shares:
            # a node that vanished from the answer takes its GPUs with it
            column = capacity.index.get(share.node)
            if column is not None and share.taken.gpus:
                cell = capacity.row_on(share, column), column
                back[cell] = back.get(cell, 0) + share.taken.gpus
    table = np.zeros_like(capacity.total.of_type)
    for cell, gpus in back.items():
        table[cell] = gpus
    return table


def fragmentation(capacity: Capacity) -> float:
    """CFF in [0, 1]: how far the free GPUs of usable nodes are scraps of partly used nodes."""
    total = capacity.total.gpus[capacity.usable]
    free = capacity.free.gpus[capacity.usable]
    all_free = int(free.sum())
    if all_free == 0:
        return 0.0
    return float(1.0 - (free * free / np.maximum(total, 1)).sum() / all_free)


def _sums(member: BoolArray, capacity: Capacity, returning: IntArray) -> IntArray:
    """(T+1, 5) of the nodes with GPUs of each type, in the last row of all: free, all, returning
    GPUs; idle and all nodes. What is free counts where Slurm starts jobs.
    """
    has = member & (capacity.total.of_type > 0)
    has[-1] = member
    usable = has & capacity.usable
    alone = usable & idle(capacity.total, capacity.free)
    return np.stack(
        [
            (capacity.free.of_type * usable).sum(axis=1),
            (capacity.total.of_type * has).sum(axis=1),
            (returning * usable).sum(axis=1),
            alone.sum(axis=1),
            has.sum(axis=1),
        ],
        axis=1,
    )


def _look(request: Request, member: BoolArray, capacity: Capacity, sums: IntArray) -> FloatArray:
    """(6,): fits, ways, free, all, returning, idle share."""
    count, rows = width(request, member, capacity)
    some = 0
    if count:
        ask, now = ask_of(request, count), member & capacity.usable
        some = sum(ways(ask, now, capacity.total, capacity.free, row) for row in rows)
    free, every, back, alone, nodes = sums[list(capacity.accepted(request))].sum(axis=0)
    return np.array([some > 0, some, free, every, back, alone / max(nodes, 1)], dtype=np.float64)
