"""Which runs began and ended between two looks: the one place that follows runs of jobs.

A run is a job's number and its start; a task of an array is a job of its own. Slurm says when a run
began, so a lost cycle costs no start. Nobody says when it ended: that lies between two looks.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

from rltuned.core.decide import Decision
from rltuned.core.ladder import MOST_APART_S, Block, Ladder, Switchback
from rltuned.core.order import SlaClass, class_of
from rltuned.core.refusals import Consequence
from rltuned.core.select import Reservations, Scope, cannot_start, scope, select
from rltuned.daemon import breaker
from rltuned.daemon.breaker import Breakers, Effect
from rltuned.domain.jobs import (
    JobRun,
    PendingJob,
    RunKey,
    RunNews,
    RunningJob,
    Side,
    bounded_slowdown,
)
from rltuned.domain.plan import Outcome
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, JobKey, UnixTime
from rltuned.journal.store import Memory

APART_S: Final = 600.0
APART_SHARE: Final = 0.1
"""Looks further apart than both, the second of the time that the job ran, do not show its end."""
LIMBO_S: Final = 600.0
"""A job that is completing ends sooner; of one that is suspended longer the end is not known."""
_CLOCK_S: Final = 1.0
"""Slurm's times are whole seconds."""
_UNKNOWN: Final = JobId(0)


@dataclass(frozen=True, slots=True)
class _Gone:
    """A job that ran at one look and not at the next. Unix times of both looks."""

    job: RunningJob
    last: float
    missed: float

    @property
    def ended_at(self) -> UnixTime | None:
        """None = the looks lie too far apart, or the clock went back."""
        ran_s = self.last - self.job.started_at
        if not 0.0 <= self.missed - self.last <= max(APART_S, APART_SHARE * ran_s):
            return None
        at = min((self.last + self.missed) / 2, self.job.latest_end())
        return UnixTime(max(float(self.job.started_at), at))


class JobTracker:
    """Compares each look with the one before.

    One that is gone may be completing or suspended, or its row cannot be read: that is decided
    later. One that is pending again, or runs with another start, was requeued, by a user, a
    preemption or the failure of a node: its end is not known. Nor is that of a job that was
    suspended or unreadable meanwhile, or of a cluster that was not polled for long. Polls cannot
    tell a job that failed with its node from one that ended.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._cluster = ""
        self._running: dict[RunKey, RunningJob] = {}
        self._gone: dict[RunKey, _Gone] = {}
        self._interrupted: set[RunKey] = set()

    def look(self, seen: Snapshot) -> RunNews:
        """What has happened since the last look; nothing at the first one of a cluster."""
        last, self._at = self._at, float(seen.taken_at)
        if seen.cluster != self._cluster:
            last, self._cluster, self._running, self._gone = None, seen.cluster, {}, {}
        running = {(job.job_id, job.started_at): job for job in seen.running}
        before, self._running = self._running, running
        if last is None:
            return RunNews()
        started = tuple(
            JobRun(job)
            for key, job in running.items()
            # one that was suspended and runs on has started long ago
            if key not in before and key not in self._gone and job.started_at >= last - _CLOCK_S
        )
        missing = before.keys() - running.keys()
        self._gone |= {key: _Gone(before[key], last, self._at) for key in missing}
        over = self._settle(seen) if self._gone else []
        undecided = (one for one in self._gone.values() if not self._is_late(one))
        return RunNews(started, tuple(over), tuple(one.job for one in undecided))

    def _is_late(self, gone: _Gone) -> bool:
        return (self._at or 0.0) - gone.missed > LIMBO_S

    def _settle(self, seen: Snapshot) -> list[JobRun]:
        """Decide what became of those that are gone, where it shows by now; the first end first."""
        hidden = seen.hidden_ids()
        elsewhere, is_anyone_hidden = hidden | set(seen.lingering), _UNKNOWN in hidden
        again = {job.job_id for job in seen.pending} | {job.job_id for job in seen.running}
        over: list[JobRun] = []
        for key, gone in list(self._gone.items()):
            is_late = self._is_late(gone)
            if key in self._running:
                self._interrupted.add(key)
            elif key[0] in again:
                over.append(JobRun(gone.job))
            elif key[0] in elsewhere:
                self._interrupted |= {key} if is_late else set()
                continue
            elif is_anyone_hidden and not is_late:
                continue
            else:
                is_known = not is_anyone_hidden and key not in self._interrupted
                over.append(JobRun(gone.job, gone.ended_at if is_known else None))
            del self._gone[key]
        self._interrupted &= self._running.keys() | self._gone.keys()
        return sorted(over, key=lambda run: (run.ended_at or 0.0, run.job.job_id))


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


# -- Jobs that others have changed -----------------------------------------------------------------


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


# What is learned at each stage: the waits of jobs, and whether delays do harm.


@dataclass(frozen=True, slots=True)
class ClassCount:
    """Since the last look: jobs that started or passed the bound; those that waited too long."""

    jobs: int = 0
    breaches: int = 0


class PromiseWatch:
    """Counts each job once, from look to look: when it passes its bound, or starts in time."""

    def __init__(self) -> None:
        self._looked_at: float | None = None

    def look(
        self, classes: Sequence[SlaClass], seen: Snapshot, started: Iterable[JobRun]
    ) -> Mapping[SlaClass, ClassCount]:
        """What has happened since the last look. classes: the first that fits a job counts it."""
        last, self._looked_at = self._looked_at, float(seen.taken_at)
        counts = {one: [0, 0] for one in classes}
        if last is None or not classes:
            return {one: ClassCount() for one in counts}
        full, reservations = seen.full_arrays(), Reservations(seen)
        for job in seen.pending:
            one = class_of(job, classes)
            # one that cannot start, whatever the order, is not late
            if one is None or cannot_start(job, reservations) is not None:
                continue
            if job.array is not None and job.array.array_job_id in full:
                continue
            late = _passed(one, job.waits_since, last, seen.taken_at)
            counts[one][0] += late
            counts[one][1] += late
        for run in (start.job for start in started):
            fits = (c for c in classes if c.covers((run.partition,), run.qos, run.account))
            one = next(fits, None)
            if one is None or run.waits_since is None:
                continue
            late = _passed(one, run.waits_since, last, run.started_at)
            counts[one][0] += late or run.started_at - run.waits_since <= one.max_wait_s
            counts[one][1] += late
        return {one: ClassCount(*found) for one, found in counts.items()}


def _passed(one: SlaClass, since: UnixTime, last: float, until: float) -> bool:
    """Whether a wait passed its bound between the last look and a time."""
    return last - since <= one.max_wait_s < until - since


@dataclass(frozen=True, slots=True)
class CanaryStatus:
    """What one cycle showed; events since the last poll. runs: those that started, and of those
    before that are over, with sides. breakers: by
    partition, after this cycle; opened: in it. pairs: of blocks, decided in it. blocks, effect:
    empty and None without a switchback.
    """

    runs: RunNews = field(default_factory=RunNews)
    breakers: Breakers = field(default_factory=dict)
    opened: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    blocks: Mapping[str, Block] = field(default_factory=dict)
    effect: Effect | None = None
    promises: Mapping[SlaClass, ClassCount] = field(default_factory=dict)

    @property
    def demoted(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, breaker in self.breakers.items() if breaker.is_open))

    @property
    def off(self) -> tuple[str, ...]:
        return tuple(name for name, block in self.blocks.items() if not block.on)


class Monitor:
    """Follows the jobs from look to look, weighs the evidence, and opens breakers."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._sides: Mapping[JobKey, Side] = {}  # of what waited at the last look
        self._begun: dict[RunKey, Side] = {}
        self._tracker, self._news = JobTracker(), RunNews()
        self._touched = Touched()
        self._promises = PromiseWatch()
        self._terms: tuple[Switchback | None, str] | None = None
        self._blocks: Blocks | None = None

    def look(self, seen: Snapshot) -> RunNews:
        """Take in one look: what has happened to runs since the last one."""
        news = self._tracker.look(seen)
        self._news += news
        return news

    def judge(
        self,
        ladder: Ladder,
        rules: Scope,
        seen: Snapshot,
        decision: Decision | None,
        outcomes: Iterable[Outcome],
        *,
        live: bool,
        demoted: Collection[str] = (),
        model: str = "",
        sla: Sequence[SlaClass] = (),
    ) -> CanaryStatus:
        """Take in the cycle of the last look. decision: None = it only looked. live: it was allowed
        to write; a block with a cycle that was not is no evidence. model: digest or name. Raises
        JournalError.
        """
        if (rules.switchback, model) != self._terms:  # what is open belongs to other terms
            self._terms = rules.switchback, model
            self._blocks = Blocks(rules.switchback) if rules.switchback else None
        writes, begun = ladder.rung.writes, self._news.started
        sides = sides_of(seen, decision, rules, demoted, writes=writes, started=begun)
        runs, self._news = self._on_sides(sides), RunNews()
        self._sides = _sides_of_units(seen.pending, sides)
        self._touched.look(seen)
        pairs: tuple[Pair, ...] = ()
        if self._blocks is not None:
            pairs = self._blocks.look(
                seen, sides, runs, self._touched.units, demoted=demoted, live=live
            )
        failures = breaker.failing(seen.pending, outcomes)
        at = float(seen.taken_at)

        def alter(before: Breakers) -> Breakers:
            after = breaker.count_errors(before, failures, ladder.max_errors, at)
            for pair in pairs:
                after = breaker.weigh(after, pair, margin=ladder.margin, at=at, model=model)
            return after

        after = breaker.change(self._memory, seen.cluster, alter, at)
        opened = [n for n, b in after.items() if b.is_open and n not in demoted]
        blocks, effect = {}, None
        if rules.switchback is not None:
            names = scope(seen, rules, demoted)
            blocks = {name: rules.switchback.block(name, at) for name in names}
            effect = breaker.effect(after, model)
        kept = self._promises.look(sla, seen, runs.started)
        opened_now = tuple(sorted(opened))
        return CanaryStatus(runs, after, opened_now, pairs, blocks, effect, kept)

    def _on_sides(self, sides: Mapping[JobId, Side]) -> RunNews:
        """The news with sides: a job keeps the one that it had while it waited."""
        for run in self._news.started:
            side = self._sides.get(run.job.unit) or sides.get(run.job.job_id, Side.OTHER)
            self._begun[run.key] = side
        started = tuple(replace(run, side=self._begun[run.key]) for run in self._news.started)
        met = (run for run in self._news.over if run.key in self._begun)
        return RunNews(started, tuple(replace(run, side=self._begun.pop(run.key)) for run in met))


def _sides_of_units(
    pending: Iterable[PendingJob], sides: Mapping[JobId, Side]
) -> Mapping[JobKey, Side]:
    found: dict[JobKey, Side] = {}
    for job in pending:
        unit = job.unit
        # of an array one record may be held and the others not
        if found.get(unit, Side.OTHER) is Side.OTHER:
            found[unit] = sides.get(job.job_id, Side.OTHER)
    return found


def sides_of(
    seen: Snapshot,
    decision: Decision | None,
    rules: Scope,
    demoted: Collection[str] = (),
    *,
    writes: bool,
    started: Iterable[JobRun] = (),
) -> Mapping[JobId, Side]:
    """The side of every pending job, by the block in which it became eligible.

    And of those that have just started: one that starts at once is never seen waiting, and counts
    all the same. Where a QOS is excluded that of a running job is not known, so it does not.
    decision: of this cycle; None = it only looked. writes: the stage writes; else delays are off
    for all.
    """
    refused = decision.refused if decision is not None else select(seen, rules, demoted).refused
    others = {job_id for job_id, reason in refused if Consequence.STILL_ORDERED not in reason.then}

    def side(partitions: Iterable[str], since: float) -> Side:
        blocks = rules.switchback
        on = blocks is None or all(blocks.block(name, since).on for name in partitions)
        return Side.ON if on and writes else Side.OFF

    found = {
        job.job_id: side((job.partition,), job.waits_since)
        for job in _in_scope(seen, started, scope(seen, rules, demoted), rules)
        if job.waits_since is not None
    }
    for job in seen.pending:
        known = job.job_id not in others
        found[job.job_id] = side(job.partitions, job.waits_since) if known else Side.OTHER
    return found


def _in_scope(
    seen: Snapshot, started: Iterable[JobRun], names: Collection[str], rules: Scope
) -> list[RunningJob]:
    """Those that started, as far as is known while the blocks were watched."""
    return [
        job
        for job in (run.job for run in started)
        if job.started_at >= seen.taken_at - MOST_APART_S
        and job.partition in names
        and job.user not in rules.excluded_users
        and job.account not in rules.excluded_accounts
        and not rules.excluded_qos
    ]
