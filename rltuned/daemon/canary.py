"""What is learned at each stage: the waits of jobs in blocks with and without delays.

A job counts in the block in which it became eligible, unless that was in the washout. A job that
still waits after HORIZON_S counts as that. No evidence is a job of several partitions, one that
others have changed or held (Touched), one that was requeued, and one that left without being seen
to run. Only pairs that were watched and written without a gap are decided: a restart, a stage
that writes nothing or a long pause between two cycles forgets all that is not decided yet.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final, Self

from rltuned.core.decide import Decision
from rltuned.core.ladder import MOST_APART_S, Block, Ladder, Switchback
from rltuned.core.order import SlaClass, class_of
from rltuned.core.refusals import Consequence
from rltuned.core.select import Reservations, Scope, cannot_start, scope, select
from rltuned.daemon import breaker
from rltuned.daemon.breaker import Breakers, Effect, Pair, PairFigure
from rltuned.domain.jobs import JobRun, PendingJob, RunKey, RunNews, Side, bounded_slowdown
from rltuned.domain.plan import Outcome
from rltuned.domain.snapshot import JobTracker, Snapshot
from rltuned.domain.units import JobId, JobKey, UnixTime
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal

HORIZON_S: Final = 86_400.0
"""A longer wait counts as this: the verdict on a pair must come some day."""


@dataclass(slots=True)
class _Job:
    """wait_s: None = it waits. out: it is no evidence any more."""

    block: Block
    user: str
    since: float
    limit_s: float | None
    wait_s: float | None = None
    out: bool = False

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
        self._pairs = defaultdict[tuple[str, int], list[_Job]](list)  # by partition and number
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
        for key in [key for key in self._pairs if key[0] in demoted]:
            del self._pairs[key]
        self._settle(seen, runs, touched)
        for job in seen.pending:
            if job.unit in self._known or sides.get(job.job_id, Side.OTHER) is Side.OTHER:
                continue
            self._known.add(job.unit)
            limit_s, since = job.request.time_limit_s, float(job.waits_since)
            if len(job.partitions) == 1 and (
                new := self._enrol(job.partitions[0], since, job.user, limit_s)
            ):
                self._open[job.unit] = new
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
        job = _Job(block, user, since, limit_s)
        self._pairs[name, block.pair].append(job)
        return job

    def _decided(self, now: float) -> Iterator[Pair]:
        waiting = set[str]()
        for name, number in sorted(self._pairs):
            jobs = self._pairs[name, number]
            awaited = (j for j in jobs if not j.out and j.wait_s is None)
            is_over = now >= jobs[0].block.pair_ends_at
            if not is_over or any(now - job.since < HORIZON_S for job in awaited):
                waiting.add(name)
            if name not in waiting:  # a later pair waits for the ones before
                del self._pairs[name, number]
                left = [job for job in jobs if not job.out]
                waits = _figure((job, job.counted_s) for job in left)
                yield Pair(name, waits, _figure((job, job.slowdown) for job in left))


def _figure(values: Iterable[tuple[_Job, float | None]]) -> PairFigure:
    sides: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for job, value in values:
        if value is not None:
            sides[job.block.on].setdefault(job.user, []).append(value)
    on, off = ({user: fmean(of) for user, of in sides[side].items()} for side in (True, False))
    return PairFigure(on, off)


class Touched:
    """Waiting jobs that others have changed or held, from look to look. `units`: those.

    They are no evidence: a user may change, hold and free their own jobs, and sees whether delays
    are on, so that one user could make on blocks look worse than off blocks, or better.
    """

    def __init__(self) -> None:
        self.units: set[JobKey] = set()
        self._left: set[JobKey] = set()
        self._first: dict[JobKey, tuple[object, ...]] = {}
        self._eligible: dict[JobKey, UnixTime] = {}

    def look(self, seen: Snapshot) -> None:
        """Take in one look. A job stays touched until it has left the queue, and one look more."""
        here, keys = {job.unit for job in seen.pending}, {job.key for job in seen.pending}
        self.units -= self._left - here
        self._left = self.units - here
        self._first = {key: asked for key, asked in self._first.items() if key in keys}
        self._eligible = {key: at for key, at in self._eligible.items() if key in keys}
        for job in seen.pending:
            was = self._eligible.get(job.key)
            if job.eligible_at is not None and job.eligible_at <= seen.taken_at:
                self._eligible[job.key] = job.eligible_at
            # a hold and its release between two looks leave nothing but a new eligible time
            postponed = was is not None and job.eligible_at != was
            set_by_others = job.taken_over or (job.fixed and job.owned is None)
            asked = _asked(job)
            changed = self._first.setdefault(job.key, asked) != asked
            if job.is_held or set_by_others or postponed or changed:
                self.units.add(job.unit)


def _asked(job: PendingJob) -> tuple[object, ...]:
    """What its user asked for, without what rltuned changes of it."""
    ours = job.owned is not None and job.owned.field == "priority" and job.nice == 0
    nice = (job.owned.nice or 0) if ours and job.owned is not None else job.nice
    request = replace(job.request, exclusive=False) if job.request.exclusive else job.request
    return (
        request, job.partitions, job.user, job.account, job.qos, nice, job.reservation,
        job.required_nodes, job.excluded_nodes,
    )  # fmt: skip


def promises_kept(
    classes: Sequence[SlaClass], seen: Snapshot, started: Iterable[JobRun], last: float | None
) -> Mapping[SlaClass, tuple[int, int]]:
    """Since the last look: jobs that started in time or passed their bound, and the latter alone;
    each counts once. classes: the first that fits a job counts it. last: None = it was never.
    """
    jobs, late = dict.fromkeys(classes, 0), dict.fromkeys(classes, 0)

    def count(one: SlaClass, since: UnixTime, until: float, *, in_time: bool) -> None:
        passed = last is not None and last - since <= one.max_wait_s < until - since
        jobs[one] += passed or in_time
        late[one] += passed

    full, reservations = seen.full_arrays(), Reservations(seen)
    for job in seen.pending if classes and last is not None else ():
        one = class_of(job, classes)
        # one that cannot start, whatever the order, is not late
        is_full = job.array is not None and job.array.array_job_id in full
        if one is not None and not is_full and cannot_start(job, reservations) is None:
            count(one, job.waits_since, seen.taken_at, in_time=False)
    for run in (start.job for start in started if last is not None):
        fits = (c for c in classes if c.covers((run.partition,), run.qos, run.account))
        if (one := next(fits, None)) is not None and (since := run.waits_since) is not None:
            in_time = run.started_at - since <= one.max_wait_s
            count(one, since, run.started_at, in_time=in_time)
    return {one: (jobs[one], late[one]) for one in classes}


@dataclass(frozen=True, slots=True)
class CanaryStatus:
    """What one cycle showed; events since the last poll. runs: those that started, and of those
    before that are over, with sides. breakers: by
    partition, after this cycle; opened: in it. pairs: of blocks, decided in it. blocks, effect:
    empty and None without a switchback. promises: see promises_kept. moved: a generation, see
    Following.judge.
    """

    runs: RunNews = field(default_factory=RunNews)
    breakers: Breakers = field(default_factory=dict)
    opened: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    blocks: Mapping[str, Block] = field(default_factory=dict)
    effect: Effect | None = None
    promises: Mapping[SlaClass, tuple[int, int]] = field(default_factory=dict)
    moved: Mapping[str, str] | None = None

    @property
    def demoted(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, breaker in self.breakers.items() if breaker.is_open))

    @property
    def off(self) -> tuple[str, ...]:
        return tuple(name for name, block in self.blocks.items() if not block.on)

    @classmethod
    def before(cls, journal: Journal, model: str | None) -> Self:
        """What is known before the first cycle: breakers, and the effect under this model; None =
        there is no switchback.
        """
        with suppress(JournalError):  # the first cycle says what is wrong with it
            known = breaker.breakers(journal, journal.last_cluster())
            return cls(breakers=known, effect=breaker.effect(known, model) if model else None)
        return cls()


class Monitor:
    """Follows the jobs from look to look, weighs the evidence, and opens breakers."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._sides: dict[JobKey, Side] = {}  # of what waited at the last look
        self._begun: dict[RunKey, Side] = {}
        self._tracker, self._news = JobTracker(), RunNews()
        self._touched = Touched()
        self._judged_at: float | None = None
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
        at, switchback = float(seen.taken_at), rules.switchback
        if (switchback, model) != self._terms:  # what is open belongs to other terms
            self._terms = switchback, model
            self._blocks = Blocks(switchback) if switchback else None
        writes, begun = ladder.rung.writes, self._news.started
        sides = sides_of(seen, decision, rules, demoted, writes=writes, started=begun)
        runs = self._on_sides(seen, sides)
        self._touched.look(seen)
        pairs: tuple[Pair, ...] = ()
        if self._blocks is not None:
            touched = self._touched.units
            pairs = self._blocks.look(seen, sides, runs, touched, demoted=demoted, live=live)
        failures = breaker.failing(seen.pending, outcomes)

        def alter(before: Breakers) -> Breakers:
            after = breaker.count_errors(before, failures, ladder.max_errors, at)
            for pair in pairs:
                after = breaker.weigh(after, pair, margin=ladder.margin, at=at, model=model)
            return after

        after = breaker.change(self._journal, seen.cluster, alter, at)
        blocks = {
            name: switchback.block(name, at)
            for name in (scope(seen, rules, demoted) if switchback else ())
            if switchback
        }
        last, self._judged_at = self._judged_at, at
        return CanaryStatus(
            runs=runs,
            breakers=after,
            opened=tuple(sorted(n for n, b in after.items() if b.is_open and n not in demoted)),
            pairs=pairs,
            blocks=blocks,
            effect=breaker.effect(after, model) if switchback else None,
            promises=promises_kept(sla, seen, runs.started, last),
        )

    def _on_sides(self, seen: Snapshot, sides: Mapping[JobId, Side]) -> RunNews:
        """The news with sides: a job keeps the one that it had while it waited."""
        news, self._news = self._news, RunNews()
        for run in news.started:
            side = self._sides.get(run.job.unit) or sides.get(run.job.job_id, Side.OTHER)
            self._begun[run.key] = side
        started = tuple(replace(run, side=self._begun[run.key]) for run in news.started)
        met = [run for run in news.over if run.key in self._begun]
        self._sides = {}
        for job in seen.pending:
            # of an array one record may be held and the others not
            if self._sides.get(job.unit, Side.OTHER) is Side.OTHER:
                self._sides[job.unit] = sides.get(job.job_id, Side.OTHER)
        return RunNews(started, tuple(replace(run, side=self._begun.pop(run.key)) for run in met))


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
    all the same, as far as is known while the blocks were watched. Where a QOS is excluded that of
    a running job is not known, so it does not. decision: of this cycle; None = it only looked.
    writes: the stage writes; else delays are off for all.
    """
    refused = decision.refused if decision is not None else select(seen, rules, demoted).refused
    others = {job_id for job_id, reason in refused if Consequence.STILL_ORDERED not in reason.then}
    names = () if rules.excluded_qos else scope(seen, rules, demoted)

    def side(partitions: Iterable[str], since: float) -> Side:
        blocks = rules.switchback
        on = blocks is None or all(blocks.block(name, since).on for name in partitions)
        return Side.ON if on and writes else Side.OFF

    found = {
        job.job_id: side((job.partition,), job.waits_since)
        for job in (run.job for run in started)
        if job.waits_since is not None
        and job.started_at >= seen.taken_at - MOST_APART_S
        and job.partition in names
        and job.user not in rules.excluded_users
        and job.account not in rules.excluded_accounts
    }
    for job in seen.pending:
        known = job.job_id not in others
        found[job.job_id] = side(job.partitions, job.waits_since) if known else Side.OTHER
    return found
