"""What Slurm itself would start now: in order, best fit, EASY backfill.

The first job of a partition that does not fit gets a reservation, and later ones start only if they
do not delay it. Ends are ends by time limit, as everywhere in the core.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rltuned.core.capacity import BoolArray, Capacity
from rltuned.core.placement import PlacementRule, is_outside, place_request, width
from rltuned.domain.jobs import PendingJob, Request, Share
from rltuned.domain.snapshot import Snapshot

OVERDUE_S: Final = 1.0
"""A job past its limit is being ended: its nodes are free any moment, but not yet."""

Place = Callable[[int, Capacity], tuple[Share, ...] | None]
"""Where the job of this position would start; None = nowhere."""


class InLine(Protocol):
    """A job as a pass sees it: what it asks for, member (N,) where, for how long, in which line."""

    @property
    def request(self) -> Request: ...
    @property
    def member(self) -> BoolArray: ...
    @property
    def limit_s(self) -> float: ...
    @property
    def partition(self) -> str: ...


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A pending job that can be placed: `request` is what it is placed by, member (N,) where."""

    job: PendingJob
    request: Request
    member: BoolArray

    @property
    def limit_s(self) -> float:
        limit = self.request.time_limit_s
        return math.inf if limit is None else limit

    @property
    def partition(self) -> str:
        return self.job.partitions[0]

    def reach(self, capacity: Capacity) -> BoolArray:
        """(N,) nodes that have what it asks for, and on which Slurm starts jobs now."""
        could: BoolArray = self.member & capacity.usable
        if self.request.total.gpus:
            total = capacity.total_gpus  # the row of no GPU has none
            if self.request.gpu_types:
                total = total[list(capacity.accepted(self.request))]
            could &= total.any(axis=0)
        return could


@dataclass(frozen=True, slots=True)
class JobEnd:
    """Amounts that come free at the latest at a time, in seconds of the pass."""

    at_s: float
    shares: tuple[Share, ...]


@dataclass(slots=True)
class HeadReservation:
    """A job that waits at the head of its partition. job: its position. at_s: when it could start
    by time limits; inf = never. free: what is free then. shares: where; None = nowhere.
    """

    job: int
    at_s: float
    free: Capacity
    shares: tuple[Share, ...] | None


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """What starts now, by position, and who waits with a reservation."""

    starts: Mapping[int, tuple[Share, ...]]
    reservations: tuple[HeadReservation, ...]


def placeable(job: PendingJob, capacity: Capacity) -> QueuedJob | None:
    """The job as it is placed; None = its wishes are outside the model."""
    if is_outside(job):
        return None
    member, some = capacity.members_of(job.partitions), capacity.kept.of(job)
    if some:  # of a node that is kept in part nothing is planned
        member = member & ~capacity.kept.nodes(some) & (capacity.kept.parts(some)[1] == 0)
    return QueuedJob(job, job.request, member)


def job_ends(snapshot: Snapshot, capacity: Capacity) -> tuple[JobEnd, ...]:
    """When running jobs end at the latest, soonest first; those without a known end never."""
    found = []
    for run in snapshot.running:
        shares = tuple(s for s in run.shares if s.node in capacity.index)
        end_s = run.latest_end() - snapshot.taken_at
        if shares and math.isfinite(end_s):
            found.append(JobEnd(max(end_s, OVERDUE_S), shares))
    return tuple(sorted(found, key=lambda end: end.at_s))


def easy_backfill(
    jobs: Sequence[InLine],
    capacity: Capacity,
    ends: Callable[[], Sequence[JobEnd]],
    *,
    now: float = 0.0,
    rule: PlacementRule = "pack",
    place: Place | None = None,
    passes: bool = True,
) -> BackfillResult:
    """Slurm's own pass over the jobs in order.

    ends: see `job_ends`; called if a job must wait. now: of their times. place: where a job starts,
    if not by the rule. passes: jobs may pass a head that they do not delay.
    """
    free = capacity.copy()
    starts: dict[int, tuple[Share, ...]] = {}
    heads: dict[str, HeadReservation] = {}
    begun: list[JobEnd] = []
    for at, one in enumerate(jobs):
        shares = place(at, free) if place else place_request(one.request, one.member, free, rule)
        if shares is None:
            if one.partition not in heads:
                heads[one.partition] = _reserve(at, one, free, [*ends(), *begun], rule)
            continue
        late = [head for head in heads.values() if now + one.limit_s > head.at_s]
        for head in late if passes else heads.values():
            if (jobs[head.job].member & one.member).any() and not (
                passes and _still_fits(head, jobs[head.job], shares, rule)
            ):
                break
        else:
            free.take(shares)
            for head in late:
                head.free.take(shares)
            starts[at] = shares
            begun.append(JobEnd(now + one.limit_s, shares))
    return BackfillResult(starts, tuple(heads.values()))


def _reserve(
    at: int, one: InLine, free: Capacity, ends: Sequence[JobEnd], rule: PlacementRule
) -> HeadReservation:
    later = free.copy()
    ordered = sorted(ends, key=lambda end: end.at_s)
    count, _ = width(one.request, one.member, free)
    gpus_each = one.request.total.gpus // max(1, count)
    hopeful = False
    for position, end in enumerate(ordered if count else ()):
        if not math.isfinite(end.at_s):
            break
        later.give(end.shares)
        hopeful = hopeful or _may_help(one, gpus_each, end, later)
        together = position + 1 < len(ordered) and ordered[position + 1].at_s == end.at_s
        if together or not hopeful:
            continue
        hopeful = False
        later.cap()
        shares = place_request(one.request, one.member, later, rule)
        if shares is not None:
            return HeadReservation(at, end.at_s, later, shares)
    return HeadReservation(at, math.inf, later, None)


def _may_help(one: InLine, gpus_each: int, end: JobEnd, later: Capacity) -> bool:
    """Whether an end leaves a node on which a share could go; what did not fit before needs one."""
    columns = [later.index[share.node] for share in end.shares]
    return any(one.member[c] and later.free_gpus[:, c].sum() >= gpus_each for c in columns)


def _still_fits(
    head: HeadReservation, one: InLine, shares: tuple[Share, ...], rule: PlacementRule
) -> bool:
    """Whether a reserved job keeps its start where these shares are taken; it may move."""
    head.free.take(shares)
    fits = place_request(one.request, one.member, head.free, rule)
    head.free.give(shares)
    if fits is not None:
        head.shares = fits
    return fits is not None
