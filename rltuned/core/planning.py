"""From scores to the fewest writes that put the queue in the new order.

How the numbers are found (docs/adr/0002 argues it):

1. `order`: jobs by score, but scores closer than the hysteresis keep their present order; then
   `guards.project` moves nobody further from Slurm's own order than the guards allow.
2. `standings`: the numbers to hand out. By default the managed jobs exchange among themselves the
   priorities that Slurm gave them, ties made strictly decreasing, so a job that rltuned does not
   manage has as many managed jobs above it as before. A configured band is the alternative.
3. `settling.settle`: what of it this cycle may write.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from rltuned.core.guards import Guard, Guards, natural_value, places, project, windows
from rltuned.core.lineup import Queue, by_number
from rltuned.core.settling import only_drifted, settle
from rltuned.core.starvation import NOBODY, lift
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    MAX_PRIORITY,
    MAX_SITE_FACTOR,
    Action,
    Release,
    SetNice,
    SetPriority,
    SetSiteFactor,
    Target,
)
from rltuned.errors import PolicyError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
WriteMode = Literal["priority", "site_factor"]

LOWEST: Final = 1
"""Never 0: that would hold the job."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one cycle may change.

    Attributes:
        write_mode: "priority" freezes jobs at a number; "site_factor" adds to multifactor's sum.
        max_changes: jobs written per cycle at most.
        hysteresis: scores closer than this share of their interquartile range count as equal.
        band: (low, high) for the managed jobs' priorities; None = exchange among themselves.
        guards: how far from Slurm's own order a job may be put.
    """

    write_mode: WriteMode = "priority"
    max_changes: int = 500
    hysteresis: float = 0.02
    band: tuple[int, int] | None = None
    guards: Guards = field(default_factory=Guards)

    def __post_init__(self) -> None:
        if self.max_changes < 0:
            raise ValueError(f"max_changes {self.max_changes} is negative")
        if not 0 <= self.hysteresis < 1:
            raise ValueError(f"hysteresis {self.hysteresis} is outside 0..1")
        if self.band is not None and not LOWEST <= self.band[0] < self.band[1] <= MAX_PRIORITY:
            raise ValueError(f"band {self.band} is not within {LOWEST}..{MAX_PRIORITY}")


@dataclass(frozen=True, slots=True)
class Ordering:
    """Positions of the chosen jobs (indices into them), and the number each is to have.

    before, after: job indices, first to run first. proposed: (n,) the number wanted for each job;
    settled: (n,) what this cycle's plan will make of it under the change cap. bound: how many jobs
    each guard kept from where the policy wanted them. held_back: the top is not right, and the
    change cap allowed only parts that the guards forbid, so nothing is written. overdue: job
    indices, first by the starvation bound.
    """

    before: IntArray
    after: IntArray
    proposed: IntArray
    settled: IntArray
    bound: tuple[tuple[Guard, int], ...] = ()
    held_back: bool = False
    overdue: IntArray = field(default_factory=NOBODY.copy)


def current_values(jobs: Sequence[PendingJob], write_mode: WriteMode) -> IntArray:
    """(n,) the numbers the jobs own by Slurm's doing and ours, which they may exchange.

    In priority mode that is for a job we wrote to what we wrote, also where backfill has put an
    older number back: a lost write must not drain the numbers there are. In site_factor mode it
    is the sum without our part, so nothing of ours feeds on itself.
    """
    if write_mode == "priority":
        return np.array([_dealt(j) for j in jobs], dtype=np.int64)
    return np.array([j.priority - (j.site_factor or 0) for j in jobs], dtype=np.int64)


def arrange(
    jobs: Sequence[PendingJob],
    scores: FloatArray,
    others: IntArray,
    limits: Limits,
    overdue: IntArray = NOBODY,
) -> Ordering:
    """Find the new order and the numbers that bring it about.

    Args:
        jobs: the chosen jobs, in snapshot order.
        scores: (n,), higher = sooner.
        others: priorities of the pending jobs that are not ours, sorted upwards.
        limits: the knobs.
        overdue: jobs that come before all submitted later, whatever their score.
    """
    in_force = np.array([j.priority for j in jobs], dtype=np.int64)
    before = by_number(in_force)
    wanted = order(scores, before, limits.hysteresis)
    allowed = windows(jobs, limits.guards, overdue)
    after = project(lift(wanted, overdue), allowed)
    values = current_values(jobs, limits.write_mode)
    proposed = np.empty(len(jobs), dtype=np.int64)
    proposed[after] = standings(values, limits.band)
    queue = Queue(
        in_force=in_force,
        dealt=values if limits.write_mode == "priority" else in_force,
        given=np.array([natural_value(j) for j in jobs], dtype=np.int64),
        after=after,
        others=others,
        windows=allowed,
    )
    if limits.write_mode == "site_factor" and only_drifted(queue, proposed):
        settled, held_back = in_force, False
    else:
        settled = settle(queue, proposed, limits.max_changes, fresh=limits.band is not None)
        # where as many places at the top are right as one cycle may write, nothing waits for it
        head = slice(max(1, limits.max_changes))
        held_back = bool((settled == in_force).all() and (before[head] != after[head]).any())
    bound = {
        Guard.HYSTERESIS: int((wanted != order(scores, before, 0.0)).sum()),
        Guard.BAND: _outside(values, limits.band),
        **allowed.bound(places(wanted)),
    }
    return Ordering(before, after, proposed, settled, tuple(bound.items()), held_back, overdue)


def _outside(values: IntArray, band: tuple[int, int] | None) -> int:
    return 0 if band is None else int(((values < band[0]) | (values > band[1])).sum())


def _dealt(job: PendingJob) -> int:
    ours = job.owned is not None and job.owned.field == "priority"
    return job.owned.value if ours and job.owned is not None else job.priority


def order(scores: FloatArray, before: IntArray, hysteresis: float) -> IntArray:
    """Job indices, highest score first; within the hysteresis the present order stays.

    Scores are cut into bands from the top: a band holds all scores within the margin of its
    highest one. Equal scores therefore always keep their present order.
    """
    if not len(scores):
        return before
    # ordered by (-score, present position): lexsort takes the last key first
    position = np.empty(len(before), dtype=np.int64)
    position[before] = np.arange(len(before))
    by_score = np.lexsort((position, -scores))
    low, high = np.percentile(scores, (25, 75))
    margin = hysteresis * (high - low)
    band = np.empty(len(scores), dtype=np.int64)
    number, top = 0, scores[by_score[0]]
    for index in by_score:
        if top - scores[index] > margin:
            number, top = number + 1, scores[index]
        band[index] = number
    return np.lexsort((position, band))


def standings(values: IntArray, band: tuple[int, int] | None) -> IntArray:
    """(n,) strictly decreasing numbers to hand out by rank, all at least 1.

    Without a band: the values themselves, sorted; of equal ones the later move down by one each,
    so no managed job climbs over one that is not ours. Where the floor of 1 leaves no room below,
    numbers move up just as far as needed. With a band: evenly spaced from its top.

    Raises:
        PolicyError: the band is too narrow for so many jobs.
    """
    count = len(values)
    if band is not None:
        low, high = band
        if count > high - low + 1:
            raise PolicyError(f"{count} jobs do not fit into the priority band {low}..{high}")
        step = max(1, (high - low) // max(1, count))
        return high - step * np.arange(count, dtype=np.int64)
    rank = np.arange(count, dtype=np.int64)
    numbers = np.minimum.accumulate(-np.sort(-values) + rank) - rank
    floor = LOWEST + rank[::-1]
    return np.maximum(numbers, floor)


def make_plan(jobs: Sequence[PendingJob], ordering: Ordering, limits: Limits) -> tuple[Action, ...]:
    """The differences between what is in force and what is settled, first rank first."""
    rank = {int(job): place for place, job in enumerate(ordering.after)}
    actions: list[Action] = []
    for i in sorted(range(len(jobs)), key=rank.__getitem__):
        job, new = jobs[i], int(ordering.settled[i])
        if new == job.priority:
            continue
        action = _write(job, new, limits.write_mode)
        if action.new != action.old:
            actions.append(action)
    return tuple(actions)


def undo(job: PendingJob) -> Release | SetNice | SetSiteFactor | None:
    """What takes back our last write to a job.

    None when there is nothing to take back: not ours, changed by somebody else since, or held
    (an operator's release would start a held job, so of that one only the nice is given back).
    """
    if job.owned is None:
        return None
    if job.lost_nice:
        return SetNice(target_of(job), job.nice, job.lost_nice)
    if job.priority == 0 or job.taken_over:
        return None
    if job.owned.field == "priority":
        return Release(target_of(job), job.priority, job.owned.nice or 0, job.owned.original)
    original = job.owned.original or 0
    if job.site_factor is None or job.site_factor == original:
        return None
    return SetSiteFactor(target_of(job), job.site_factor, original)


def target_of(job: PendingJob) -> Target:
    """The address of a job's record."""
    return Target(job.job_id, job.submitted_at, job.address)


def _write(job: PendingJob, new: int, write_mode: WriteMode) -> SetPriority | SetSiteFactor:
    if write_mode == "priority":
        nice = job.nice if job.owned is None or job.owned.nice is None else job.owned.nice
        return SetPriority(target_of(job), job.priority, new, nice)
    old = job.site_factor or 0
    natural = job.priority - old
    factor = max(-MAX_SITE_FACTOR, min(MAX_SITE_FACTOR, new - natural))
    return SetSiteFactor(target_of(job), old, factor)
