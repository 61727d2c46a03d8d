"""The first jobs of the ranking decided together: when a program is solved, and what follows.

The order of the policy stands unless the joint solution starts other jobs now than Slurm would by
itself. Then those come first, in their order, and the change is kept only when Slurm's own walk
(see core/timeline) over the new order is worth more than over the old one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, partial
from typing import Final

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.milp import Budget, Option, Solver, Weights, choose
from rltuned.core.options import Frame, build
from rltuned.core.placement import Placement, place_request
from rltuned.core.sharing import Sharing, Void, obstacle, tell_to_share
from rltuned.core.solution import JobDecision, Solution, beside_others
from rltuned.core.timeline import Candidate, Reference, ResourceRelease, reference, releases
from rltuned.core.turns import Waiting, told_ahead
from rltuned.core.ways import SearchBounds
from rltuned.domain.jobs import PendingJob, Share
from rltuned.domain.plan import SetOverSubscribe
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import SolverError

TOLD_AHEAD: Final = "told to share before its turn, as alone on a node it would keep others waiting"


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
    bounds: SearchBounds = field(default_factory=SearchBounds)
    sharing: Sharing = field(default_factory=Sharing)
    steered: bool = False


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
    verdicts: tuple[JobDecision, ...] = ()
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
    left_alone = tuple((ranked[place].job_id, why) for place, why in obstacles.items() if why)
    may_share = frozenset(place for place, why in obstacles.items() if why is None)
    if not may_share and not any(fits):
        why = "none of the first jobs fits now"
        return Joint(How.SKIPPED, why, tuple(range(len(ranked))), left_alone=left_alone)
    scene = _Scene.of(ranked, snapshot, may_share)
    joint = _placed(scene, tuning, solver)
    if scene.shareable:
        joint = _with_turns(joint, scene, tuning.weights)
    return replace(joint, left_alone=left_alone)


@dataclass(frozen=True, slots=True)
class _Scene:
    """The jobs that our model can place, and the cluster that they meet.

    Attributes:
        count: jobs looked at, those that it cannot place included.
        places: of the candidates among them.
        shareable: exclusive candidates that may be told to share, as they are then.
        ends: of running jobs; worked out once, when first asked for.
    """

    count: int
    places: Sequence[int]
    candidates: Sequence[Candidate]
    shareable: Mapping[int, Candidate]
    capacity: Capacity
    ends: Callable[[], Sequence[ResourceRelease]]

    @classmethod
    def of(
        cls, ranked: Sequence[PendingJob], snapshot: Snapshot, may_share: frozenset[int]
    ) -> "_Scene":
        capacity = Capacity.of(snapshot)
        places, candidates = _candidates(ranked, capacity)
        shareable = {
            at: beside_others(candidates[at])
            for at, place in enumerate(places)
            if place in may_share
        }
        ends = cache(partial(releases, snapshot, capacity))
        return cls(len(ranked), places, candidates, shareable, capacity, ends)


def _with_turns(joint: Joint, scene: _Scene, weights: Weights) -> Joint:
    """The same, and flags for those whose turn may come before the next look."""
    at_of = {place: at for at, place in enumerate(scene.places)}
    order = [at_of[place] for place in joint.order if place in at_of]
    jobs = [scene.candidates[at].job for at in order]
    flagged = {action.target.job_id for action in joint.actions}
    starts = {placement.job_id for placement in joint.placements}
    free = scene.capacity.copy()
    for placement in joint.placements:
        free.take(placement.shares)
    told = {i: scene.shareable[at] for i, at in enumerate(order) if at in scene.shareable}
    waiting = Waiting(
        candidates=[
            told[i] if jobs[i].job_id in flagged else scene.candidates[at]
            for i, at in enumerate(order)
        ],
        shareable={i: one for i, one in told.items() if jobs[i].job_id not in flagged},
        free=free,
        ends=scene.ends(),
    )
    ahead = told_ahead(waiting, {i for i, job in enumerate(jobs) if job.job_id in starts}, weights)
    if not ahead:
        return joint
    actions = (*joint.actions, *(tell_to_share(jobs[i]) for i in sorted(ahead)))
    return replace(
        joint,
        actions=actions,
        why=f"{joint.why}; {len(ahead)} are told to share before their turn",
        verdicts=_told(joint.verdicts, [jobs[i].job_id for i in sorted(ahead)]),
    )


def _told(verdicts: Sequence[JobDecision], told: Sequence[JobId]) -> tuple[JobDecision, ...]:
    """The verdicts, with what is to be said of jobs that are told to share before their turn."""
    known = {verdict.job_id: verdict for verdict in verdicts}
    for job_id in told:
        one = known.get(job_id, JobDecision(job_id, 0, None, None, "no node for it now"))
        known[job_id] = replace(one, why=f"{one.why}; {TOLD_AHEAD}")
    return tuple(known.values())


def _placed(scene: _Scene, tuning: Tuning, solver: Solver | None) -> Joint:
    same = tuple(range(scene.count))
    candidates, capacity, shareable = scene.candidates, scene.capacity, scene.shareable
    apart = _why_apart(candidates, capacity) if not shareable else ""
    if apart:
        return Joint(How.SKIPPED, apart, same, _each_for_itself(candidates, capacity))
    walked = reference(candidates, capacity, scene.ends)
    greedy = _placements(candidates, walked.starts)
    settled = _why_settled(candidates, walked)
    if settled and not shareable and not tuning.steered:
        return Joint(How.SKIPPED, settled, same, greedy)
    frame = Frame(candidates, shareable, capacity, scene.ends(), walked)
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
    found = Solution(
        frame=frame,
        chosen={o.job: o for o in chosen},
        times=times,
        ways=tuple(ways),
        weights=tuning.weights,
        steered=tuning.steered,
    )
    order, why = found.followed()
    return Joint(
        How.SOLVED,
        why,
        _in_ranking(order, scene.places, scene.count),
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
            reach[key] = one.reach(capacity)
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


def _each_for_itself(candidates: Sequence[Candidate], capacity: Capacity) -> tuple[Placement, ...]:
    found = {
        at: shares
        for at, one in enumerate(candidates)
        if (shares := place_request(one.request, one.member, capacity, "pack")) is not None
    }
    return _placements(candidates, found)


def _placements(
    candidates: Sequence[Candidate], starts: Mapping[int, tuple[Share, ...]]
) -> tuple[Placement, ...]:
    return tuple(Placement(candidates[at].job.job_id, shares) for at, shares in starts.items())


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
