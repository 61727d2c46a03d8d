"""Lanes: waiting jobs that ask for the same, and what runs, as one play of the queue holds them.

Nodes are chosen by core/cluster, but that a job whose GPUs do not divide evenly over its nodes
needs the larger share on each of them. Jobs of one lane fit or do not fit together, and so one
question answers for all.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rltuned.core import cluster
from rltuned.core.capacity import Capacity
from rltuned.core.cluster import Amounts, Ask, BoolArray, IntArray, amounts, capped, less
from rltuned.core.placement import ceil_div, width
from rltuned.domain.jobs import PendingJob, Share

FloatArray = NDArray[np.float64]
_ENDED: Final = -math.inf
LOOKS: Final = 32
"""Ends of jobs at which a reservation is tried, from the first on with room but for others."""


class HeldShares(NamedTuple):
    """What a job holds: (s,) columns and rows of nodes, and amounts."""

    node: IntArray
    row: IntArray
    gpus: IntArray
    cpus: IntArray
    mem_mib: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """What its jobs ask for, of GPU types in accepts (T+1,). member: (N,) where Slurm starts them
    now. base: the number of the same lane where nothing is kept from it. part: (N,) GPUs and CPUs
    that are kept from it on nodes of member; None = none.
    """

    number: int
    base: int
    partition: str
    member: BoolArray
    accepts: BoolArray
    ask: Ask
    part: tuple[IntArray, IntArray] | None = None

    def left(self, free: Amounts) -> Amounts:
        """What it may take of what is free."""
        return free if self.part is None else less(free, *self.part)


def lane_of(
    job: PendingJob, capacity: Capacity, number: int, allowed: BoolArray | None = None
) -> Lane | None:
    """The lane of a job; None = no nodes could ever carry it. allowed: (N,) by its constraint; None
    = all are.
    """
    request = job.request
    member = capacity.members_of(job.partitions).copy()
    if allowed is not None:
        member &= allowed
    if job.required_nodes:
        member &= np.isin(capacity.names, job.required_nodes)
    if job.excluded_nodes:
        member &= ~np.isin(capacity.names, job.excluded_nodes)
    count, rows = width(request, member, capacity)
    if not count:
        return None
    need, has = request.total, capacity.total.of_type
    gpus = ceil_div(need.gpus, count)
    if need.gpus % count and all((has[r] >= gpus).sum() < count for r in rows):
        gpus -= 1
    cpus, mem_mib = ceil_div(need.cpus, count), ceil_div(need.mem_mib, count)
    accepts = np.zeros(len(has), dtype=bool)
    accepts[list(rows)] = True
    ask = Ask(gpus * count, count, gpus, 0, cpus, mem_mib, request.exclusive)
    return Lane(number, number, job.partitions[0], member & capacity.usable, accepts, ask)


def taken_by(shares: Sequence[Share], capacity: Capacity) -> HeldShares | None:
    """What shares hold; None = they are on no known node."""
    known = [(s, capacity.index[s.node]) for s in shares if s.node in capacity.index]
    if not known:
        return None
    columns = [
        (at, capacity.row_on(s, at), s.taken.gpus, s.taken.cpus, s.taken.mem_mib) for s, at in known
    ]
    return HeldShares(*np.array(columns, dtype=np.int64).T)


def carries(lane: Lane, total: Amounts, free: Amounts) -> bool:
    """Whether a job of the lane could start."""
    ask, left = lane.ask, lane.left(free)
    return any(
        cluster.ways(ask, lane.member, total, left, row)
        for row in np.flatnonzero(lane.accepts).tolist()
    )


def place(lane: Lane, total: Amounts, free: Amounts) -> HeldShares | None:
    """Where a job of the lane starts, on the fullest nodes; None = nowhere now."""
    ask, left, node = lane.ask, lane.left(free), np.empty(lane.ask.width, dtype=np.int64)
    row = cluster.place(ask, lane.accepts, lane.member, total, left, 1, node)
    if row < 0:
        return None
    each: Sequence[IntArray] = total.of_type[row, node], total.cpus[node], total.mem_mib[node]
    if not ask.exclusive:
        each = [np.full(len(node), x) for x in (ask.low, ask.cpus_each, ask.mem_each)]
    return HeldShares(node, np.full(len(node), row), *each)


def moved(free: Amounts, some: Sequence[HeldShares], sign: int) -> Amounts:
    """What is free once these end (sign 1) or begin (-1)."""
    of_type, cpus, mem_mib = (amount.copy() for amount in free[1:])
    for held in some:
        of_type[held.row, held.node] += sign * held.gpus
        cpus[held.node] += sign * held.cpus
        mem_mib[held.node] += sign * held.mem_mib
    return amounts(of_type, cpus, mem_mib)


class RunningShares:
    """What runs on nodes that have total: shares with the ends that limits give them. Rows are used
    again.
    """

    def __init__(self, total: Amounts, most: int) -> None:
        self.total = total
        self._cells = np.zeros((5, max(64, most)), dtype=np.int64)
        self._ends_s = np.full(self._cells.shape[1], _ENDED)
        self._spare = list(range(self._cells.shape[1] - 1, -1, -1))

    def start(self, held: HeldShares, limit_end_s: float) -> list[int]:
        """Rows of the job, to be handed to `end`."""
        count = len(held.node)
        while len(self._spare) < count:
            self._grow()
        rows = [self._spare.pop() for _ in range(count)]
        self._cells[:, rows] = held
        self._ends_s[rows] = limit_end_s
        return rows

    def end(self, rows: list[int]) -> HeldShares:
        self._ends_s[rows] = _ENDED
        self._spare += rows
        return HeldShares(*self._cells[:, rows])

    def _grow(self) -> None:
        size = self._cells.shape[1]
        self._cells = np.concatenate([self._cells, np.zeros_like(self._cells)], axis=1)
        self._ends_s = np.concatenate([self._ends_s, np.full(size, _ENDED)])
        self._spare += range(2 * size - 1, size - 1, -1)

    def openings(self, lane: Lane, free: Amounts, now: float) -> Iterator[tuple[float, Amounts]]:
        """When a job of the lane could start at the latest, by time limits, and what is free then:
        now or the ends of what runs.
        """
        runs = np.flatnonzero(np.isfinite(self._ends_s))
        runs = runs[lane.member[self._cells[0, runs]]]
        runs = runs[np.argsort(self._ends_s[runs], kind="stable")]
        ends_s = self._ends_s[runs]
        steps = np.unique(ends_s)
        counts = np.searchsorted(ends_s, steps, side="right")

        def after(at: int) -> Amounts:
            return self._with(free, self._cells[:, runs[: int(counts[at])]])

        if carries(lane, self.total, free):
            yield now, free
        first = bisect_left(
            range(len(steps)), True, key=lambda i: carries(lane, self.total, after(i))
        )
        for at in range(first, min(len(steps), first + LOOKS)):
            yield float(steps[at]), after(at)

    def _with(self, free: Amounts, cells: IntArray) -> Amounts:
        """The same when those shares are free again."""
        node, row, *given = cells
        nodes, size = len(free.cpus), free.of_type.size
        gpus = np.bincount(row * nodes + node, weights=given[0], minlength=size)
        more = gpus.reshape(free.of_type.shape).astype(np.int64)
        cpus, mem_mib = (
            np.bincount(node, weights=x, minlength=nodes).astype(np.int64) for x in given[1:]
        )
        found = free.gpus, free.of_type + more, free.cpus + cpus, free.mem_mib + mem_mib
        return capped(Amounts(*found), self.total)
