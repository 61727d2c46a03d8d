"""What the cluster offers to each job of a queue, for all jobs at once.

The same rules as core/placement, one job at a time there, whole queues here; a property test
holds the two equal. Jobs that share one Request object and the same partitions are looked at once.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.capacity import BoolArray, Capacity, IntArray
from rltuned.core.placement import width_on
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import GpuType

FloatArray = NDArray[np.float64]

FUTURE_HORIZON_S: Final = 3_600.0
WAYS_CAP: Final = 8
_NEVER: Final = np.iinfo(np.int64).max
_CELLS: Final = 2_000_000  # (shapes x nodes) looked at in one go: bounds the memory to a few MiB


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


def shapes_of(jobs: tuple[PendingJob, ...]) -> JobShapes:
    """Group a queue by shape. Identity, not equality, of requests: hashing them costs more."""
    known: dict[tuple[int, tuple[str, ...]], int] = {}
    rows = [known.setdefault((id(job.request), job.partitions), len(known)) for job in jobs]
    firsts = dict(zip(rows, jobs, strict=True)).values()
    return JobShapes(tuple(firsts), np.array(rows, dtype=np.int64))


def survey(shapes: JobShapes, snapshot: Snapshot, capacity: Capacity) -> Survey:
    """Look at the free state once for each shape; (n,) arrays, one entry per job."""
    table = np.zeros((len(shapes.firsts), 6))
    returning = returning_gpus(snapshot, capacity)
    by_partitions: dict[tuple[str, ...], list[int]] = {}
    for at, job in enumerate(shapes.firsts):
        by_partitions.setdefault(job.partitions, []).append(at)
    step = max(1, _CELLS // max(1, len(capacity.names)))
    for partitions, members in by_partitions.items():
        member = capacity.members_of(partitions)
        for start in range(0, len(members), step):
            some = members[start : start + step]
            requests = [shapes.firsts[at].request for at in some]
            table[some] = _look(requests, member, capacity, returning)
    fits, ways, free, every, back, idle = table[shapes.rows].T
    return Survey(fits, ways, free, every, back, idle, fragmentation(capacity))


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
    table = np.zeros_like(capacity.total_gpus)
    for cell, gpus in back.items():
        table[cell] = gpus
    return table


def fragmentation(capacity: Capacity) -> float:
    """CFF in [0, 1]: how far the free GPUs of usable nodes are scraps of partly used nodes."""
    total = capacity.total_gpus.sum(axis=0)[capacity.usable]
    free = capacity.free_gpus.sum(axis=0)[capacity.usable]
    all_free = int(free.sum())
    if all_free == 0:
        return 0.0
    return float(1.0 - (free * free / np.maximum(total, 1)).sum() / all_free)


def _look(
    requests: list[Request], member: BoolArray, capacity: Capacity, returning: IntArray
) -> FloatArray:
    """(k, 6): fits, ways, free, all, returning, idle share."""
    has = member & (capacity.total_gpus > 0)
    has[-1] = member
    need = np.array([(r.total.gpus, r.total.cpus, r.total.mem_mib) for r in requests])
    accepts = _accepts(requests, capacity)
    widths = _widths(requests, need, accepts, has, capacity)  # (k, T+1)
    narrowest = widths.min(axis=1)
    exclusive = np.array([r.exclusive for r in requests])
    ways = np.zeros(len(requests))
    idle = capacity.untouched() & capacity.usable
    sums = _sums(has, idle, capacity, returning)
    for row, its in enumerate(has):
        on = np.flatnonzero((widths[:, row] == narrowest) & (narrowest < _NEVER))
        if len(on):
            at = np.flatnonzero(its)
            free = capacity.free_gpus[row][at], capacity.free_cpus[at], capacity.free_mem_mib[at]
            base = np.where(exclusive[on, None], idle[at], capacity.usable[at])
            ways[on] += _ways(need[on], narrowest[on], free, base)
    free_gpus, every, back, idle_nodes, nodes = (accepts @ sums).T
    idle_share = idle_nodes / np.maximum(nodes, 1)
    return np.column_stack([ways > 0, ways, free_gpus, every, back, idle_share])


def _sums(has: BoolArray, idle: BoolArray, capacity: Capacity, returning: IntArray) -> FloatArray:
    """(T+1, 5) free, all, returning GPUs of each type; free and all nodes. has: (T+1, N) nodes."""
    free = np.where(capacity.usable, capacity.free_gpus, 0), capacity.total_gpus
    back = np.where(capacity.usable, returning, 0)
    amounts = [np.where(has, amount, 0).sum(axis=1) for amount in (*free, back)]
    nodes = [np.count_nonzero(some, axis=1) for some in (has & idle, has)]
    return np.column_stack([*amounts, *nodes]).astype(np.float64)


def _ways(
    need: IntArray,
    wide: IntArray,
    amounts: tuple[IntArray, IntArray, IntArray],
    base: BoolArray,
) -> IntArray:
    """How many disjoint sets of `wide` nodes carry each need; 0 where not even one does. Shapes:
    need (k, 3), wide (k,), amounts three times (M,), base (k, M); returns (k,).
    """
    gpus, cpus, mem_mib = amounts
    ok = base & (cpus >= -(-need[:, 1] // wide)[:, None])
    ok &= mem_mib >= -(-need[:, 2] // wide)[:, None]
    low, larger = np.divmod(need[:, 0], wide)
    with_low = np.count_nonzero(ok & (gpus >= low[:, None]), axis=1)
    fits = with_low >= wide
    if larger.any():
        fits &= np.count_nonzero(ok & (gpus > low[:, None]), axis=1) >= larger
    return np.where(fits, with_low // wide, 0)


def _accepts(requests: list[Request], capacity: Capacity) -> BoolArray:
    """(k, T+1) which rows of GPU types each request may use."""
    known: dict[tuple[bool, tuple[GpuType, ...]], BoolArray] = {}
    rows = []
    for request in requests:
        key = (request.total.gpus > 0, request.gpu_types)
        if key not in known:
            known[key] = np.zeros(len(capacity.total_gpus), dtype=bool)
            known[key][list(capacity.accepted(request))] = True
        rows.append(known[key])
    return np.array(rows)


def _widths(
    requests: list[Request],
    need: IntArray,
    accepts: BoolArray,
    has: BoolArray,
    capacity: Capacity,
) -> IntArray:
    """(k, T+1) nodes each request gets on each type; _NEVER where that type cannot carry it."""
    asked = np.array([r.nodes or 0 for r in requests])[:, None]
    amounts = np.stack(
        [
            capacity.total_gpus,
            *(np.broadcast_to(a, has.shape) for a in (capacity.total_cpus, capacity.total_mem_mib)),
        ],
        axis=2,
    )  # (T+1, N, 3)
    most = np.where(has[:, :, None], amounts, 0).max(axis=1, initial=0)  # (T+1, 3)
    even = np.where(has[:, :, None], amounts, most[:, None, :]) == most[:, None, :]
    by_amount = -(-need[:, None, :] // np.maximum(most, 1))  # (k, T+1, 3)
    # GPUs alone decide where there are any
    fewest = np.where(need[:, :1] > 0, by_amount[:, :, 0], by_amount.max(axis=2))
    wide = np.where(asked > 0, asked, np.maximum(fewest, 1))
    carried = accepts & (wide <= np.count_nonzero(has, axis=1))
    carried &= (-(-need[:, None, :] // wide[:, :, None]) <= most).all(2)
    all_even = even.all(axis=(1, 2))
    # uneven nodes, or a share too large in CPUs or memory: look node count by node count
    unsure = accepts & ~(carried & all_even) & ((asked == 0) | ~all_even)
    for i, row in np.argwhere(unsure):
        count = width_on(requests[i], row, has[-1], capacity)
        wide[i, row], carried[i, row] = count, count > 0
    return np.where(carried, wide, _NEVER)
