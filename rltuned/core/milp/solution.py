"""The first jobs of the ranking placed together: when a program is solved, and what it means.

No number follows from it: the order stays that of the delays. What reaches Slurm are the flags of
exclusive jobs that are to share; where the chosen nodes are not those that Slurm's own pass would
give, the reason says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, partial
from typing import Final

import numpy as np

from rltuned.core.backfill import BackfillResult, easy_backfill, job_ends, placeable
from rltuned.core.capacity import Capacity
from rltuned.core.milp.candidates import PlacementKind
from rltuned.core.milp.model import Solver, choose
from rltuned.core.milp.problem import Budget, Option, Problem, Queue, Weights, build_problem
from rltuned.core.milp.sharing import (
    Sharing,
    SharingBlocker,
    as_shared,
    blocker,
    share_action,
    sharing_lookahead,
)
from rltuned.core.placement import Placement, place_request
from rltuned.domain.jobs import PendingJob, Share
from rltuned.domain.plan import SetOverSubscribe
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import SolverError

AHEAD: Final = "set to share before its turn, as alone on a node it would keep others waiting"


class SolveStatus(StrEnum):
    """How a joint placement came about. The value is the metric label."""

    SKIPPED = "skipped"
    """It could change nothing, so no program was solved."""
    SOLVED = "solved"
    FELL_BACK = "fell_back"
    """The solver gave no answer that may be used: the greedy one stands."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """All that steers a joint placement. steered: the world starts jobs on the chosen nodes."""

    weights: Weights = field(default_factory=Weights)
    budget: Budget = field(default_factory=Budget)
    sharing: Sharing = field(default_factory=Sharing)
    steered: bool = False


@dataclass(frozen=True, slots=True)
class JobDecision:
    """What was decided for one job. ways: candidates now. kind: None = not started within the
    horizon. starts_in_s: by time limits; 0 = now. why: for people.
    """

    job_id: JobId
    ways: int
    kind: PlacementKind | None
    starts_in_s: float | None
    why: str


@dataclass(frozen=True, slots=True)
class JointPlacement:
    """A joint placement. placements: jobs that start now. actions: flags to set. verdicts: of the
    jobs looked at. left_alone: exclusive jobs in scope whose flag would be void, and why.
    """

    how: SolveStatus
    why: str
    placements: tuple[Placement, ...] = ()
    actions: tuple[SetOverSubscribe, ...] = ()
    verdicts: tuple[JobDecision, ...] = ()
    left_alone: tuple[tuple[JobId, SharingBlocker], ...] = ()


def place_jointly(
    ranked: Sequence[PendingJob],
    fits: Sequence[bool],
    snapshot: Snapshot,
    tuning: Tuning,
    solver: Solver | None,
) -> JointPlacement:
    """Decide which of the first jobs start now, and which exclusive ones share their nodes. ranked:
    first to run first. fits: whether each could start now alone. solver: None = greedy.
    """
    blockers = _blockers(ranked, snapshot, tuning.sharing)
    left_alone = tuple((job_id, why) for job_id, why in blockers.items() if why)
    if not any(fits) and None not in blockers.values():
        why = "none of the first jobs fits now"
        return JointPlacement(SolveStatus.SKIPPED, why, left_alone=left_alone)
    capacity = Capacity.of(snapshot)
    jobs = [one for job in ranked if (one := placeable(job, capacity)) is not None]
    shareable = {
        at: as_shared(one)
        for at, one in enumerate(jobs)
        if blockers.get(one.job.job_id, SharingBlocker.NOT_BY_FLAG) is None
    }
    queue = Queue(jobs, shareable, capacity, cache(partial(job_ends, snapshot, capacity)))
    joint = _placed(queue, tuning, solver)
    if shareable:
        joint = _with_lookahead(joint, queue, tuning.weights)
    return replace(joint, left_alone=left_alone)


def _blockers(
    ranked: Sequence[PendingJob], snapshot: Snapshot, sharing: Sharing
) -> dict[JobId, SharingBlocker | None]:
    """Exclusive jobs inside the scope, and why they may not be set to share; None = they may."""
    if not sharing.partitions:
        return {}
    found = {j.job_id: blocker(j, snapshot, sharing) for j in ranked if j.request.exclusive}
    return {job_id: why for job_id, why in found.items() if why != SharingBlocker.NOT_IN_SCOPE}


def _placed(queue: Queue, tuning: Tuning, solver: Solver | None) -> JointPlacement:
    skipped, fell_back = SolveStatus.SKIPPED, SolveStatus.FELL_BACK
    apart = "" if queue.shareable else _why_apart(queue)
    if apart:
        return JointPlacement(skipped, apart, _each_for_itself(queue))
    alone = easy_backfill(queue.jobs, queue.capacity, queue.ends)
    greedy = _placements(queue, alone.starts)
    settled = _why_settled(queue, alone)
    if settled and not queue.shareable and not tuning.steered:
        return JointPlacement(skipped, settled, greedy)
    problem = build_problem(queue, alone, tuning.weights, tuning.budget)
    ways = [0] * len(queue.jobs)
    for option in problem.options:
        ways[option.job] += option.slot == 0
    if max(ways, default=0) <= 1:
        return JointPlacement(skipped, "every job has one way at most", greedy)
    if solver is None:
        return JointPlacement(fell_back, "no solver", greedy)
    try:
        chosen = {o.job: o for o in choose(problem, solver, tuning.budget)}
    except SolverError as error:
        return JointPlacement(fell_back, str(error), greedy)
    now = {at: o for at, o in sorted(chosen.items()) if o.slot == 0}
    shared = [at for at, o in now.items() if o.candidate.kind is PlacementKind.SHARE]
    return JointPlacement(
        SolveStatus.SOLVED,
        _why_solved(now.keys() == alone.starts.keys(), shared, steered=tuning.steered),
        _placements(queue, {at: o.candidate.shares for at, o in now.items()}),
        tuple(share_action(queue.jobs[at].job) for at in shared),
        tuple(
            _verdict(queue.jobs[at].job, ways[at], chosen.get(at), problem, at in alone.starts)
            for at in range(len(queue.jobs))
        ),
    )


def _why_apart(queue: Queue) -> str:
    """Why the jobs cannot be in each other's way; "" = they can."""
    if len(queue.jobs) <= 1:
        return "one job at most can be placed"
    used = np.zeros(len(queue.capacity.names), dtype=np.int64)
    for one in queue.jobs:
        used += one.reach(queue.capacity)
        if used.max(initial=0) > 1:
            return ""
    return "no two jobs can use the same node"


def _why_settled(queue: Queue, alone: BackfillResult) -> str:
    """Why nothing can be gained now; "" = something can."""
    if len(alone.starts) == len(queue.jobs):
        return "all of the first jobs start as it is"
    return "" if alone.starts else "none of the first jobs can start now"


def _why_solved(same: bool, shared: Sequence[int], *, steered: bool) -> str:
    if same:
        return "starts the same jobs as the ranking by itself"
    if steered:
        return "starts the chosen jobs on the chosen nodes"
    if shared:
        return "other jobs start now than by the ranking alone"
    return "Slurm's own placement does not follow: the ranking stays"


def _each_for_itself(queue: Queue) -> tuple[Placement, ...]:
    found = {
        at: shares
        for at, one in enumerate(queue.jobs)
        if (shares := place_request(one.request, one.member, queue.capacity, "pack")) is not None
    }
    return _placements(queue, found)


def _placements(queue: Queue, starts: Mapping[int, tuple[Share, ...]]) -> tuple[Placement, ...]:
    return tuple(Placement(queue.jobs[at].job.job_id, shares) for at, shares in starts.items())


def _verdict(
    job: PendingJob, ways: int, option: Option | None, problem: Problem, by_itself: bool
) -> JobDecision:
    if option is None:
        return JobDecision(job.job_id, ways, None, None, "not within the horizon")
    offset_s, kind = problem.offsets_s[option.slot], option.candidate.kind
    why = f"{kind} on {', '.join(share.node for share in option.candidate.shares)}"
    if not by_itself and not offset_s:
        why += "; not by itself"
    if kind is PlacementKind.SHARE:
        why += "; its exclusive node would keep others waiting"
    return JobDecision(job.job_id, ways, kind, offset_s, why)


def _with_lookahead(joint: JointPlacement, queue: Queue, weights: Weights) -> JointPlacement:
    """The same, and flags for those whose turn may come before the next cycle."""
    flagged = {action.target.job_id for action in joint.actions}
    starts = {placement.job_id for placement in joint.placements}
    free = queue.capacity.copy()
    for placement in joint.placements:
        free.take(placement.shares)
    jobs, shareable = list(queue.jobs), dict(queue.shareable)
    for at, one in queue.shareable.items():
        if one.job.job_id in flagged:
            jobs[at] = shareable.pop(at)
    started = {at for at, one in enumerate(jobs) if one.job.job_id in starts}
    ahead = sharing_lookahead(Queue(jobs, shareable, free, queue.ends), started, weights)
    if not ahead:
        return joint
    known = {verdict.job_id: verdict for verdict in joint.verdicts}
    for at in sorted(ahead):
        job_id = jobs[at].job.job_id
        one_known = known.get(job_id, JobDecision(job_id, 0, None, None, "no node for it now"))
        known[job_id] = replace(one_known, why=f"{one_known.why}; {AHEAD}")
    return replace(
        joint,
        actions=(*joint.actions, *(share_action(jobs[at].job) for at in sorted(ahead))),
        why=f"{joint.why}; {len(ahead)} are set to share before their turn",
        verdicts=tuple(known.values()),
    )
