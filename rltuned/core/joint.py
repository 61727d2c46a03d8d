"""The first jobs of the ranking decided together: when a program is solved, and what follows.

The order of the policy stands unless the joint solution starts other jobs now than Slurm would by
itself. Then those come first, in their order, and the change is kept only when Slurm's own walk
(see core/timeline) over the new order is worth more than over the old one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.milp import Budget, Option, Solver, Weights, choose
from rltuned.core.options import Frame, build, worth
from rltuned.core.placement import Placement
from rltuned.core.sharing import Sharing, Void, obstacle, tell_to_share
from rltuned.core.timeline import Candidate, Reference, Timeline, reference, releases
from rltuned.core.ways import Bounds, Kind
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import SetOverSubscribe
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import SolverError

_EQUAL: Final = 1e-9
"""Sums of the same numbers in another order may differ by so much."""


class How(StrEnum):
    """How a joint decision came about. The value is the metric label."""

    SKIPPED = "skipped"
    """It could change nothing, so no program was solved."""
    SOLVED = "solved"
    FELL_BACK = "fell_back"
    """The solver gave no answer that may be used: the greedy one stands."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """All that steers a joint decision.

    Attributes:
        weights, budget, bounds, sharing: see there.
        steered: the world starts jobs on the nodes that we say (a simulation); otherwise only the
            order and OverSubscribe reach it.
    """

    weights: Weights = field(default_factory=Weights)
    budget: Budget = field(default_factory=Budget)
    bounds: Bounds = field(default_factory=Bounds)
    sharing: Sharing = field(default_factory=Sharing)
    steered: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided for one job.

    Attributes:
        ways: how many it has now.
        kind: None = not started within the horizon.
        starts_in_s: by time limits; 0 = now.
        why: for people.
    """

    job_id: JobId
    ways: int
    kind: Kind | None
    starts_in_s: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint decision.

    Attributes:
        how, why: see How; in words.
        order: places in the given ranking, first to run first.
        placements: jobs that start now.
        actions: flags to set.
        verdicts: of the jobs that were looked at.
        left_alone: exclusive jobs inside the scope whose flag would be void, and why.
    """

    how: How
    why: str
    order: tuple[int, ...]
    placements: tuple[Placement, ...] = ()
    actions: tuple[SetOverSubscribe, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    left_alone: tuple[tuple[JobId, Void], ...] = ()


def place_jointly(
    ranked: Sequence[PendingJob],
    fits: Sequence[bool],
    snapshot: Snapshot,
    tuning: Tuning,
    solver: Solver | None,
) -> Joint:
    """Decide which of the first jobs start now, and in which order Slurm should see them.

    Args:
        ranked: the first jobs of the ranking, first to run first.
        fits: whether each could start now, were it alone.
        snapshot: the cluster.
        tuning: the knobs.
        solver: None = there is none: the greedy answer.
    """
    obstacles = _obstacles(ranked, snapshot, tuning.sharing)
    may_share = frozenset(place for place, why in obstacles.items() if why is None)
    joint = _placed(ranked, fits, snapshot, tuning, solver, may_share=may_share)
    left_alone = [(ranked[place].job_id, why) for place, why in obstacles.items() if why]
    return replace(joint, left_alone=tuple(left_alone)) if left_alone else joint


def _placed(
    ranked: Sequence[PendingJob],
    fits: Sequence[bool],
    snapshot: Snapshot,
    tuning: Tuning,
    solver: Solver | None,
    *,
    may_share: frozenset[int],
) -> Joint:
    same = tuple(range(len(ranked)))
    if not may_share and not any(fits):
        return Joint(How.SKIPPED, "none of the first jobs fits now", same)
    capacity = Capacity.of(snapshot)
    places, candidates = _candidates(ranked, capacity)
    apart = _why_apart(candidates, capacity) if not may_share else ""
    ends = releases(snapshot, capacity)
    walked = reference(candidates, capacity, ends)
    greedy = _placements(candidates, walked)
    if not apart and not may_share and not tuning.steered:
        apart = _why_settled(candidates, walked)
    if apart:
        return Joint(How.SKIPPED, apart, same, greedy)
    shareable = {
        at: _beside_others(candidates[at]) for at, place in enumerate(places) if place in may_share
    }
    frame = Frame(candidates, shareable, capacity, ends, walked)
    instance, times = build(frame, tuning.weights, tuning.budget, tuning.bounds)
    ways = _ways_now(len(candidates), instance.options)
    if max(ways, default=0) <= 1:
        return Joint(How.SKIPPED, "every job has one way at most", same, greedy)
    if solver is None:
        return Joint(How.FELL_BACK, "no solver", same, greedy)
    try:
        chosen = choose(instance, solver, tuning.budget)
    except SolverError as error:
        return Joint(How.FELL_BACK, str(error), same, greedy)
    found = _Found(frame, {o.job: o for o in chosen}, times, tuple(ways), tuning)
    order, why = found.followed()
    return Joint(
        How.SOLVED,
        why,
        _in_ranking(order, places, len(ranked)),
        found.placements(),
        found.flags(),
        found.verdicts(),
    )


def _candidates(
    ranked: Sequence[PendingJob], capacity: Capacity
) -> tuple[list[int], list[Candidate]]:
    """Those that our model can place, with their places in the ranking."""
    members: dict[tuple[str, ...], np.ndarray] = {}
    places, found = [], []
    for place, job in enumerate(ranked):
        if job.request.outside or job.required_nodes or job.excluded_nodes:
            continue
        if job.partitions not in members:
            members[job.partitions] = capacity.members_of(job.partitions)
        places.append(place)
        found.append(Candidate(job, job.request, members[job.partitions]))
    return places, found


def _obstacles(
    ranked: Sequence[PendingJob], snapshot: Snapshot, sharing: Sharing
) -> dict[int, Void | None]:
    """Exclusive jobs inside the scope, by place, and why they may not be told to share."""
    if not sharing.partitions:
        return {}
    found = {
        place: obstacle(job, snapshot, sharing)
        for place, job in enumerate(ranked)
        if job.request.exclusive
    }
    return {place: why for place, why in found.items() if why is not Void.NOT_IN_SCOPE}


def _beside_others(one: Candidate) -> Candidate:
    return replace(one, request=replace(one.request, exclusive=False))


def _why_apart(candidates: Sequence[Candidate], capacity: Capacity) -> str:
    """Why the jobs cannot be in each other's way; "" = they can."""
    if len(candidates) <= 1:
        return "one job at most can be placed"
    used = np.zeros(len(capacity.names), dtype=np.int64)
    reach: dict[tuple[object, ...], np.ndarray] = {}
    for one in candidates:
        asks = one.request
        key = (one.job.partitions, asks.gpu_types, asks.total.gpus > 0)
        if key not in reach:
            has = (capacity.total_gpus[list(capacity.accepted(asks))] > 0).any(axis=0)
            reach[key] = one.member & capacity.usable & (has if asks.total.gpus else True)
        used += reach[key]
        if used.max(initial=0) > 1:
            return ""
    return "no two jobs can use the same node"


def _why_settled(candidates: Sequence[Candidate], walked: Reference) -> str:
    """Why the order cannot matter now; "" = it can."""
    if len(walked.starts) == len(candidates):
        return "all of the first jobs start as it is"
    if not walked.starts:
        return "none of the first jobs can start now"
    return ""


def _placements(candidates: Sequence[Candidate], walked: Reference) -> tuple[Placement, ...]:
    return tuple(
        Placement(candidates[at].job.job_id, shares) for at, shares in walked.starts.items()
    )


def _ways_now(count: int, options: Sequence[Option]) -> list[int]:
    ways = [0] * count
    for option in options:
        ways[option.job] += option.slot == 0
    return ways


def _in_ranking(order: Sequence[int], places: Sequence[int], count: int) -> tuple[int, ...]:
    """The candidates' new order among the places that they had; other jobs keep theirs."""
    found = list(range(count))
    for place, at in zip(places, order, strict=True):
        found[place] = places[at]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Found:
    """A solution and what it means."""

    frame: Frame
    chosen: Mapping[int, Option]
    times: Timeline
    ways: tuple[int, ...]
    tuning: Tuning

    @property
    def now(self) -> list[int]:
        return sorted(at for at, option in self.chosen.items() if option.slot == 0)

    def placements(self) -> tuple[Placement, ...]:
        jobs = self.frame.candidates
        return tuple(Placement(jobs[at].job.job_id, self.chosen[at].way.shares) for at in self.now)

    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple(self._verdict(at) for at in range(len(self.frame.candidates)))

    def followed(self) -> tuple[tuple[int, ...], str]:
        """The candidates in the order in which Slurm starts what was found, and why."""
        given = tuple(range(len(self.frame.candidates)))
        if set(self.now) == set(self.frame.reference.starts):
            return given, "starts the same jobs as the ranking by itself"
        rest = [at for at in given if at not in self.now]
        ranked_first = (*self.now, *rest)
        if self.tuning.steered:
            return ranked_first, "starts the chosen jobs on the chosen nodes"
        large_first = (*sorted(self.now, key=self._size), *rest)
        best, most = given, self._worth(given)
        for order in (ranked_first, large_first):
            gained = self._worth(order)
            if gained > most + _EQUAL:
                best, most = order, gained
        if best == given and not self.flags():
            return given, "Slurm's own placement would not follow: the ranking stays"
        return best, "other jobs start now than by the ranking alone"

    def flags(self) -> tuple[SetOverSubscribe, ...]:
        """Exclusive jobs that are to share, now or when their turn comes.

        Not only those that start now: when a node comes free between two looks, Slurm would give
        it to the next exclusive job whole.
        """
        return tuple(
            tell_to_share(one.job)
            for at, one in enumerate(self.frame.candidates)
            if self._shares(at)
        )

    def _worth(self, order: Sequence[int]) -> float:
        """What Slurm's own walk over an order is worth, flags set as decided."""
        jobs = [
            _beside_others(self.frame.candidates[at])
            if self._shares(at)
            else self.frame.candidates[at]
            for at in order
        ]
        walked = reference(jobs, self.frame.capacity, self.frame.ends)
        gpus = int(self.frame.capacity.total_gpus.sum())
        weights = self.tuning.weights
        return math.fsum(worth(jobs[i], order[i], gpus, weights) for i in walked.starts)

    def _shares(self, at: int) -> bool:
        option = self.chosen.get(at)
        return option is not None and option.way.kind is Kind.SHARE

    def _size(self, at: int) -> tuple[int, int, int]:
        total = self.frame.candidates[at].request.total
        return -total.gpus, -total.cpus, at

    def _verdict(self, at: int) -> Verdict:
        option, job_id = self.chosen.get(at), self.frame.candidates[at].job.job_id
        if option is None:
            return Verdict(job_id, self.ways[at], None, None, "not within the horizon")
        offset_s = self.times.offsets_s[option.slot]
        kind, place = option.way.kind, ", ".join(s.node for s in option.way.shares)
        by_itself = "" if at in self.frame.reference.starts or offset_s else "; not by itself"
        why = f"{kind} on {place}{by_itself}"
        if kind is Kind.SHARE:
            why += "; its exclusive node would keep others waiting"
        return Verdict(job_id, self.ways[at], kind, offset_s, why)
