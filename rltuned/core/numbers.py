"""Delays as Slurm's numbers: what to write so that a job stands where its delay puts it.

A job's number depends on that job alone, so every write is right by itself and a plan that is half
written is a legal plan. Four rules, by what slurmctld does (docs/adr/0002):

| write mode  | priority system               | number                                            |
|-------------|-------------------------------|---------------------------------------------------|
| site_factor | multifactor, slurmctld ages   | original + floor(slope N) - floor(slope D_eff)    |
| site_factor | multifactor, it does not      | original - floor(own slope (D - age - N))         |
| priority    | multifactor                   | base now + floor(slope N) - floor(slope D_eff)    |
| priority    | basic                         | 4294967293 - floor((eligible + D - epoch) / 60 s) |

N is the neutral delay, that of a job to which rltuned wrote no number. D_eff is D less the time
that a job has waited beyond PriorityMaxAge, where its age no longer grows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rltuned.core.backlog import in_turns
from rltuned.core.cluster import BoolArray
from rltuned.core.features import FloatArray
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import MAX_PRIORITY, OWNED, PRIORITY, SITE_FACTOR, Field
from rltuned.domain.priority import PrioritySystem

IntArray = NDArray[np.int64]
WriteMode = Literal["auto", "site_factor", "priority"]

RESOLUTION_S: Final = 60.0
"""Seconds per point under priority/basic."""
EPOCH_S: Final = 15 * 86_400.0
"""Under priority/basic time counts from one to two of these ago: with 60 s a point that leaves 15
days above the numbers that slurmctld itself gives (at most HIGHEST_BASIC)."""
REFRESH_S: Final = 300.0
"""Where rltuned brings the age, a number may lag by so much."""
AHEAD_S: Final = 3_600.0
"""A job older than PriorityMaxAge has its number written so far ahead of need, to be written once
an hour and not once a cycle."""
FIRST_HYSTERESIS: Final = 0.3
"""A job that was never written is written when the neutral delay is off by more than this share."""
_ROUNDING: Final = 1e-6
"""So that a whole number of points that floating point puts a hair below is that number."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How numbers are written. mode: "auto": site factors under multifactor, priorities under
    basic. own_slope: points per second, where slurmctld counts no age. max_changes: per cycle.

    hysteresis: a delay that moves by less than this share, or min_step_s, is not written again: it
    swings with the backlog, and to follow every swing costs writes and gains little. A first write
    needs no more than FIRST_HYSTERESIS.
    """

    mode: WriteMode = "auto"
    own_slope: float = 0.1
    max_changes: int = 500
    hysteresis: float = 0.55
    min_step_s: float = 60.0

    def __post_init__(self) -> None:
        if self.max_changes < 0:
            raise ValueError(f"max_changes {self.max_changes} is negative")
        if not 0 <= self.hysteresis < 1:
            raise ValueError(f"hysteresis {self.hysteresis} is outside 0..1")
        if not self.own_slope > 0:
            raise ValueError(f"own_slope {self.own_slope} is not above 0")
        if not self.min_step_s >= 0:
            raise ValueError(f"min_step_s {self.min_step_s} is negative")

    def field(self, system: PrioritySystem) -> Field:
        if self.mode == "auto":
            return SITE_FACTOR if system.kind == "multifactor" else PRIORITY
        return OWNED[self.mode]


class Shortage(NamedTuple):
    """What priorities lack for the delays. jobs: whose delay is cut by more than LEAST_CUT_S.
    least_s: the shortest that is left. points: that all jobs lack.
    """

    jobs: int = 0
    least_s: float = 0.0
    points: int = 0

    @property
    def remedy(self) -> str:
        """For slurm.conf."""
        return (
            f"give all jobs {self.points} points more: raise PriorityWeightPartition by so much, "
            "with the same PriorityJobFactor, 1 or more, in every partition; where they differ, by "
            "so much times the highest over the lowest"
        )


LEAST_CUT_S: Final = 600.0
"""A delay that is cut by less orders nearly as well."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of the jobs that rltuned orders, (n,) each, and how they follow from delays.

    number = zero - floor(slope x max(0, D + offset_s, where the offset is negative))

    slope: points per second of delay. ceiling: the number is at most this. value: in force. base:
    what Slurm gives the job besides, so that base + value is its priority. longest_s: the longest
    delay with which the priority of a new such job would be at least 1; its own points (--nice)
    must not shorten the delays of others. drifts: the number changes from cycle to cycle, as age is
    in it. first: jobs that rltuned has not written yet. stale: those written before what they ask
    for, the worth of a second or the neutral delay changed. spent: those written to as often as
    they may be within an hour. None = none. user: (n,) numbers below users; 0 users: not known.
    """

    field: Field
    slope: float
    zero: FloatArray
    offset_s: FloatArray
    ceiling: FloatArray
    value: IntArray
    base: IntArray
    longest_s: FloatArray
    drifts: bool
    first: BoolArray
    stale: BoolArray | None = None
    spent: BoolArray | None = None
    user: IntArray | None = None
    users: int = 0

    @property
    def in_epochs(self) -> bool:
        """Whether all of them rise at once every EPOCH_S, as under priority/basic."""
        return self.field is PRIORITY and not self.drifts

    def of(self, delay_s: FloatArray) -> IntArray:
        """(n,) the numbers that stand for these delays."""
        points = np.floor(self.slope * (delay_s + self.offset_s) + _ROUNDING)
        return self.allowed(np.minimum(self.zero - points, self.ceiling))

    def allowed(self, found: NDArray[Any]) -> IntArray:
        """The numbers, those beyond what scontrol takes moved to its bounds."""
        room = self.field.room
        numbers: IntArray = np.clip(found, room[0], room[-1]).astype(np.int64)
        return numbers

    def shortage(self, wanted_s: FloatArray, nice: FloatArray) -> Shortage:
        """Of delays (n,) within the other bounds. Below 1 slurmctld keeps no order. nice: (n,)
        points that users have taken off their own jobs, which is no shortage of the site's.
        """
        short_s = wanted_s - (self.longest_s + np.maximum(nice, 0.0) / self.slope)
        cut = short_s > LEAST_CUT_S
        if not cut.any():
            return Shortage()
        # a point more: a priority of exactly 1 looks like one that slurmctld has cut
        points = ceil(self.slope * float(short_s.max())) + 1
        return Shortage(int(cut.sum()), max(0.0, float(self.longest_s[cut].min())), points)

    def in_force_s(self) -> FloatArray:
        """(n,) the delay that the number in force stands for; may be negative."""
        delay_s: FloatArray = (self.zero - self.value) / self.slope - self.offset_s
        return delay_s

    def priority(self, value: IntArray) -> IntArray:
        """(n,) the jobs' priorities with these numbers; slurmctld gives at least 1."""
        priority: IntArray = np.maximum(self.base + value, 1)
        return priority


def numbers_of(
    jobs: Sequence[PendingJob],
    system: PrioritySystem,
    field: Field,
    *,
    now: float,
    neutral_s: float,
    own_slope: float,
) -> Numbers | None:
    """How delays become numbers; None = no delay can be written. own_slope: points per second,
    where slurmctld counts no age. neutral_s: the neutral delay.
    """
    if system.kind == "basic":
        return None if field is SITE_FACTOR else _basic(jobs, now)
    if field is PRIORITY:
        return _aged(jobs, system, now, neutral_s, fixed=True) if system.slope else None
    if system.slope:
        return _aged(jobs, system, now, neutral_s, fixed=False)
    return None if system.ages else _unaged(jobs, system, now, neutral_s, own_slope)


def rest_of(job: PendingJob, system: PrioritySystem, now: float) -> int | None:
    """What neither age nor fair share moves of a priority under multifactor; None = not known."""
    if job.owned is not None and job.owned.field == "priority":
        return job.owned.rest
    if job.rest is not None or system.fair_weight:
        return job.rest
    return round(job.priority - system.slope * system.age_s(now - job.ages_since))


def base_now(job: PendingJob, system: PrioritySystem, now: float) -> float | None:
    """What multifactor would give a fixed job now; None = not known, as where sshare hides it."""
    rest, fair = rest_of(job, system, now), job.fair if system.fair_weight else 0.0
    if rest is None or fair is None:
        return None
    return rest + system.slope * system.age_s(now - job.ages_since) + fair


class Settled(NamedTuple):
    """value: (n,) each job's number after this cycle. waiting: the jobs due beyond the cap.
    withheld: those whose hourly budget keeps them where they are.
    """

    value: IntArray
    waiting: IntArray
    withheld: IntArray


def settle(numbers: Numbers, delay_s: FloatArray, upper_s: FloatArray, writing: Writing) -> Settled:
    """Which numbers are written in this cycle.

    Written is what is off by more than the hysteresis, or longer than the job's bound. Hysteresis
    is for wishes that swing with predictions and the queue: a stale number has none. A number that
    drifts may lag by REFRESH_S, at the bound too. A job beyond its hourly budget is only put
    further back, so that no one stops it where it gains.
    """
    wanted, have_s = numbers.of(delay_s), numbers.in_force_s()
    error_s = have_s - delay_s
    point_s = 1.0 / numbers.slope
    least_s = max(writing.min_step_s, point_s)
    share = np.where(numbers.first, min(FIRST_HYSTERESIS, writing.hysteresis), writing.hysteresis)
    if numbers.stale is not None:
        share = np.where(numbers.stale, 0.0, share)
    relative_s = share * np.maximum(delay_s, have_s)
    refresh_s = REFRESH_S if numbers.drifts else 0.0
    behind_s = refresh_s if numbers.drifts else np.maximum(relative_s, least_s)
    ahead_s = np.maximum(relative_s, max(least_s, refresh_s))
    due = (error_s > behind_s) | (-error_s > ahead_s) | (have_s > upper_s + point_s + refresh_s)
    due &= wanted != numbers.value
    withheld = np.zeros(len(due), dtype=bool)
    if numbers.spent is not None:
        withheld = due & numbers.spent & (wanted > numbers.value)
    candidates = _by_turn(numbers, np.flatnonzero(due & ~withheld), wanted, error_s)
    settled = numbers.value.copy()
    now = candidates[: writing.max_changes]
    settled[now] = wanted[now]
    return Settled(settled, candidates[writing.max_changes :], np.flatnonzero(withheld))


def _by_turn(
    numbers: Numbers, candidates: IntArray, wanted: IntArray, error_s: FloatArray
) -> IntArray:
    """The candidates, the most urgent first.

    Users take turns, so that none holds the cap: of each user first writes come first, then the
    largest errors. Where all numbers rise with the epoch those that still stand in the last one
    come before, the highest first: they stand above all that wait for the cap.
    """
    urgent = wanted if numbers.in_epochs else np.abs(error_s)
    order = candidates[np.lexsort((-urgent[candidates], ~numbers.first[candidates]))]
    user = numbers.user if numbers.user is not None else np.zeros(len(wanted), dtype=np.int64)
    found = in_turns(order, user, numbers.users)
    if not numbers.in_epochs:
        return found
    risen = ~numbers.first[found] & (np.abs(error_s[found]) > EPOCH_S / 2)
    above = found[risen]
    above = above[np.argsort(-wanted[above], kind="stable")]
    return np.concatenate([above, found[~risen]])


def _original(job: PendingJob) -> int:
    if job.owned is not None and job.owned.field == "site_factor":
        return job.owned.original or 0
    return job.site_factor or 0


def _aged(
    jobs: Sequence[PendingJob], system: PrioritySystem, now: float, neutral_s: float, *, fixed: bool
) -> Numbers:
    """fixed: the priority itself is written, and stands while what Slurm gives others drifts."""
    if fixed:
        base, value = np.zeros(len(jobs), dtype=np.int64), _ints(j.priority for j in jobs)
        known = [base_now(j, system, now) for j in jobs]
        given = [j.priority if b is None else b for j, b in zip(jobs, known, strict=True)]
        zero = np.floor(given)  # as slurmctld does
    else:
        base, value = _ints(_base(j) for j in jobs), _ints(j.site_factor or 0 for j in jobs)
        zero = _ints(_original(j) for j in jobs).astype(np.float64)
    zero += floor(system.slope * neutral_s + _ROUNDING)
    return Numbers(
        field=PRIORITY if fixed else SITE_FACTOR,
        slope=system.slope,
        zero=zero,
        offset_s=-_beyond_s(jobs, system, now),
        ceiling=zero,
        value=value,
        base=base,
        longest_s=(base + zero - 1) / system.slope - _ages_s(jobs, system, now),
        drifts=fixed,
        first=_first(jobs),
    )


def _unaged(
    jobs: Sequence[PendingJob],
    system: PrioritySystem,
    now: float,
    neutral_s: float,
    own_slope: float,
) -> Numbers:
    original = _ints(_original(j) for j in jobs)
    base = _ints(_base(j) for j in jobs)
    return Numbers(
        field=SITE_FACTOR,
        slope=own_slope,
        zero=original.astype(np.float64),
        offset_s=-(_ages_s(jobs, system, now) + neutral_s),
        ceiling=np.full(len(jobs), np.inf),
        value=_ints(j.site_factor or 0 for j in jobs),
        base=base,
        longest_s=(base + original - 1) / own_slope + neutral_s,
        drifts=True,
        first=_first(jobs),
    )


def _basic(jobs: Sequence[PendingJob], now: float) -> Numbers:
    epoch = (now // EPOCH_S - 1) * EPOCH_S
    since = np.array([j.ages_since for j in jobs], dtype=np.float64)
    return Numbers(
        field=PRIORITY,
        slope=1.0 / RESOLUTION_S,
        zero=np.full(len(jobs), float(MAX_PRIORITY)),
        offset_s=since - epoch,
        ceiling=np.full(len(jobs), np.inf),
        value=_ints(j.priority for j in jobs),
        base=np.zeros(len(jobs), dtype=np.int64),
        longest_s=np.full(len(jobs), np.inf),
        drifts=False,
        first=_first(jobs),
    )


def _base(job: PendingJob) -> int:
    return job.priority - (job.site_factor or 0) if job.base is None else job.base


def _ages_s(jobs: Sequence[PendingJob], system: PrioritySystem, now: float) -> FloatArray:
    """(n,) seconds of waiting that count."""
    return np.array([system.age_s(now - j.ages_since) for j in jobs], dtype=np.float64)


def _beyond_s(jobs: Sequence[PendingJob], system: PrioritySystem, now: float) -> FloatArray:
    """(n,) how long each job has waited beyond PriorityMaxAge, and a little ahead of it."""
    waited_s = np.array([now - j.ages_since for j in jobs], dtype=np.float64)
    beyond_s = waited_s - system.max_age_s
    return np.where(beyond_s > 0, np.ceil(beyond_s / AHEAD_S) * AHEAD_S, 0.0)


def _first(jobs: Sequence[PendingJob]) -> BoolArray:
    return np.array([job.owned is None for job in jobs], dtype=bool)


def _ints(values: object) -> IntArray:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]
