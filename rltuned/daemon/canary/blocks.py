"""Pairs of an on block and an off block, and how long the users of each waited.

A job counts in the block in which it became eligible, unless that was in the washout. A job that
still waits after HORIZON_S counts as that. No evidence is a job of several partitions, one that
others have changed or held (Touched), one that was requeued, and one that left without
being seen to run. Only pairs that were watched and written without a gap are decided: a restart, a
stage that writes nothing or a long pause between two cycles forgets all that is not decided yet.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from rltuned.core.switchback import MOST_APART_S, Switchback
from rltuned.domain.jobs import PendingJob
from rltuned.domain.runs import JobRun, RunKey, RunNews, Side, bounded_slowdown
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, JobKey, UnixTime

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
