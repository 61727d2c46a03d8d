"""What is learned at each stage: the waits of jobs, and whether delays do harm."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rltuned.core.decide import Decision
from rltuned.core.ladder import MOST_APART_S, Block, Ladder, Switchback
from rltuned.core.order import SlaClass, class_of
from rltuned.core.refusals import Consequence
from rltuned.core.select import Reservations, Scope, cannot_start, scope, select
from rltuned.daemon import breaker
from rltuned.daemon.breaker import Blocks, Breakers, Effect, Pair, Touched
from rltuned.domain.jobs import (
    JobRun,
    PendingJob,
    RunKey,
    RunNews,
    RunningJob,
    Side,
)
from rltuned.domain.plan import Outcome
from rltuned.domain.snapshot import JobTracker, Snapshot
from rltuned.domain.units import JobId, JobKey, UnixTime
from rltuned.journal.store import Memory


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
    empty and None without a switchback. moved: a generation, see Following.judge.
    """

    runs: RunNews = field(default_factory=RunNews)
    breakers: Breakers = field(default_factory=dict)
    opened: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    blocks: Mapping[str, Block] = field(default_factory=dict)
    effect: Effect | None = None
    promises: Mapping[SlaClass, ClassCount] = field(default_factory=dict)
    moved: Mapping[str, str] | None = None

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
