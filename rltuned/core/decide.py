"""The brain: one snapshot in, one decision out.

Daemon, simulator, training and replay call `decide`, so there is one definition of what rltuned
would do. A dry run is a decision whose plan is not applied.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

import numpy as np

from rltuned.core.capacity import Capacity, IntArray
from rltuned.core.features import FloatArray, StateMatrix, encode
from rltuned.core.guards import Guard
from rltuned.core.joint import Joint, Tuning, place_jointly
from rltuned.core.milp import Solver
from rltuned.core.placement import Placement, place
from rltuned.core.planning import Limits, Ordering, arrange, make_plan, undo
from rltuned.core.select import Refusal, Rules, select
from rltuned.core.starvation import Bound, overdue
from rltuned.core.steering import Guidance, exclude, within
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Action, Plan
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import PolicyError

_OUT_OF_OUR_HANDS = frozenset(
    {
        Refusal.SLA_PARTITION,
        Refusal.OUT_OF_SCOPE,
        Refusal.BREAKER_OPEN,
        Refusal.EXCLUDED_USER,
        Refusal.EXCLUDED_ACCOUNT,
        Refusal.EXCLUDED_QOS,
        Refusal.CONTROL,
        Refusal.HELD_USER,
        Refusal.HELD_ADMIN,
        Refusal.TAKEN_OVER,
        Refusal.PARTITION_PRIORITIES,
        Refusal.INCR_ONLY,
    }
)
"""A job that we wrote to and that came under one of these gets its own standing back, or what may
be given back of it: of a held one, and of one that somebody has freed, the nice."""

_OVERDUE: Final = "; overdue by the starvation bound: before all that came later"


class Policy(Protocol):
    """Who scores."""

    @property
    def name(self) -> str:
        """As it is asked for on the command line and shown in logs and metrics."""
        ...

    def score(self, matrix: StateMatrix) -> FloatArray:
        """(n,) one finite number per row, higher = sooner. Pure; the same rows, the same scores."""
        ...


PlacementMode = Literal["pack", "spread", "milp"]
"""How the first jobs are placed: one after the other by one rule, or all together."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """All that steers a decision.

    Attributes:
        rules, limits: see there.
        top_k: how many of the first ranks are placed.
        placement: how. `milp` may also change the order among them and set OverSubscribe.
        tuning: of `milp`.
        starvation: when a job has waited so long that it comes first; None = never.
    """

    rules: Rules = field(default_factory=Rules)
    limits: Limits = field(default_factory=Limits)
    top_k: int = 16
    placement: PlacementMode = "pack"
    tuning: Tuning = field(default_factory=Tuning)
    starvation: Bound | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One chosen job in a decision. Ranks count from 1; placement is None beyond the top K."""

    job: PendingJob
    score: float
    rank_before: int
    rank_after: int
    current: int
    proposed: int
    settled: int
    placement: Placement | None
    why: str

    @property
    def changes(self) -> bool:
        """Whether this cycle's plan moves the job's number."""
        return self.settled != self.current


@dataclass(frozen=True, slots=True)
class Decision:
    """What and why, whole.

    entries stand in the new order; joint: how the first were placed together, None unless asked;
    bound: how many jobs each guard kept from where the policy wanted them; held_back: no part of
    the new order is within both the change cap and the guards, so none of it is written.
    """

    snapshot: Snapshot
    policy: str
    matrix: StateMatrix
    scores: FloatArray
    entries: tuple[Entry, ...]
    placements: tuple[Placement, ...]
    plan: Plan
    refused: tuple[tuple[JobId, Refusal], ...]
    notes: tuple[str, ...] = ()
    joint: Joint | None = None
    bound: tuple[tuple[Guard, int], ...] = ()
    held_back: bool = False


def decide(
    snapshot: Snapshot, policy: Policy, knobs: Knobs, solver: Solver | None = None
) -> Decision:
    """Select, encode, score, order, place, plan.

    Args:
        snapshot: the cluster.
        policy: who scores.
        knobs: what steers.
        solver: for placement `milp`; without one its greedy answer stands.

    Raises:
        PolicyError: the policy's scores are misshapen or not finite, or the configured priority
            band is too narrow for the queue.
    """
    selection = select(snapshot, knobs.rules)
    chosen, handed_back = _ours_to_order(selection.chosen, knobs.limits)
    matrix = encode(chosen, snapshot)
    scores = checked_scores(policy, matrix)
    late = overdue(chosen, snapshot, knobs.starvation)
    ordering = arrange(chosen, scores, _others(snapshot, chosen), knobs.limits, late)
    joint = None
    if knobs.placement == "milp":
        ordering, joint = _joined(matrix, ordering, snapshot, knobs, solver)
    placements = joint.placements if joint else greedy(chosen, ordering.after, snapshot, knobs)
    entries = _entries(matrix, scores, ordering, placements)
    over_budget = [
        (e.job.job_id, Refusal.CHANGE_BUDGET)
        for e in entries
        if e.proposed != e.current == e.settled
    ]
    leaving = {j for j, reason in selection.refused if reason in _OUT_OF_OUR_HANDS}
    given_back = [j for j in snapshot.pending if j.job_id in leaving] + list(handed_back)
    undone = [action for job in given_back if (action := undo(job)) is not None]
    numbers = make_plan(chosen, ordering, knobs.limits)
    flags = joint.actions if joint else ()
    wanted: tuple[Guidance, ...] = (*flags, *exclude(snapshot, joint.excluded if joint else {}))
    guidance = within(knobs.limits.max_changes - len(numbers), wanted)
    actions: Sequence[Action] = [*undone, *guidance, *numbers]
    return Decision(
        snapshot=snapshot,
        policy=policy.name,
        matrix=matrix,
        scores=scores,
        entries=entries,
        placements=placements,
        plan=Plan(tuple(actions)),
        refused=(
            *selection.refused,
            *((j.job_id, Refusal.HANDED_BACK) for j in handed_back),
            *over_budget,
        ),
        notes=(
            *_notes(len(over_budget), len(undone), joint, held_back=ordering.held_back),
            *_waiting(len(wanted) - len(guidance)),
        ),
        joint=joint,
        bound=ordering.bound,
        held_back=ordering.held_back,
    )


def give_back(snapshot: Snapshot) -> Plan:
    """What takes back all that we hold of pending jobs; no order of ours comes in its place."""
    undone = [action for job in snapshot.pending if (action := undo(job)) is not None]
    return Plan((*undone, *exclude(snapshot, {})))


def _waiting(count: int) -> tuple[str, ...]:
    return (f"{count} flags and exclusions wait: over the change budget",) if count else ()


def checked_scores(policy: Policy, matrix: StateMatrix) -> FloatArray:
    """The policy's scores, refused unless there is one finite number per job.

    Raises:
        PolicyError: they are misshapen or not finite.
    """
    scores = np.asarray(policy.score(matrix), dtype=np.float64)
    if scores.shape != (len(matrix),):
        raise PolicyError(
            f"policy {policy.name} gave scores of shape {scores.shape} for {len(matrix)} jobs"
        )
    if not np.isfinite(scores).all():
        bad = matrix.jobs[int(np.flatnonzero(~np.isfinite(scores))[0])]
        raise PolicyError(f"policy {policy.name} gave job {bad.job_id} a score that is not finite")
    return scores


def greedy(
    chosen: Sequence[PendingJob],
    after: Sequence[int] | np.ndarray,
    snapshot: Snapshot,
    knobs: Knobs,
) -> tuple[Placement, ...]:
    """Place the first top_k jobs one after the other on what is free; those that fit now."""
    capacity = Capacity.of(snapshot)
    placements = []
    for index in after[: knobs.top_k]:
        placement = place(
            chosen[index], capacity, "spread" if knobs.placement == "spread" else "pack"
        )
        if placement is not None:
            capacity.take(placement.shares)
            placements.append(placement)
    return tuple(placements)


def _joined(
    matrix: StateMatrix, ordering: Ordering, snapshot: Snapshot, knobs: Knobs, solver: Solver | None
) -> tuple[Ordering, Joint]:
    """Place the first jobs together; where that changes their order, deal the numbers out anew."""
    first = ordering.after[: knobs.top_k]
    ranked = [matrix.jobs[i] for i in first]
    fits = (matrix.column("can_schedule_now")[first] > 0).tolist()
    joint = place_jointly(ranked, fits, snapshot, knobs.tuning, solver)
    if joint.order == tuple(range(len(first))):
        return ordering, joint
    after = np.concatenate([first[list(joint.order)], ordering.after[len(first) :]])
    standing = np.empty(len(after))
    standing[after] = -np.arange(len(after))
    exact = replace(knobs.limits, hysteresis=0.0)
    others = _others(snapshot, matrix.jobs)
    again = arrange(matrix.jobs, standing, others, exact, ordering.overdue)
    return replace(again, bound=ordering.bound), joint


def _ours_to_order(
    chosen: tuple[PendingJob, ...], limits: Limits
) -> tuple[tuple[PendingJob, ...], tuple[PendingJob, ...]]:
    """Part off the jobs that we wrote to by the other field: they are undone first.

    A job frozen by `Priority=` ignores its site factor, so a changed write_mode must let go first.
    """
    other = [
        j for j in chosen if j.owned is not None and j.owned.field != limits.write_mode and undo(j)
    ]
    if not other:
        return chosen, ()
    ids = {j.job_id for j in other}
    return tuple(j for j in chosen if j.job_id not in ids), tuple(other)


def _others(snapshot: Snapshot, chosen: tuple[PendingJob, ...]) -> IntArray:
    """Priorities of the pending jobs that are not ours to order, sorted upwards; held ones not."""
    ours = {j.job_id for j in chosen}
    return np.array(
        sorted(j.priority for j in snapshot.pending if j.priority and j.job_id not in ours),
        dtype=np.int64,
    )


def _entries(
    matrix: StateMatrix,
    scores: FloatArray,
    ordering: Ordering,
    placements: tuple[Placement, ...],
) -> tuple[Entry, ...]:
    rank_before = {int(job): rank for rank, job in enumerate(ordering.before, start=1)}
    placed = {p.job_id: p for p in placements}
    fits = matrix.column("can_schedule_now")
    late = frozenset(ordering.overdue.tolist())
    return tuple(
        Entry(
            job=matrix.jobs[i],
            score=float(scores[i]),
            rank_before=rank_before[i],
            rank_after=rank,
            current=matrix.jobs[i].priority,
            proposed=int(ordering.proposed[i]),
            settled=int(ordering.settled[i]),
            placement=placed.get(matrix.jobs[i].job_id),
            why=_why(matrix, i, bool(fits[i])) + (_OVERDUE if i in late else ""),
        )
        for rank, i in enumerate(ordering.after.tolist(), start=1)
    )


def _why(matrix: StateMatrix, i: int, fits: bool) -> str:
    limit_s = matrix.jobs[i].request.time_limit_s
    limit = "unknown" if limit_s is None else "unlimited" if limit_s == np.inf else span(limit_s)
    return (
        f"{int(matrix.gpus[i])} GPU, limit {limit}, waited {span(matrix.wait_s[i])}, "
        f"{'fits now' if fits else 'does not fit now'}"
    )


def span(seconds: float) -> str:
    """Seconds as a person says them: `45s`, `12m`, `3h05m`, `2d04h`."""
    whole = int(seconds)
    if whole < 60:  # noqa: PLR2004 - seconds in a minute
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if not hours:
        return f"{minutes}m"
    if not days:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{days}d{hours % 24:02d}h"


def _notes(
    over_budget: int, undone: int, joint: Joint | None, *, held_back: bool
) -> tuple[str, ...]:
    notes = []
    if held_back:
        notes.append("nothing is moved: no part of the new order is within change cap and guards")
    if over_budget:
        notes.append(f"{over_budget} jobs keep their number: over the change budget")
    if undone:
        notes.append(f"{undone} jobs that are no longer ours get their standing back")
    if joint is not None:
        notes.append(f"joint placement {joint.how}: {joint.why}")
        for why, count in Counter(reason for _, reason in joint.left_alone).items():
            notes.append(f"OverSubscribe of {count} exclusive jobs left alone: {why}")
    return tuple(notes)
