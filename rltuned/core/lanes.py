"""Free nodes as one play of the queue holds them, and lanes: waiting jobs that ask for the same.

The rules are those of core/placement, but that a job whose GPUs do not divide evenly over its nodes
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

from rltuned.core.capacity import BoolArray, Capacity, IntArray
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
    """What its jobs ask for on each of `count` nodes of one of the rows. member: (N,) where Slurm
    starts them now. base: the number of the same lane where nothing is kept from it. part: (N,)
    GPUs and CPUs that are kept from it on nodes of member; None = none.
    """

    number: int
    base: int
    partition: str
    member: BoolArray
    rows: tuple[int, ...]
    count: int
    gpus: int
    cpus: int
    mem_mib: int
    exclusive: bool
    part: tuple[IntArray, IntArray] | None = None


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
    need = request.total
    gpus = ceil_div(need.gpus, count)
    if need.gpus % count and all((capacity.total_gpus[r] >= gpus).sum() < count for r in rows):
        gpus -= 1
    return Lane(
        number, number, job.partitions[0], member & capacity.usable, rows, count, gpus,
        ceil_div(need.cpus, count), ceil_div(need.mem_mib, count), request.exclusive,
    )  # fmt: skip


def taken_by(shares: Sequence[Share], capacity: Capacity) -> HeldShares | None:
    """What shares hold; None = they are on no known node."""
    known = [(s, capacity.index[s.node]) for s in shares if s.node in capacity.index]
    if not known:
        return None
    columns = [
        (at, capacity.row_on(s, at), s.taken.gpus, s.taken.cpus, s.taken.mem_mib) for s, at in known
    ]
    return HeldShares(*np.array(columns, dtype=np.int64).T)


@dataclass(slots=True)
class FreeNodes:
    """Free amounts per node: gpus (T+1, N), cpus, mem_mib (N,). total: never more than that."""

    total: Capacity
    gpus: IntArray
    cpus: IntArray
    mem_mib: IntArray

    @classmethod
    def now(cls, capacity: Capacity) -> "FreeNodes":
        """As the snapshot shows them."""
        return cls(
            capacity,
            capacity.free_gpus.copy(),
            capacity.free_cpus.copy(),
            capacity.free_mem_mib.copy(),
        )

    def take(self, held: HeldShares) -> None:
        self.gpus[held.row, held.node] -= held.gpus
        self.cpus[held.node] -= held.cpus
        self.mem_mib[held.node] -= held.mem_mib

    def give(self, held: HeldShares) -> None:
        """What jobs hold need not add up to what nodes show as used."""
        at = held.node
        most = self.total
        free = self.gpus[held.row, at] + held.gpus
        self.gpus[held.row, at] = np.minimum(free, most.total_gpus[held.row, at])
        self.cpus[at] = np.minimum(self.cpus[at] + held.cpus, most.total_cpus[at])
        self.mem_mib[at] = np.minimum(self.mem_mib[at] + held.mem_mib, most.total_mem_mib[at])

    def less(self, held: Sequence[HeldShares]) -> "FreeNodes":
        """Another one, without all these."""
        found = FreeNodes(self.total, self.gpus.copy(), self.cpus.copy(), self.mem_mib.copy())
        for one in held:
            found.take(one)
        return found

    def fits_on(self, lane: Lane, row: int) -> BoolArray:
        """(N,) nodes that have a share of a job of the lane."""
        gpus, cpus = self.gpus[row], self.cpus
        if lane.part is not None:
            gpus, cpus = gpus - lane.part[0], cpus - lane.part[1]
        found: BoolArray = lane.member & ((gpus >= lane.gpus) | (lane.gpus == 0))
        if lane.gpus:
            found &= self.total.total_gpus[row] > 0
        found &= (cpus >= lane.cpus) & (self.mem_mib >= lane.mem_mib)
        if lane.exclusive:
            most = self.total
            if lane.part is not None:
                found &= lane.part[1] == 0
            found &= (self.gpus == most.total_gpus).all(axis=0)
            found &= (self.cpus == most.total_cpus) & (self.mem_mib == most.total_mem_mib)
        return found

    def carries(self, lane: Lane) -> bool:
        return any(int(self.fits_on(lane, row).sum()) >= lane.count for row in lane.rows)

    def place(self, lane: Lane) -> HeldShares | None:
        """Where a job of the lane starts, on the fullest nodes; None = nowhere now."""
        best: tuple[list[int], IntArray, int] | None = None
        for row in lane.rows:
            columns = np.flatnonzero(self.fits_on(lane, row))
            if len(columns) < lane.count:
                continue
            # a job without GPUs looks at all GPUs that it would sit beside
            idle = self.gpus[row] if lane.gpus else self.gpus.sum(axis=0)
            if lane.count == 1:
                chosen = columns[[int(idle[columns].argmin())]]
            else:
                chosen = columns[np.argsort(idle[columns], kind="stable")[: lane.count]]
            rank = [int(idle[chosen].sum()), *sorted(chosen.tolist())]
            if best is None or rank < best[0]:
                best = rank, chosen, row
        return None if best is None else self._held(lane, best[1], best[2])

    def _held(self, lane: Lane, node: IntArray, row: int) -> HeldShares:
        rows = np.full(len(node), row)
        if lane.exclusive:
            most = self.total
            return HeldShares(
                node, rows, most.total_gpus[row, node], most.total_cpus[node],
                most.total_mem_mib[node],
            )  # fmt: skip
        amounts = (np.full(len(node), x) for x in (lane.gpus, lane.cpus, lane.mem_mib))
        return HeldShares(node, rows, *amounts)


class RunningShares:
    """What runs: shares with the ends that limits give them. Rows are used again."""

    def __init__(self, most: int) -> None:
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

    def openings(
        self, lane: Lane, free: FreeNodes, now: float
    ) -> Iterator[tuple[float, FreeNodes]]:
        """When a job of the lane could start at the latest, by time limits, and what is free then:
        now or the ends of what runs.
        """
        runs = np.flatnonzero(np.isfinite(self._ends_s))
        runs = runs[lane.member[self._cells[0, runs]]]
        runs = runs[np.argsort(self._ends_s[runs], kind="stable")]
        ends_s = self._ends_s[runs]
        steps = np.unique(ends_s)
        counts = np.searchsorted(ends_s, steps, side="right")

        def after(count: int) -> FreeNodes:
            return _with(free, self._cells[:, runs[:count]])

        if free.carries(lane):
            yield now, free
        first = bisect_left(
            range(len(steps)), True, key=lambda i: after(int(counts[i])).carries(lane)
        )
        for at in range(first, min(len(steps), first + LOOKS)):
            yield float(steps[at]), after(int(counts[at]))


def _with(free: FreeNodes, cells: IntArray) -> FreeNodes:
    """The same when those shares are free again."""
    node, row, *amounts = cells
    most, nodes = free.total, len(free.cpus)
    flat = np.bincount(row * nodes + node, weights=amounts[0], minlength=free.gpus.size)
    gpus = free.gpus + flat.reshape(free.gpus.shape).astype(np.int64)
    cpus, mem_mib = (
        np.bincount(node, weights=x, minlength=nodes).astype(np.int64) for x in amounts[1:]
    )
    return FreeNodes(
        most,
        np.minimum(gpus, most.total_gpus),
        np.minimum(free.cpus + cpus, most.total_cpus),
        np.minimum(free.mem_mib + mem_mib, most.total_mem_mib),
    )
