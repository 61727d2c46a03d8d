"""From a queue's first jobs to the problem that is solved: slots, options and their gains."""

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rltuned.core.backfill import BackfillResult, JobEnd, QueuedJob
from rltuned.core.capacity import Capacity
from rltuned.core.milp.candidates import (
    Candidate,
    CandidateGenerator,
    PlacementKind,
    SearchBounds,
    Widths,
)
from rltuned.core.milp.costs import Cost, CostModel

NOW: Final = SearchBounds()
LATER: Final = SearchBounds(most=2, max_patterns=16)
"""Packing and spreading alone: at slots after now they hold a place that the next cycle plans
again."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What the solution is good for; only ratios count. start: of the rank, as (1 + r) ** -order.
    later: what a start at the next slot is worth of one now. occupancy: GPUs put to work, a share
    of all.

    fragmentation to sharing: see `Cost`; times the weight of the last rank, so that they choose
    between candidates and not between jobs. `sharing` exceeds what a whole node costs by itself: a
    job loses its node only when others start earlier by it. opening: due for each idle node that is
    begun. stay: for other nodes than best fit would choose, where a job would start by itself.
    """

    start: float = 1.0
    order: float = 1.0
    later: float = 0.5
    occupancy: float = 0.5
    fragmentation: float = 0.02
    imbalance: float = 0.05
    waste: float = 0.2
    sharing: float = 0.1
    opening: float = 0.5
    stay: float = 0.1

    def __post_init__(self) -> None:
        parts = (self.start, self.order, self.occupancy, *self.costs(), self.opening, self.stay)
        if min(parts) < 0 or not 0 <= self.later <= 1:
            raise ValueError(f"weights must not be negative, and later at most 1: {self}")

    def costs(self) -> Cost:
        return Cost(self.fragmentation, self.imbalance, self.waste, self.sharing)

    def of_rank(self, rank: int) -> float:
        """How much the start of the job at a rank (from 0) counts."""
        return float((1.0 + rank) ** -self.order)

    def of_start(self, job: QueuedJob, rank: int, all_gpus: int) -> float:
        """What it is worth that a job starts now."""
        gpus = job.request.total.gpus / max(1, all_gpus)
        return self.start * self.of_rank(rank) + self.occupancy * gpus


@dataclass(frozen=True, slots=True)
class Budget:
    """What a solve may cost. wall_s: seconds until the solver is ended. memory_mib: address space.
    horizon_s: how far ahead jobs are planned. max_slots: moments looked at, now included.
    """

    wall_s: float = 1.0
    memory_mib: int = 1_024
    horizon_s: float = 14_400.0
    max_slots: int = 4

    def __post_init__(self) -> None:
        if not (self.wall_s > 0 and self.horizon_s > 0):
            raise ValueError(f"times must be positive: {self}")
        if self.memory_mib < 1 or self.max_slots < 1:
            raise ValueError(f"memory_mib and max_slots must be at least 1: {self}")


@dataclass(frozen=True, slots=True)
class Queue:
    """The jobs that can be placed, in order, and the cluster. shareable: exclusive jobs as they are
    once set to share, by position. capacity: free now. ends: of running jobs, soonest first.
    """

    jobs: Sequence[QueuedJob]
    shareable: Mapping[int, QueuedJob]
    capacity: Capacity
    ends: Callable[[], Sequence[JobEnd]]


@dataclass(frozen=True, slots=True)
class Option:
    """One job started by one candidate at one slot. last: the last slot at which it runs."""

    job: int
    candidate: Candidate
    slot: int
    last: int
    gain: float


@dataclass(frozen=True, slots=True)
class Problem:
    """One decision to be made: at most one option per job.

    offsets_s: of every slot, from now. capacities: free at every slot, if no job is started.
    opening: cost of each idle node that an option of slot 0 begins. deadlines: (job, slot) by which
    it must have started, as it would without rltuned.
    """

    options: tuple[Option, ...]
    offsets_s: tuple[float, ...]
    capacities: tuple[Capacity, ...]
    opening: float = 0.0
    deadlines: tuple[tuple[int, int], ...] = ()


def earliness(offset_s: float, weights: Weights, budget: Budget) -> float:
    """1 now; from `later` on falling, to half of it at the horizon."""
    if offset_s == 0:
        return 1.0
    return weights.later * budget.horizon_s / (budget.horizon_s + offset_s)


def build_problem(
    queue: Queue,
    alone: BackfillResult,
    weights: Weights,
    budget: Budget,
    bounds: SearchBounds = NOW,
) -> Problem:
    """The problem of a queue. alone: what Slurm would start by itself."""
    promised = [r for r in alone.reservations if r.shares is not None]
    offsets_s = _offsets_s(queue.ends(), [r.at_s for r in promised], budget)
    capacities = _capacities(queue.capacity, queue.ends(), offsets_s)
    costs = CostModel.of([one.request for one in queue.jobs], queue.capacity)
    options = _Options(queue, alone, weights, budget, offsets_s)
    widths: Widths = {}
    for slot, capacity in enumerate(capacities):
        generator = CandidateGenerator(capacity, costs, LATER if slot else bounds, widths)
        for at in range(len(queue.jobs)):
            options.add(at, slot, generator)
    deadlines = []
    for promise in promised:
        slot = offsets_s.index(promise.at_s)
        shares = promise.shares or ()
        options.offer(promise.job, slot, Candidate(PlacementKind.PACK, shares, Cost()))
        deadlines.append((promise.job, slot))
    return Problem(
        options=tuple(options.found.values()),
        offsets_s=offsets_s,
        capacities=capacities,
        opening=weights.fragmentation * weights.opening * weights.of_rank(len(queue.jobs) - 1),
        deadlines=tuple(deadlines),
    )


def _offsets_s(
    ends: Sequence[JobEnd], promised_s: Sequence[float], budget: Budget
) -> tuple[float, ...]:
    """Slots: now, the promised starts, and ends within the horizon, evenly by their number."""
    wanted = set(promised_s)
    soon = sorted({end.at_s for end in ends if end.at_s <= budget.horizon_s} - wanted)
    count = max(budget.max_slots, 1 + len(promised_s)) - 1 - len(wanted)
    if len(soon) > count:
        soon = [soon[i * len(soon) // count] for i in range(count)]
    return tuple(sorted({0.0, *wanted, *soon}))


def _capacities(
    capacity: Capacity, ends: Sequence[JobEnd], offsets_s: Sequence[float]
) -> tuple[Capacity, ...]:
    """What is free at every slot if nothing new starts."""
    free, found, next_end = capacity.copy(), [], 0
    for offset_s in offsets_s:
        while next_end < len(ends) and ends[next_end].at_s <= offset_s:
            free.give(ends[next_end].shares)
            next_end += 1
        free.cap()
        found.append(free.copy())
    return tuple(found)


class _Options:
    """Collects options; one per job, slot and set of shares."""

    def __init__(
        self,
        queue: Queue,
        alone: BackfillResult,
        weights: Weights,
        budget: Budget,
        offsets_s: Sequence[float],
    ) -> None:
        self.found: dict[tuple[object, ...], Option] = {}
        self._queue = queue
        self._alone = alone.starts
        self._weights = weights
        self._costs = weights.costs()
        self._last = weights.of_rank(len(queue.jobs) - 1)
        self._offsets_s = offsets_s
        self._earliness = [earliness(at_s, weights, budget) for at_s in offsets_s]
        self._all_gpus = int(queue.capacity.total_gpus.sum())

    def add(self, at: int, slot: int, generator: CandidateGenerator) -> None:
        one = self._queue.jobs[at]
        for candidate in generator.candidates(one.request, one.member, turn=at):
            self.offer(at, slot, candidate)
        if slot == 0 and at in self._alone and (at, slot, self._alone[at]) not in self.found:
            self.offer(at, slot, generator.costed(one.request, self._alone[at]))
        beside = self._queue.shareable.get(at)
        if beside is not None:
            for candidate in generator.candidates(beside.request, beside.member, turn=at):
                cost = candidate.cost._replace(sharing=1.0)
                self.offer(at, slot, replace(candidate, kind=PlacementKind.SHARE, cost=cost))

    def offer(self, at: int, slot: int, candidate: Candidate) -> None:
        key = (at, slot, candidate.shares)
        if key in self.found:
            return
        one = self._queue.jobs[at]
        gain = self._weights.of_start(one, at, self._all_gpus) * self._earliness[slot]
        gain -= self._last * math.fsum(map(operator.mul, self._costs, candidate.cost))
        # to be sent elsewhere than best fit would start it; to share has its own cost
        by_itself = self._alone.get(at, candidate.shares) if slot == 0 else candidate.shares
        if candidate.shares != by_itself and candidate.kind is not PlacementKind.SHARE:
            gain -= self._last * self._weights.stay
        end_s = self._offsets_s[slot] + one.limit_s
        last = max(slot, bisect_left(self._offsets_s, end_s) - 1)
        self.found[key] = Option(at, candidate, slot, last, round(gain, 9))
