"""Pairs of an on block and an off block, and how long the users of each waited.

A job counts in the block in which it became eligible, unless that was in the washout. A job that
still waits after HORIZON_S counts as that. No evidence is a job of several partitions, one that
others have changed, held or requeued (outcomes.Touched), and one that left without being seen to
run. Only pairs that were watched and written without a gap are decided: a restart, a stage
that writes nothing or a long pause between two cycles forgets all that is not decided yet.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from rltuned.core.switchback import MOST_APART_S, Switchback
from rltuned.daemon.canary.outcomes import JobStart, Side, bounded_slowdown, unit_of
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, JobKey

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


@dataclass(slots=True)
class _Pair:
    ends_at: float
    jobs: list[_Job] = field(default_factory=list)


class Blocks:
    """The pairs of every partition."""

    def __init__(self, switchback: Switchback) -> None:
        self._switchback = switchback
        self._since: float | None = None
        self._seen_at = 0.0
        self._pairs: dict[str, dict[int, _Pair]] = defaultdict(dict)
        self._open: dict[JobKey, _Job] = {}
        self._known: set[JobKey] = set()
        self._ran: dict[JobId, _Job | None] = {}

    def look(
        self,
        seen: Snapshot,
        sides: Mapping[JobId, Side],
        started: Iterable[JobStart],
        touched: Collection[JobKey] = (),
        *,
        live: bool,
    ) -> tuple[Pair, ...]:
        """Take in one look; the pairs decided now, in the order of time. sides: of every pending
        job. touched: units that others have changed. live: whether this cycle could write.
        """
        now = float(seen.taken_at)
        is_next = 0.0 <= now - self._seen_at <= MOST_APART_S  # below: the clock was ahead
        if not live or self._since is None or not is_next:
            self._since = now if live else None
            self._pairs.clear()
            self._open.clear()
        self._seen_at = now
        for name in seen.demoted:
            self._pairs.pop(name, None)
        self._settle(seen, started, touched)
        self._join(seen, sides)
        return tuple(self._decided(now))

    def _settle(
        self, seen: Snapshot, started: Iterable[JobStart], touched: Collection[JobKey]
    ) -> None:
        for unit in self._open.keys() & set(touched):
            self._open.pop(unit).out = True
        begun: dict[JobId, _Job] = {}
        for start in started:
            if (job := self._open.pop(start.unit, None) or self._unseen(start)) is not None:
                job.wait_s = start.started_at - job.since
                begun[start.job_id] = job
        pending = {unit_of(job) for job in seen.pending}
        self._known = (self._known & pending) | set(touched) | self._requeued(seen, begun)
        # cancelled, requeued, or started and ended between two looks: its wait is not known
        for unit in self._open.keys() - pending:
            self._open.pop(unit).out = True

    def _unseen(self, start: JobStart) -> _Job | None:
        """A job that started before it was seen waiting."""
        again = start.unit in self._known or start.job_id in self._ran
        if again or start.side is Side.OTHER or start.wait_s is None:
            return None
        self._known.add(start.unit)
        since = start.started_at - start.wait_s
        return self._enrol(start.partition, since, start.user, start.limit_s)

    def _enrol(self, name: str, since: float, user: str, limit_s: float | None) -> _Job | None:
        """Count a job in its block; None = it is in no block that counts."""
        block = self._switchback.block(name, since)
        watched = self._since is not None and block.pair_begins_at >= self._since
        if not (watched and block.measured) or since < block.counts_from:
            return None
        job = _Job(block.on, user, since, limit_s)
        self._pairs[name].setdefault(block.pair, _Pair(block.pair_ends_at)).jobs.append(job)
        return job

    def _requeued(self, seen: Snapshot, begun: Mapping[JobId, _Job]) -> set[JobKey]:
        """The units that ran and wait again; what their first wait was is no evidence either."""
        again = {job.job_id: unit_of(job) for job in seen.pending if job.job_id in self._ran}
        for job_id in again:
            if (job := self._ran[job_id]) is not None:
                job.out = True
        staying = again.keys() | set(seen.lingering)
        ids = {job.job_id for job in seen.running} | (self._ran.keys() & staying)
        self._ran = {job_id: begun.get(job_id) or self._ran.get(job_id) for job_id in ids}
        return set(again.values())

    def _join(self, seen: Snapshot, sides: Mapping[JobId, Side]) -> None:
        for job in seen.pending:
            unit = unit_of(job)
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
                pair = pairs[number]
                if now < pair.ends_at or any(job.is_awaited(now) for job in pair.jobs):
                    break
                del pairs[number]
                left = [job for job in pair.jobs if not job.out]
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
