"""The decision: one snapshot and its context in, one plan out.

Daemon, simulator and replay call `decide`, so there is one definition of what rltuned would do. A
dry run is a decision whose plan is not applied.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isinf
from typing import Final, Literal, NamedTuple

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.features import StateMatrix, encode
from rltuned.core.milp import JointPlacement, Solver, Tuning, place_jointly
from rltuned.core.numbers import IntArray, Numbers, Shortage, Writing
from rltuned.core.order import (
    Delays,
    Order,
    Policy,
    SlaClass,
    bounded,
    by_neutral,
    class_of,
)
from rltuned.core.placement import Placement, place
from rltuned.core.planning import (
    PriorityOrder,
    Ranked,
    is_spent,
    make_plan,
    own_priorities,
    priority_order,
    rank,
    scale,
    undo,
    undo_words,
)
from rltuned.core.refusals import Consequence, Refusal
from rltuned.core.select import Reservations, Scope, Selection, cannot_start, select
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    OVERSUBSCRIBE,
    SITE_FACTOR,
    WORDS,
    Action,
    Field,
    Plan,
    target_of,
)
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import NO_CONTEXT, Context, Snapshot
from rltuned.domain.units import JobId
from rltuned.text import span

# One chosen job in a decision, and the sentence that says why it stands where it stands.


@dataclass(frozen=True, slots=True)
class Entry:
    """One chosen job in a decision; placement is None beyond the top K.

    Ranks count from 1 among all jobs that Slurm could start, as core/planning: rank_before by
    Slurm's own priorities, without rltuned's; rank_wished by those that rltuned proposes. The place
    in force is Decision.standing's. in_force_s: the delay that its present number stands for.
    current, proposed, settled: its priority now, by its delay, and after this plan. changes: this
    plan writes its number. wait_s, fits: how long it has waited, and whether it could start now.
    length: "short" or "long" by its limit beside the median; or "".
    """

    job: PendingJob
    delay_s: float
    upper_s: float
    in_force_s: float
    rank_before: int
    rank_wished: int
    current: int
    proposed: int
    settled: int
    changes: bool
    placement: Placement | None
    sla: SlaClass | None
    wait_s: float
    fits: bool
    length: str

    @property
    def moves(self) -> str:
        """How far it goes from Slurm's own order."""
        places = self.rank_before - self.rank_wished
        if not places:
            return f"keeps place {self.rank_wished}"
        way, count = ("up", places) if places > 0 else ("down", -places)
        return f"moves {way} {count} place{'' if count == 1 else 's'}"

    @property
    def what(self) -> str:
        """How long and how wide it is: `short (7m), 1 GPU`; "short" where that moves it up."""
        limit_s, gpus = self.job.request.time_limit_s, self.job.request.size.gpus
        limit = "unknown" if limit_s is None else "no limit" if isinf(limit_s) else span(limit_s)
        places = self.rank_before - self.rank_wished
        told = (places > 0 and self.length == "short") or (places < 0 and self.length == "long")
        length = f"{self.length} ({limit})" if told else f"limit {limit}"
        return f"{length}, {gpus} GPU{'' if gpus == 1 else 's'}"

    @property
    def bound(self) -> str:
        """Which jobs may still overtake it because of rltuned, without a time of a zone."""
        left_s = self.delay_s - self.wait_s
        if left_s <= 0:
            return "no job that arrives from now on may overtake it"
        return f"may be overtaken by jobs that arrive within {span(left_s)} from now"

    @property
    def why(self) -> str:
        """A sentence for people."""
        fits = "fits now" if self.fits else "does not fit now"
        return f"{self.moves}: {self.what}, waited {span(self.wait_s)}, {fits}; {self.bound}"


__all__ = ["Decision", "Entry", "Knobs", "Policy", "decide", "greedy", "span", "undo_plan"]

_NO_POINTS: Final = (
    "no delay can be written here: waiting is worth no points (PriorityWeightAge); what was "
    "written would stand for ever, and is taken back"
)
_PLUGIN: Final = "no delay is written here: {plugin} sets site factors"

_LENGTHS: Final = {-1.0: "short", 0.0: "", 1.0: "long"}

PlacementMode = Literal["pack", "spread", "milp"]
"""How the first jobs are placed: one after the other by one rule, or all together."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """All that steers a decision. sla: the first class that fits a job holds. top_k: how many of
    the first ranks are placed.
    """

    rules: Scope = field(default_factory=Scope)
    order: Order = field(default_factory=Order)
    writing: Writing = field(default_factory=Writing)
    sla: tuple[SlaClass, ...] = ()
    top_k: int = 16
    placement: PlacementMode = "pack"
    tuning: Tuning = field(default_factory=Tuning)


@dataclass(frozen=True, slots=True)
class Decision:
    """What and why, whole; entries and delays in their own orders.

    policy, trust: see Policy. standing: of all jobs that Slurm could start, those that are left
    alone among them. neutral: the neutral delay from the next cycle on. short: what priorities lack
    for the delays. joint: how the first jobs were placed together; None = they were not.
    """

    snapshot: Snapshot
    context: Context
    policy: str
    trust: float | None
    matrix: StateMatrix
    delays: Delays
    field: Field
    neutral: NeutralDelay | None
    order: Order
    standing: PriorityOrder
    short: Shortage
    entries: tuple[Entry, ...]
    placements: tuple[Placement, ...]
    plan: Plan
    refused: tuple[tuple[JobId, Refusal], ...]
    notes: tuple[str, ...] = ()
    joint: JointPlacement | None = None


def decide(
    snapshot: Snapshot,
    policy: Policy,
    knobs: Knobs,
    solver: Solver | None = None,
    context: Context = NO_CONTEXT,
) -> Decision:
    """Select, encode, delay, order, place, plan. solver: for placement `milp`; None = its greedy
    answer. Raises PolicyError: the policy's delays are misshapen, negative or not finite.
    """
    field, writing = knobs.writing.field(snapshot.priorities), knobs.writing
    queue = _queue(snapshot, knobs, field, context)
    matrix = encode(queue.chosen, snapshot, context, queue.selection.where)
    asked = bounded(policy, matrix, knobs.order, queue.classes)
    most = knobs.rules.max_writes_per_hour
    neutral, numbers = scale(
        snapshot, matrix, asked, field, writing, before=context.neutral, most_per_hour=most
    )
    delays, short = _held(asked, queue, matrix, neutral, numbers)
    delays = _withdrawn(delays, queue.chosen, knobs.rules, snapshot)
    ranked, waiting, withheld = rank(matrix, delays, numbers, writing, snapshot)
    joint, placements = _placed(queue.chosen, ranked, matrix, snapshot, knobs=knobs, solver=solver)
    # a number that no age overtakes is no delay but a place behind all others for ever
    lasting = queue.chosen if numbers is None else ()
    plan, counts = _plan(queue, ranked, joint, snapshot, knobs, field=field, lasting=lasting)
    others = _others_in_line(snapshot, queue.chosen)
    standing = priority_order((*queue.chosen, *others), snapshot)
    ranks = _ranks(ranked, others, standing, snapshot)
    return Decision(
        snapshot=snapshot,
        context=context,
        policy=policy.name,
        trust=policy.trust,
        matrix=matrix,
        delays=delays,
        field=field,
        neutral=neutral,
        order=knobs.order,
        standing=standing,
        short=short,
        entries=_entries(matrix, delays, ranked, placements, queue.classes, ranks=ranks),
        placements=placements,
        plan=plan,
        refused=_refused(queue, waiting, withheld),
        notes=_notes(counts, len(waiting), joint, _why_unwritable(snapshot) if lasting else ""),
        joint=joint,
    )


class _Queue(NamedTuple):
    """The jobs that are ordered, the class of each, and those that are undone before they are."""

    chosen: tuple[PendingJob, ...]
    classes: list[SlaClass | None]
    handed_back: tuple[PendingJob, ...]
    selection: Selection


def _queue(snapshot: Snapshot, knobs: Knobs, field: Field, context: Context) -> _Queue:
    selection = select(snapshot, _rules_for(knobs.rules, field, snapshot), context.demoted)
    chosen, handed_back = _split_by_field(selection.chosen, field)
    return _Queue(chosen, [class_of(job, knobs.sla) for job in chosen], handed_back, selection)


def _held(
    asked: Delays,
    queue: _Queue,
    matrix: StateMatrix,
    neutral: NeutralDelay | None,
    numbers: Numbers | None,
) -> tuple[Delays, Shortage]:
    """The delays as jobs without a number and Slurm's room leave them; and what that room lacks."""
    if neutral is not None:
        astride = [job.job_id in queue.selection.astride for job in queue.chosen]
        promised = [one is not None for one in queue.classes]
        asked = by_neutral(asked, matrix, neutral.delay_s, astride, promised)
    if numbers is None:
        return asked, Shortage()
    nice = np.array([job.nice for job in queue.chosen], dtype=np.float64)
    return asked.within(numbers.longest_s), numbers.shortage(asked.delay_s, nice)


def _placed(
    chosen: Sequence[PendingJob],
    ranked: Ranked,
    matrix: StateMatrix,
    snapshot: Snapshot,
    *,
    knobs: Knobs,
    solver: Solver | None,
) -> tuple[JointPlacement | None, tuple[Placement, ...]]:
    """Where the first jobs start, all together or one after the other."""
    first = _may_start(chosen, ranked.after[: knobs.top_k].tolist(), snapshot)
    if knobs.placement != "milp":
        return None, greedy(chosen, first, snapshot, knobs)
    fits = (matrix.column("can_schedule_now")[first] > 0).tolist()
    joint = place_jointly([chosen[i] for i in first], fits, snapshot, knobs.tuning, solver)
    return joint, joint.placements


def _plan(
    queue: _Queue,
    ranked: Ranked,
    joint: JointPlacement | None,
    snapshot: Snapshot,
    knobs: Knobs,
    *,
    field: Field,
    lasting: Sequence[PendingJob],
) -> tuple[Plan, tuple[int, int]]:
    """What is sent; how many jobs get their own number back, and how many flags wait. lasting: jobs
    in scope whose numbers are taken back.
    """
    chosen = queue.chosen
    leaving = {j for j, reason in queue.selection.refused if Consequence.RESTORED in reason.then}
    left = [*(j for j in snapshot.pending if j.job_id in leaving), *queue.handed_back]
    undone = _undone([*left, *lasting])
    due = [i for i in ranked.after.tolist() if ranked.written[i]]
    writes = make_plan(chosen, ranked.value, due, field, snapshot)
    isolated = undo_words(_out_of_sharing(queue.selection, knobs, snapshot), OVERSUBSCRIBE)
    flags = _flags(joint, chosen, knobs.rules)
    sent = flags[: max(0, knobs.writing.max_changes - len(writes))]
    plan = Plan((*undone, *isolated, *sent, *writes))
    return plan, (len(_undone(left)), len(flags) - len(sent))


def _refused(
    queue: _Queue, waiting: Sequence[int], withheld: Sequence[int]
) -> tuple[tuple[JobId, Refusal], ...]:
    chosen = queue.chosen
    return (
        *queue.selection.refused,
        *((job.job_id, Refusal.HANDED_BACK) for job in queue.handed_back),
        *((chosen[i].job_id, Refusal.CHANGE_BUDGET) for i in waiting),
        *((chosen[i].job_id, Refusal.JOB_BUDGET) for i in withheld),
    )


def _rules_for(rules: Scope, mode: Field, snapshot: Snapshot) -> Scope:
    """What a job must have for its number to be written, and who is left to Slurm in off blocks."""
    by_factor = mode is SITE_FACTOR
    switchback = rules.switchback if snapshot.priorities.slope else None
    return replace(
        rules, needs_site_factor=by_factor, one_number=not by_factor, switchback=switchback
    )


def _withdrawn(
    delays: Delays, chosen: Sequence[PendingJob], rules: Scope, snapshot: Snapshot
) -> Delays:
    """Without the delays of off blocks, where Slurm's own numbers know no age.

    A job without a number would stand behind all that have one, so those of an off block keep
    theirs: that for their waiting alone.
    """
    switchback, now = rules.switchback, snapshot.taken_at
    if switchback is None or snapshot.priorities.slope:
        return delays
    on = np.array([not switchback.off(job.partitions, now) for job in chosen], dtype=bool)
    return delays.where(on)


def _why_unwritable(snapshot: Snapshot) -> str:
    plugin = snapshot.priorities.site_factor_plugin
    return _PLUGIN.format(plugin=plugin) if plugin else _NO_POINTS


def undo_plan(snapshot: Snapshot) -> Plan:
    """What takes back all that rltuned holds of pending jobs; no order comes in its place."""
    pending = snapshot.pending
    return Plan((*_undone(pending), *undo_words(pending, *WORDS)))


def _out_of_sharing(selection: Selection, knobs: Knobs, snapshot: Snapshot) -> list[PendingJob]:
    """Jobs that guidance may not set to share now, whether or not it has."""
    known = knobs.tuning.sharing.partitions if knobs.placement == "milp" else frozenset[str]()
    out = {job_id for job_id, reason in selection.refused if Consequence.ISOLATED in reason.then}
    return [j for j in snapshot.pending if j.job_id in out or not known.issuperset(j.partitions)]


def _flags(
    joint: JointPlacement | None, chosen: Sequence[PendingJob], rules: Scope
) -> tuple[Action, ...]:
    """What the joint placement sets, but for jobs whose hourly budget is spent."""
    most = rules.max_writes_per_hour
    spent = {target_of(job) for job in chosen if is_spent(job, most)}
    return tuple(a for a in joint.actions if a.target not in spent) if joint else ()


def _undone(jobs: Sequence[PendingJob]) -> tuple[Action, ...]:
    return tuple(action for job in jobs if (action := undo(job)) is not None)


def _may_start(chosen: Sequence[PendingJob], first: Sequence[int], snapshot: Snapshot) -> list[int]:
    """Of the first ones those that could start now: a full array waits for its own tasks."""
    full = snapshot.full_arrays()
    array_of = (chosen[i].array for i in first)
    return [i for i, a in zip(first, array_of, strict=True) if not a or a.array_job_id not in full]


def greedy(
    chosen: Sequence[PendingJob],
    first: Sequence[int],
    snapshot: Snapshot,
    knobs: Knobs,
) -> tuple[Placement, ...]:
    """Place the first jobs one after the other on what is free; those that fit now."""
    capacity = Capacity.of(snapshot)
    placements = []
    for index in first:
        placement = place(
            chosen[index], capacity, "spread" if knobs.placement == "spread" else "pack"
        )
        if placement is not None:
            capacity.take(placement.shares)
            placements.append(placement)
    return tuple(placements)


def _split_by_field(
    chosen: tuple[PendingJob, ...], mode: Field
) -> tuple[tuple[PendingJob, ...], tuple[PendingJob, ...]]:
    """Part off the jobs that rltuned wrote to by the other field: they are undone first. A job
    frozen by `Priority=` ignores its site factor, so a changed write_mode must let go first.
    """
    other = [j for j in chosen if j.owned is not None and j.owned.field != mode.name and undo(j)]
    if not other:
        return chosen, ()
    ids = {j.job_id for j in other}
    return tuple(j for j in chosen if j.job_id not in ids), tuple(other)


def _others_in_line(snapshot: Snapshot, chosen: Sequence[PendingJob]) -> list[PendingJob]:
    """Jobs that are left alone and that Slurm could start all the same."""
    ours, reservations = {job.job_id for job in chosen}, Reservations(snapshot)
    left = (job for job in snapshot.pending if job.job_id not in ours)
    return [job for job in left if cannot_start(job, reservations) is None]


def _ranks(
    ranked: Ranked, others: Sequence[PendingJob], standing: PriorityOrder, snapshot: Snapshot
) -> tuple[IntArray, IntArray]:
    """(n,) places of the chosen jobs among all by Slurm's own priorities, and by the wished ones;
    jobs that are left alone have their own.
    """
    count, alone = len(ranked.current), own_priorities(others, snapshot)
    found = (
        standing.places_by(np.concatenate((number, alone)))[:count]
        for number in (ranked.own, ranked.proposed)
    )
    before, wished = found
    return before, wished


def _entries(
    matrix: StateMatrix,
    delays: Delays,
    ranked: Ranked,
    placements: tuple[Placement, ...],
    classes: Sequence[SlaClass | None],
    *,
    ranks: tuple[IntArray, IntArray],
) -> tuple[Entry, ...]:
    placed = {p.job_id: p for p in placements}
    fits = matrix.column("can_schedule_now") > 0
    beside = np.sign(matrix.limit_s - _median_limit_s(matrix))
    of_each = (
        delays.delay_s, delays.upper_s, ranked.in_force_s, *ranks, ranked.current, ranked.proposed,
        ranked.settled, ranked.written, matrix.wait_s, fits, beside,
    )  # fmt: skip
    # Python's own numbers, made all at once
    rows = zip(*(column[ranked.after].tolist() for column in of_each), strict=True)
    found = []
    for i, row in zip(ranked.after.tolist(), rows, strict=True):
        delay_s, upper_s, in_force_s, before, wished, current, proposed, settled = row[:8]
        written, wait_s, can_start, length = row[8:]
        job = matrix.jobs[i]
        found.append(
            Entry(
                job, delay_s, upper_s, in_force_s, before, wished, current, proposed, settled,
                written, placed.get(job.job_id), classes[i], wait_s, can_start, _LENGTHS[length],
            )
        )  # fmt: skip
    return tuple(found)


def _median_limit_s(matrix: StateMatrix) -> float:
    """Of the tasks that wait; 0 = none does."""
    if not matrix.pools.tasks.any():
        return 0.0
    order = np.argsort(matrix.limit_s, kind="stable")
    total = np.cumsum(matrix.pools.tasks[order])
    low = np.searchsorted(total, 0.5 * total[-1])
    high = np.searchsorted(total, 0.5 * total[-1], side="right")
    return float(0.5 * (matrix.limit_s[order[low]] + matrix.limit_s[order[high]]))


def _notes(
    counts: tuple[int, int],
    over_budget: int,
    joint: JointPlacement | None,
    unwritable: str,
) -> tuple[str, ...]:
    undone, flags_waiting = counts
    notes = []
    if over_budget:
        notes.append(f"{over_budget} jobs are written in a later cycle: over the change budget")
    if undone:
        notes.append(f"{undone} jobs that are out of scope get their own number back")
    if joint is not None:
        notes.append(f"joint placement {joint.how}: {joint.why}")
        for why, count in Counter(reason for _, reason in joint.left_alone).items():
            notes.append(f"OverSubscribe of {count} exclusive jobs left alone: {why}")
    if flags_waiting:
        notes.append(f"{flags_waiting} flags wait: over the change budget")
    return (*notes, unwritable) if unwritable else tuple(notes)
