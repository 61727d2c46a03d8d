"""From delays to numbers and places, from those to actions, and back: what takes a write back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rltuned.core.capacity import BoolArray
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.numbers import IntArray, Numbers, Writing, base_now, numbers_of, rest_of, settle
from rltuned.core.order import Delays, next_neutral
from rltuned.core.standing import priority_order
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import OWNED, PRIORITY, SITE_FACTOR, Action, Field, target_of
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import CLOCK_S


@dataclass(frozen=True, slots=True)
class Ranked:
    """after: indices in the order in which they are to stand. Priorities: own, without rltuned's;
    current, as Slurm has them; proposed; settled, after this cycle. value: each job's number then.
    written: it is new.
    """

    after: IntArray
    own: IntArray
    current: IntArray
    proposed: IntArray
    settled: IntArray
    in_force_s: FloatArray
    value: IntArray
    written: BoolArray


def scale(
    snapshot: Snapshot,
    matrix: StateMatrix,
    asked: Delays,
    mode: Field,
    writing: Writing,
    *,
    before: NeutralDelay | None,
    most_per_hour: int | None = None,
) -> tuple[NeutralDelay | None, Numbers | None]:
    """The neutral delay after one more cycle, and how delays become numbers; None = they cannot.
    before: the one in force. most_per_hour: writes to a job; None = any.
    """
    system, now = snapshot.priorities, snapshot.taken_at
    neutral = next_neutral(before, asked.delay_s, matrix.pools, now)
    neutral = neutral and neutral.at_slope(system.slope, now, before)
    if mode is SITE_FACTOR and system.site_factor_plugin:
        return neutral, None
    numbers = numbers_of(
        matrix.jobs,
        system,
        mode,
        now=now,
        neutral_s=0.0 if neutral is None else neutral.delay_s,
        own_slope=writing.own_slope,
    )
    if numbers is None or neutral is None:
        return neutral, numbers
    return neutral, replace(
        numbers,
        stale=np.array([_is_stale(job, neutral, numbers, now) for job in matrix.jobs], dtype=bool),
        spent=np.array([is_spent(job, most_per_hour) for job in matrix.jobs], dtype=bool),
        user=matrix.pools.user,
        users=matrix.pools.users,
    )


def is_spent(job: PendingJob, most_per_hour: int | None) -> bool:
    """Whether it was written to as often as it may be within an hour."""
    return most_per_hour is not None and job.recent_writes >= most_per_hour


def _is_stale(job: PendingJob, neutral: NeutralDelay, numbers: Numbers, now: float) -> bool:
    """Whether its number stands for a request, a slope or a neutral delay of before, or may: one
    noted while the clock was ahead.
    """
    if job.owned is None:
        return False
    at, moved = job.owned.written_at, 0.0 if numbers.in_epochs else neutral.since
    return at < neutral.sloped_at or at > now + CLOCK_S or 0.0 < at < max(moved, job.changed_at)


def rank(
    matrix: StateMatrix,
    delays: Delays,
    numbers: Numbers | None,
    writing: Writing,
    snapshot: Snapshot,
) -> tuple[Ranked, list[int], list[int]]:
    """Where the jobs stand and are to stand; the indices that wait for the cap, and those whose
    hourly budget keeps them where they are.
    """
    queue = priority_order(matrix.jobs, snapshot)
    current = queue.priority
    own = own_priorities(matrix.jobs, snapshot)
    if numbers is None:
        unwritten = np.zeros(len(current), dtype=bool)
        as_is = (current, current, current, delays.delay_s, current, unwritten)
        return Ranked(queue.order_by(own), own, *as_is), [], []
    value, waiting, withheld = settle(numbers, delays.delay_s, delays.upper_s, writing)
    proposed = numbers.priority(numbers.of(delays.delay_s))
    ranked = Ranked(
        after=queue.order_by(proposed),
        own=own,
        current=current,
        proposed=proposed,
        settled=numbers.priority(value),
        in_force_s=numbers.in_force_s(),
        value=value,
        written=value != numbers.value,
    )
    return ranked, waiting.tolist(), withheld.tolist()


def make_plan(
    jobs: Sequence[PendingJob],
    value: IntArray,
    due: Iterable[int],
    field: Field,
    snapshot: Snapshot,
) -> tuple[Action, ...]:
    """The writes of value (n,) to the jobs at the indices `due`, in order."""
    found: list[Action] = []
    system = snapshot.priorities
    aged = system.kind == "multifactor"
    for i in due:
        job, old, nice, rest = jobs[i], field.of(jobs[i]) or 0, None, None
        if field is PRIORITY:
            nice = job.nice if job.owned is None or job.owned.nice is None else job.owned.nice
            rest = rest_of(job, system, snapshot.taken_at) if aged else None
        found.append(Action(field, target_of(job), old, int(value[i]), nice, rest))
    return tuple(found)


def undo(job: PendingJob) -> Action | None:
    """What takes back the last number written to a job. None = nothing is owned, another user has
    changed it, or it is held (a release would start it; of that one only the nice is restored).
    """
    if job.owned is None or (not job.lost_nice and (job.priority == 0 or job.taken_over)):
        return None
    action = OWNED[job.owned.field].back(job, job.owned.original)
    idle = action is not None and action.field.orders and action.old == action.new
    return None if idle else action


def undo_words(jobs: Iterable[PendingJob], *fields: Field) -> tuple[Action, ...]:
    """What takes back the words written to jobs, as far as Slurm takes those of before."""
    found = (
        field.back(job, original)
        for field in fields
        for job in jobs
        if field.takes(original := field.before(job))
    )
    return tuple(action for action in found if action is not None)


def own_priority(job: PendingJob, system: PrioritySystem, now: float) -> int:
    """Its priority if rltuned had never written to it; where that is not known, the one it has."""
    owned = job.owned
    if owned is None or job.taken_over:
        return job.priority
    if owned.field == "site_factor":
        base = job.priority - (job.site_factor or 0) if job.base is None else job.base
        return max(1, base + (owned.original or 0))
    if system.kind == "basic":
        return job.priority if owned.original is None else owned.original
    base_s = base_now(job, system, now)
    return job.priority if base_s is None else max(1, int(base_s))


def own_priorities(jobs: Sequence[PendingJob], snapshot: Snapshot) -> IntArray:
    """(n,) the same of many."""
    system, now = snapshot.priorities, snapshot.taken_at
    return np.array([own_priority(job, system, now) for job in jobs], dtype=np.int64)
