"""How far a policy may move a job: every guard is a window of places around Slurm's own order.

The natural order is the one in which Slurm would have our jobs without us. Each guard says for
each job the earliest and the latest place that it allows, and every window holds the job's natural
place. So the natural order satisfies all guards at once, there always is an order that does, and
one algorithm (`project`) finds the one nearest to the policy's. docs/adr/0010 has the proof.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.starvation import NOBODY, lift
from rltuned.domain.jobs import PendingJob

IntArray = NDArray[np.int64]

_ROUNDING: Final = 1e-9
"""So that a share of whole jobs which floating point puts a hair above a number is that number."""
_PATIENCE: Final = 256
"""After so many places it is looked whether the rest may stand as wanted."""


class Guard(StrEnum):
    """What keeps an order from being the policy's. The value is the metric label."""

    HYSTERESIS = "hysteresis"
    DISPLACEMENT = "displacement"
    USER_FLOOR = "user_floor"
    STARVATION = "starvation"
    DEADLINE = "deadline"
    BAND = "band"


@dataclass(frozen=True, slots=True)
class Guards:
    """The knobs. As they stand here, none is on.

    Attributes:
        max_displacement: places that a job may be moved, up or down, from where Slurm had it among
            the jobs that we order; None = any.
        user_head: the first so many places are watched for fairness between users.
        user_floor: of the jobs that a user naturally has in the head, the first share, rounded
            up, stay in the head. So no user's part of it falls below this share of the natural
            one, and whoever had a job there keeps one.
    """

    max_displacement: int | None = None
    user_head: int = 0
    user_floor: float = 0.0

    def __post_init__(self) -> None:
        if self.max_displacement is not None and self.max_displacement < 0:
            raise ValueError(f"max_displacement {self.max_displacement} is negative")
        if self.user_head < 0:
            raise ValueError(f"user_head {self.user_head} is negative")
        if not 0 <= self.user_floor <= 1:
            raise ValueError(f"user_floor {self.user_floor} is outside 0..1")


@dataclass(frozen=True, slots=True)
class Windows:
    """Where each job may stand. natural, earliest, latest: (n,) places from 0, by job index.

    earliest <= natural <= latest for every job; natural is a permutation.
    """

    natural: IntArray
    earliest: IntArray
    latest: IntArray
    by: Mapping[Guard, tuple[IntArray, IntArray]]

    def hold(self, places: IntArray) -> bool:
        """Whether every job stands within its window."""
        return bool((self.excess(places) == 0).all())

    def excess(self, places: IntArray) -> IntArray:
        """(n,) how many places each job stands outside its window; 0 = within."""
        outside: IntArray = np.maximum(self.earliest - places, places - self.latest)
        return np.maximum(outside, 0)

    def no_worse(self, places: IntArray, now: IntArray) -> bool:
        """Whether no job stands outside its window, or none further outside than it does now.

        On the same side: who stands too far in front is not put too far behind instead.
        """
        earliest, latest = self.widened(now)
        return bool(((earliest <= places) & (places <= latest)).all())

    def widened(self, now: IntArray) -> tuple[IntArray, IntArray]:
        """(n,) earliest and latest place of each job that is no worse than where it stands now."""
        return np.minimum(self.earliest, now), np.maximum(self.latest, now)

    def bound(self, wanted: IntArray) -> dict[Guard, int]:
        """How many jobs the wanted places would put where each guard forbids."""
        return {
            guard: int(((wanted < earliest) | (wanted > latest)).sum())
            for guard, (earliest, latest) in self.by.items()
        }


def natural_value(job: PendingJob) -> int:
    """The priority by which Slurm would order the job without us.

    Exact but for a job that we froze by `Priority=`: for it, what it had before our first write
    (Slurm no longer tells what it would be now); without that, what it has.
    """
    if job.owned is None:
        return job.priority
    if job.owned.field == "priority":
        return job.priority if job.owned.original is None else job.owned.original
    return job.priority - (job.site_factor or 0) + (job.owned.original or 0)


def places(order: IntArray) -> IntArray:
    """(n,) the place of each job, from an order of job indices, first to run first."""
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.arange(len(order))
    return found


def windows(jobs: Sequence[PendingJob], guards: Guards, overdue: IntArray = NOBODY) -> Windows:
    """The places that all guards together allow.

    Args:
        jobs: the jobs that we order, in snapshot order, by which Slurm breaks ties.
        guards: the knobs.
        overdue: jobs that stand before all that were submitted later, whatever was natural.
    """
    count = len(jobs)
    values = np.array([natural_value(j) for j in jobs], dtype=np.int64)
    natural = _lifted(np.argsort(-values, kind="stable"), overdue, _with_deadline(jobs))
    first, last = np.zeros(count, dtype=np.int64), np.full(count, count - 1, dtype=np.int64)
    by = {
        Guard.DISPLACEMENT: _near(natural, guards.max_displacement),
        Guard.USER_FLOOR: (first, _kept_in_head(jobs, natural, guards)),
        Guard.STARVATION: (first, _not_behind(natural, overdue)),
        Guard.DEADLINE: (first, _not_behind(natural, _with_deadline(jobs))),
    }
    earliest = np.maximum.reduce([first, *(early for early, _ in by.values())])
    latest = np.minimum.reduce([last, *(late for _, late in by.values())])
    return Windows(natural, earliest, latest, by)


def _lifted(order: IntArray, overdue: IntArray, due: IntArray) -> IntArray:
    """(n,) natural places with the overdue jobs lifted; a deadline keeps its job where it was."""
    lifted, own = lift(order, overdue), places(order)
    natural = places(lifted)
    natural[due] = own[due]
    rest = lifted[~np.isin(lifted, due)]
    natural[rest] = np.setdiff1d(np.arange(len(order)), own[due])
    return natural


def _with_deadline(jobs: Sequence[PendingJob]) -> IntArray:
    return np.array([i for i, j in enumerate(jobs) if j.deadline_at is not None], dtype=np.int64)


def _not_behind(natural: IntArray, these: IntArray) -> IntArray:
    """(n,) the latest place: the natural one for these jobs, any for the others."""
    latest = np.full(len(natural), len(natural) - 1, dtype=np.int64)
    latest[these] = natural[these]
    return latest


def _near(natural: IntArray, most: int | None) -> tuple[IntArray, IntArray]:
    last = len(natural) - 1
    reach = max(last, 0) if most is None else most
    return np.maximum(natural - reach, 0), np.minimum(natural + reach, last)


def _kept_in_head(jobs: Sequence[PendingJob], natural: IntArray, guards: Guards) -> IntArray:
    """(n,) the latest place by the user floor: the head's last one for the jobs kept in it."""
    latest = np.full(len(jobs), len(jobs) - 1, dtype=np.int64)
    head = np.argsort(natural)[: guards.user_head].tolist()
    if not guards.user_floor or len(head) == len(jobs):
        return latest
    had = Counter(jobs[i].user for i in head)
    kept: dict[str, int] = defaultdict(int)
    for i in head:
        user = jobs[i].user
        if kept[user] < ceil(guards.user_floor * had[user] - _ROUNDING):
            kept[user] += 1
            latest[i] = len(head) - 1
    return latest


def project(wanted: IntArray, allowed: Windows) -> IntArray:
    """The order within the windows that is nearest to the wanted one.

    Place by place, the job that is wanted first of those that may stand there without leaving too
    few places for the rest; so no other order within the windows has a job that is wanted more at
    the first place where the two differ.

    Args:
        wanted: (n,) job indices, first to run first.
        allowed: the windows.

    Returns:
        (n,) job indices; the wanted order itself where it is within the windows.
    """
    if allowed.hold(places(wanted)):
        return wanted
    return _Projection(wanted, allowed).run()


class _Projection:
    """Works on jobs by natural place, since only those near a place can stand there.

    spare[b]: places up to b that are left, less the jobs that must stand there. Where it is 0 the
    next place must go to one of those jobs.
    """

    def __init__(self, wanted: IntArray, allowed: Windows) -> None:
        self._wanted = wanted
        self._allowed = allowed
        self._job_at = np.argsort(allowed.natural)
        self._count = len(wanted)
        self._rank = places(wanted)[self._job_at]
        self._earliest = allowed.earliest[self._job_at]
        self._latest = allowed.latest[self._job_at]
        steps = np.arange(self._count)
        self._up = int((steps - self._earliest).max())
        self._down = int((self._latest - steps).max())
        due = np.bincount(self._latest, minlength=self._count).cumsum()
        self._spare = steps + 1 - due
        self._placed: list[int] = []

    def run(self) -> IntArray:
        for place in range(self._count):
            if place % _PATIENCE == 0 and (rest := self._rest_as_wanted(place)) is not None:
                return np.concatenate([np.array(self._placed, dtype=np.int64), rest])
            at = self._choose(place)
            self._rank[at] = self._count  # taken
            self._spare[place + 1 : self._latest[at]] -= 1
            self._placed.append(int(self._job_at[at]))
        return np.array(self._placed, dtype=np.int64)

    def _choose(self, place: int) -> int:
        """Natural place of the job that gets this place."""
        low = max(0, place - self._down)
        near = slice(low, min(self._count, place + self._up + 1))
        tight = np.flatnonzero(self._spare[place : place + self._up + self._down + 1] == 0)
        due = place + int(tight[0]) if len(tight) else self._count
        may = (self._earliest[near] <= place) & (self._latest[near] <= due)
        return low + int(np.where(may, self._rank[near], self._count).argmin())

    def _rest_as_wanted(self, place: int) -> IntArray | None:
        left = np.ones(self._count, dtype=bool)
        left[self._placed] = False
        rest = self._wanted[left[self._wanted]]
        stands = np.arange(place, self._count)
        early, late = self._allowed.earliest[rest], self._allowed.latest[rest]
        return rest if ((early <= stands) & (stands <= late)).all() else None
