"""Blocks with and without delays, what they say of the waits, and the circuit breakers.

A coin decided which block of a pair was on, so the mean difference of the pairs is the effect of
delays, whatever the queue did meanwhile; pairs, not jobs, are what chance may vary.
"""

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from math import sqrt
from statistics import fmean
from types import MappingProxyType
from typing import Any, Final

from rltuned.core.ladder import MOST_APART_S, Evidence, Switchback, difference
from rltuned.domain.jobs import (
    JobRun,
    PendingJob,
    RunKey,
    RunNews,
    Side,
    bounded_slowdown,
)
from rltuned.domain.plan import HELD, Outcome, Result
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, JobKey, UnixTime
from rltuned.journal.store import Kept, Memory, Recall
from rltuned.stats import Word, t95, word_of

# Pairs of an on block and an off block, and how long the users of each waited.
#
# A job counts in the block in which it became eligible, unless that was in the washout. A job that
# still waits after HORIZON_S counts as that. No evidence is a job of several partitions, one that
# others have changed or held (Touched), one that was requeued, and one that left without being seen
# to run. Only pairs that were watched and written without a gap are decided: a restart, a stage
# that writes nothing or a long pause between two cycles forgets all that is not decided yet.


HORIZON_S: Final = 86_400.0
"""A longer wait counts as this: the verdict on a pair must come some day."""
Means = Mapping[str, float]
"""By user."""


@dataclass(frozen=True, slots=True)
class PairFigure:
    """One figure of a pair: by user, the mean over the user's jobs in the on and the off block."""

    on: Means
    off: Means

    @property
    def means(self) -> tuple[float, float] | None:
        """Over the users of each block; None = one has no user."""
        return (fmean(self.on.values()), fmean(self.off.values())) if self.on and self.off else None


@dataclass(frozen=True, slots=True)
class Pair:
    """A decided pair. wait: in seconds; slowdown: bounded, if each job runs to its limit."""

    partition: str
    wait: PairFigure
    slowdown: PairFigure


@dataclass(slots=True)
class _Job:
    """wait_s: None = it waits. out: it is no evidence any more."""

    on: bool
    user: str
    since: float
    limit_s: float | None
    wait_s: float | None = None
    out: bool = False

    def is_awaited(self, now: float) -> bool:
        return not self.out and self.wait_s is None and now - self.since < HORIZON_S

    @property
    def counted_s(self) -> float:
        return HORIZON_S if self.wait_s is None else min(max(0.0, self.wait_s), HORIZON_S)

    @property
    def slowdown(self) -> float | None:
        """How long it really runs is for its user to choose: scancel ends it at any time."""
        if self.limit_s is None or self.limit_s == math.inf:
            return None
        return bounded_slowdown(self.counted_s, self.limit_s)


class Blocks:
    """The pairs of every partition."""

    def __init__(self, switchback: Switchback) -> None:
        self._switchback = switchback
        self._since: float | None = None
        self._seen_at = 0.0
        self._pairs: dict[str, dict[int, tuple[float, list[_Job]]]] = defaultdict(dict)  # end, jobs
        self._open: dict[JobKey, _Job] = {}
        self._known: set[JobKey] = set()
        self._ran: dict[RunKey, _Job] = {}

    def look(
        self,
        seen: Snapshot,
        sides: Mapping[JobId, Side],
        runs: RunNews,
        touched: Collection[JobKey] = (),
        *,
        demoted: Iterable[str] = (),
        live: bool,
    ) -> tuple[Pair, ...]:
        """Take in one look; the pairs decided now, in the order of time. sides: of every pending
        job. runs: with sides. touched: units that others have changed. demoted: see Context. live:
        whether this cycle could write.
        """
        now = float(seen.taken_at)
        is_next = 0.0 <= now - self._seen_at <= MOST_APART_S  # below: the clock was ahead
        if not live or self._since is None or not is_next:
            self._since = now if live else None
            self._pairs.clear()
            self._open.clear()
        self._seen_at = now
        for name in demoted:
            self._pairs.pop(name, None)
        self._settle(seen, runs, touched)
        self._join(seen, sides)
        return tuple(self._decided(now))

    def _settle(self, seen: Snapshot, runs: RunNews, touched: Collection[JobKey]) -> None:
        for unit in self._open.keys() & set(touched):
            self._open.pop(unit).out = True
        over = {run.job.job_id for run in runs.over}
        again = {job.job_id: job.unit for job in seen.pending if job.job_id in over}
        again |= {job.job_id: job.unit for job in seen.running if job.job_id in over}
        for run in runs.started:
            job = self._open.pop(run.job.unit, None)
            if job is None and run.job.job_id not in again:
                job = self._unseen(run)
            if job is not None:
                job.wait_s = run.job.started_at - job.since
                self._ran[run.key] = job
        for run in runs.over:
            if (job := self._ran.pop(run.key, None)) is not None and run.job.job_id in again:
                job.out = True  # it was requeued: what its first wait was is no evidence either
        pending = {job.unit for job in seen.pending}
        self._known = (self._known & pending) | set(touched) | set(again.values())
        # cancelled, requeued, or started and ended between two looks: its wait is not known
        for unit in self._open.keys() - pending:
            self._open.pop(unit).out = True

    def _unseen(self, run: JobRun) -> _Job | None:
        """A job that started before it was seen waiting."""
        job = run.job
        if job.unit in self._known or run.side is Side.OTHER or run.wait_s is None:
            return None
        self._known.add(job.unit)
        since = job.started_at - run.wait_s
        return self._enrol(job.partition, since, job.user, job.request.time_limit_s)

    def _enrol(self, name: str, since: float, user: str, limit_s: float | None) -> _Job | None:
        """Count a job in its block; None = it is in no block that counts."""
        block = self._switchback.block(name, since)
        watched = self._since is not None and block.pair_begins_at >= self._since
        if not (watched and block.measured) or since < block.counts_from:
            return None
        job = _Job(block.on, user, since, limit_s)
        self._pairs[name].setdefault(block.pair, (block.pair_ends_at, []))[1].append(job)
        return job

    def _join(self, seen: Snapshot, sides: Mapping[JobId, Side]) -> None:
        for job in seen.pending:
            unit = job.unit
            if unit in self._known or sides.get(job.job_id, Side.OTHER) is Side.OTHER:
                continue
            self._known.add(unit)
            one = job.partitions[0] if len(job.partitions) == 1 else None
            limit_s, since = job.request.time_limit_s, float(job.waits_since)
            new = None if one is None else self._enrol(one, since, job.user, limit_s)
            if new is not None:
                self._open[unit] = new

    def _decided(self, now: float) -> Iterator[Pair]:
        for name, pairs in self._pairs.items():
            for number in sorted(pairs):
                ends_at, jobs = pairs[number]
                if now < ends_at or any(job.is_awaited(now) for job in jobs):
                    break
                del pairs[number]
                left = [job for job in jobs if not job.out]
                yield Pair(
                    name,
                    _figure((job, job.counted_s) for job in left),
                    _figure((job, job.slowdown) for job in left),
                )


def _figure(values: Iterable[tuple[_Job, float | None]]) -> PairFigure:
    sides: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for job, value in values:
        if value is not None:
            sides[job.on].setdefault(job.user, []).append(value)
    on, off = ({user: fmean(of) for user, of in sides[side].items()} for side in (True, False))
    return PairFigure(on, off)


FEWEST: Final = 10
"""Pairs below which no interval is given."""
WORDS: Final[dict[Word, str]] = {
    "better": "it helps",
    "worse": "it harms",
    "no proven difference": "chance can explain it",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """Sums over pairs of blocks with jobs in both: mean waits, squares of their differences."""

    pairs: int = 0
    on_sum_s: float = 0.0
    off_sum_s: float = 0.0
    squares: float = 0.0

    def __add__(self, other: "Effect") -> "Effect":
        return Effect(*map(operator.add, astuple(self), astuple(other)))

    @staticmethod
    def of(on_s: float, off_s: float) -> "Effect":
        return Effect(1, on_s, off_s, (on_s - off_s) ** 2)

    @property
    def interval_s(self) -> tuple[float, float, float] | None:
        """Mean wait of on less off blocks, and its 95 % interval; None = too few pairs."""
        if self.pairs < FEWEST:
            return None
        apart_s = (self.on_sum_s - self.off_sum_s) / self.pairs
        spread = max(0.0, self.squares - self.pairs * apart_s**2) / (self.pairs - 1)
        reach_s = t95(self.pairs - 1) * sqrt(spread / self.pairs)
        return apart_s, apart_s - reach_s, apart_s + reach_s

    @property
    def helps(self) -> bool:
        """Whether waits are shorter in on blocks, and chance cannot explain it."""
        found = self.interval_s
        return found is not None and word_of(*found[1:]) == "better"

    @property
    def verdict(self) -> str:
        found = self.interval_s
        if found is None:
            return f"{self.pairs} of {FEWEST} pairs of blocks are measured"
        apart_s, low_s, high_s = found
        known = WORDS[word_of(low_s, high_s)]
        return (
            f"{known}: mean wait {self.on_sum_s / self.pairs:.0f} s in on blocks, "
            f"{self.off_sum_s / self.pairs:.0f} s in off blocks of {self.pairs} pairs, "
            f"{apart_s:+.0f} s, 95 % interval {low_s:+.0f} to {high_s:+.0f} s"
        )

    def document(self) -> dict[str, Any]:
        """For JSON; what is not known is null."""
        apart_s, low_s, high_s = self.interval_s or (None, None, None)
        return {
            "pairs": self.pairs,
            "on_s": self.on_sum_s / self.pairs if self.pairs else None,
            "off_s": self.off_sum_s / self.pairs if self.pairs else None,
            "difference_s": apart_s,
            "low_s": low_s,
            "high_s": high_s,
            "verdict": self.verdict,
        }


# The circuit breakers: per partition, kept in the journal, opened here, closed by a person only.
#
# An open one demotes its partition: its jobs leave the scope, and those with a number of rltuned's
# get their own standing back. It stays open over restarts until `rltuned breaker reset`.


_FEWEST_USERS: Final = 2
_RIGHTS: Final = "permission denied"
"""In Slurm's refusal when rltuned lacks the rights: no user can cause that for another."""


class Cause(StrEnum):
    """Why a breaker opened. The value is the metric label and the log word."""

    ERRORS = "errors"
    WAIT = "wait"
    SLOWDOWN = "slowdown"


@dataclass(frozen=True, slots=True)
class Breaker:
    """One partition's. opened_at: Unix seconds; None = closed. errors: cycles in a row in which
    Slurm did not take most changes. model: digest or name of what the rest is about. harm: by
    cause, the evidence that delays do harm. waits: in on and in off blocks.
    """

    opened_at: float | None = None
    cause: Cause | None = None
    detail: str = ""
    errors: int = 0
    model: str = ""
    harm: Mapping[Cause, Evidence] = field(default_factory=dict)
    waits: Effect = field(default_factory=Effect)

    @property
    def is_open(self) -> bool:
        return self.opened_at is not None

    def opened(self, cause: Cause, detail: str, at: float) -> "Breaker":
        return Breaker(opened_at=at, cause=cause, detail=detail)


Breakers = Mapping[str, Breaker]
"""By partition."""
NONE: Final[Breakers] = MappingProxyType({})

BREAKERS: Final[Kept[dict[str, Breaker]]] = Kept("breakers", dict[str, Breaker], "circuit breakers")
"""Those of every cluster; a partition that is not named has a closed one."""


def breakers(memory: Recall, cluster: str) -> dict[str, Breaker]:
    """Those of one cluster; raises as Kept.read."""
    return BREAKERS.read(memory).get(cluster, {})


def demoted(memory: Recall, cluster: str) -> tuple[str, ...]:
    """The partitions whose breaker is open; raises as Kept.read."""
    return tuple(sorted(name for name, b in breakers(memory, cluster).items() if b.is_open))


def effect(known: Breakers, model: str) -> Effect:
    """What is known of the effect of delays, over all partitions, under one model."""
    return sum((b.waits for b in known.values() if b.model == model), Effect())


def change(
    memory: Memory, cluster: str, alter: Callable[[Breakers], Breakers], at: float
) -> Breakers:
    """Put altered breakers in place of a cluster's, when they differ; returns them."""
    return BREAKERS.change(memory, cluster, lambda known: dict(alter(known or {})), at)


def reset(memory: Memory, partition: str | None, at: float) -> list[tuple[str, str]]:
    """Close breakers, of one partition or of all; returns (cluster, partition) of the open ones."""
    closed: list[tuple[str, str]] = []

    def put(every: dict[str, dict[str, Breaker]]) -> dict[str, dict[str, Breaker]]:
        closed[:] = [
            (cluster, name)
            for cluster, those in every.items()
            for name, breaker in those.items()
            if breaker.is_open and partition in {None, name}
        ]
        return {
            cluster: {name: b for name, b in those.items() if (cluster, name) not in closed}
            for cluster, those in every.items()
        }

    BREAKERS.alter(memory, put, at)
    return sorted(closed)


def failing(pending: Iterable[PendingJob], outcomes: Iterable[Outcome]) -> dict[str, str]:
    """Partitions, of those that changes were sent to, with what went wrong; empty text = nothing.

    Users are counted, not changes, so that no user with many jobs decides. A user counts when Slurm
    refused, or shows otherwise when read back, more than half of the changes to their jobs; a
    partition fails when more than half of its users count, and at least two: one user can undo
    every change to their own jobs. Where rltuned lacks the rights one is enough.

    No evidence is a job that is held by now, that has left the queue, or to which nothing was sent.
    """
    jobs = {job.job_id: job for job in pending}
    bad: Counter[tuple[str, str]] = Counter()
    good: Counter[tuple[str, str]] = Counter()
    details: dict[str, str] = {}
    for outcome in outcomes:
        job = jobs.get(outcome.action.target.job_id)
        if job is None or outcome.result in {Result.WITHHELD, Result.GONE}:
            continue
        if outcome.result is Result.APPLIED:
            good.update((name, job.user) for name in job.partitions)
        elif outcome.detail != HELD:
            bad.update((name, job.user) for name in job.partitions)
            for name in job.partitions:
                details.setdefault(name, outcome.detail)
    users = {*bad, *good}
    return {
        name: _verdict([bad[key] > good[key] for key in users if key[0] == name], details.get(name))
        for name in {name for name, _ in users}
    }


def _verdict(failing: list[bool], detail: str | None) -> str:
    count = sum(failing)
    enough = count >= _FEWEST_USERS or _RIGHTS in (detail or "").lower()
    if not enough or 2 * count <= len(failing):
        return ""
    return f"changes not taken, of {count} of {len(failing)} users: {detail}"


def count_errors(
    before: Breakers, failures: Mapping[str, str], most: int, at: float
) -> dict[str, Breaker]:
    """The breakers after one cycle's changes: the errors counted, and opened at `most` in a row."""
    after = dict(before)
    for name, detail in failures.items():
        breaker = before.get(name, Breaker())
        if breaker.is_open:
            continue
        errors = breaker.errors + 1 if detail else 0
        if errors >= most:
            after[name] = breaker.opened(Cause.ERRORS, f"{errors} cycles in a row: {detail}", at)
        elif errors != breaker.errors:
            after[name] = replace(breaker, errors=errors)
    return after


def weigh(
    before: Breakers, pair: Pair, *, margin: float, at: float, model: str
) -> dict[str, Breaker]:
    """The breakers after one more pair of blocks. margin: the share by which waits may be longer in
    on blocks. model: of the on block; what is known of another one is dropped, never pooled.
    """
    breaker = before.get(pair.partition, Breaker())
    means = pair.wait.means
    if breaker.is_open or means is None:
        return dict(before)
    if breaker.model != model:
        breaker = replace(breaker, model=model, harm={}, waits=Effect())
    harm = dict(breaker.harm)
    for cause, figure in ((Cause.WAIT, pair.wait), (Cause.SLOWDOWN, pair.slowdown)):
        found = difference(figure.on, figure.off)
        if found is not None:
            harm[cause] = harm.get(cause, Evidence()).after(found, margin)
    after = replace(breaker, harm=harm, waits=breaker.waits + Effect.of(*means))
    for cause, evidence in harm.items():
        if evidence.is_enough:
            detail = f"a longer {cause} in on blocks: {evidence.value:.0f} to 1"
            after = breaker.opened(cause, f"{detail} after {evidence.pairs} pairs of blocks", at)
    return {**before, pair.partition: after}


class Touched:
    """Waiting jobs that others have changed or held, from look to look. `units`: those.

    They are no evidence: a user may change, hold and free their own jobs, and sees whether delays
    are on, so that one user could make on blocks look worse than off blocks, or better.
    """

    def __init__(self) -> None:
        self.units: set[JobKey] = set()
        self._asked: dict[JobKey, tuple[object, ...]] = {}
        self._eligible: dict[JobKey, UnixTime] = {}
        self._left: set[JobKey] = set()

    def look(self, seen: Snapshot) -> None:
        """Take in one look. A job stays touched until it has left the queue, and one look more."""
        gone = self._asked.keys() - {job.key for job in seen.pending}
        here = {job.unit for job in seen.pending}
        self.units -= self._left - here
        self._left = self.units - here
        for key in gone:
            self._asked.pop(key)
            self._eligible.pop(key, None)
        self.units.update(job.unit for job in self._changed(seen.pending, seen.taken_at))

    def _changed(self, pending: Iterable[PendingJob], now: float) -> Iterable[PendingJob]:
        for job in pending:
            key, asked = job.key, _asked(job)
            moved = job.eligible_at is None or job.eligible_at > now
            was = self._eligible.get(key)
            # a hold and its release between two looks leave nothing but a new eligible time
            postponed = was is not None and (moved or job.eligible_at != was)
            if not moved and job.eligible_at is not None:
                self._eligible[key] = job.eligible_at
            set_by_others = job.taken_over or (job.fixed and job.owned is None)
            is_held = job.is_held
            if is_held or set_by_others or postponed or self._asked.setdefault(key, asked) != asked:
                yield job


def _asked(job: PendingJob) -> tuple[object, ...]:
    """What its user asked for, without what rltuned changes of it."""
    ours = job.owned is not None and job.owned.field == "priority" and job.nice == 0
    nice = (job.owned.nice or 0) if ours and job.owned is not None else job.nice
    request = replace(job.request, exclusive=False) if job.request.exclusive else job.request
    return (
        request, job.partitions, job.user, job.account, job.qos, nice, job.reservation,
        job.required_nodes, job.excluded_nodes,
    )  # fmt: skip
