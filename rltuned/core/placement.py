"""Where one job could go now, and the greedy choice.

The rules, which docs/simulator.md repeats with examples:
- a job that names no node count gets the fewest nodes of one GPU type that could carry it on the
  idle cluster: one when one node has that many GPUs; types that would need more are not used;
- GPUs, CPUs and memory are split as evenly as whole numbers allow, larger shares first;
- `pack` takes the nodes with the least free GPUs that still fit, so the least is left over;
  `spread` the ones with most; ties go by name; `first` goes by name alone;
- an exclusive job takes whole nodes on which nothing runs.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np

from rltuned.core import cluster
from rltuned.core.capacity import Capacity
from rltuned.core.cluster import Ask, BoolArray, IntArray
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import PendingJob, Request, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId

PlacementRule = Literal["pack", "spread", "first"]
"""Best fit, worst fit, and first fit by node name: the last is what studies compare with."""
_SIGN: Final[Mapping[PlacementRule, int]] = {"pack": 1, "spread": -1, "first": 0}


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes and amounts for one job."""

    job_id: JobId
    shares: tuple[Share, ...]

    @property
    def gpus(self) -> int:
        return sum(s.taken.gpus for s in self.shares)


def ceil_div(amount: int, parts: int) -> int:
    """Smallest whole number that is at least amount / parts."""
    return -(-amount // parts)


def width(request: Request, member: BoolArray, capacity: Capacity) -> tuple[int, tuple[int, ...]]:
    """How many nodes a job gets on hardware member (N,), and the rows of GPU types on which so many
    can carry it, whatever is free or down now; (0, ()) = no count ever can.
    """
    need, total, rows = request.total, capacity.total, capacity.accepted(request)
    if need.gpus and request.nodes in {None, 1}:
        alone = member & (total.cpus >= need.cpus) & (total.mem_mib >= need.mem_mib)
        found = np.any((total.of_type[list(rows)] >= need.gpus) & alone, axis=1)
        if found.any():
            return 1, tuple(row for row, fits in zip(rows, found, strict=True) if fits)
    counts = {row: width_on(request, row, member, capacity) for row in rows}
    best = min(filter(None, counts.values()), default=0)
    return best, tuple(row for row, count in counts.items() if count and count == best)


def width_on(request: Request, row: int, member: BoolArray, capacity: Capacity) -> int:
    """The same for one GPU type (one row of the capacity); 0 when it can never carry the job."""
    total, need = capacity.total, request.total
    has = member & (total.of_type[row] > 0) if need.gpus else member
    if not has.any():
        return 0
    gpus, cpus, mem_mib = total.of_type[row][has], total.cpus[has], total.mem_mib[has]
    if need.gpus > gpus.sum() or need.cpus > cpus.sum() or need.mem_mib > mem_mib.sum():
        return 0
    for count in _widths(request, gpus, cpus, mem_mib):
        if _carries(need, count, gpus, cpus, mem_mib):
            return count
    return 0


def _widths(request: Request, gpus: IntArray, cpus: IntArray, mem_mib: IntArray) -> Iterable[int]:
    """Node counts to try, fewest first. Every node of a job with GPUs gets at least one of them."""
    need = request.total
    if request.nodes is not None:
        return (request.nodes,)
    if need.gpus == 0:
        fewest = max(
            1,
            ceil_div(need.cpus, max(1, int(cpus.max()))),
            ceil_div(need.mem_mib, max(1, int(mem_mib.max()))),
        )
        return range(fewest, len(cpus) + 1)
    fewest = ceil_div(need.gpus, int(gpus.max()))
    return (1,) if fewest == 1 else range(fewest, min(need.gpus, len(gpus)) + 1)


def _carries(
    need: Resources, count: int, gpus: IntArray, cpus: IntArray, mem_mib: IntArray
) -> bool:
    base = (cpus >= ceil_div(need.cpus, count)) & (mem_mib >= ceil_div(need.mem_mib, count))
    low, larger = divmod(need.gpus, count)
    return bool((base & (gpus >= low)).sum() >= count and (base & (gpus > low)).sum() >= larger)


def is_outside(job: PendingJob) -> bool:
    """Whether a job is never placed: it asks for more than is modelled, or for named nodes, or is
    a part of a heterogeneous job, whose parts start together.
    """
    named = job.required_nodes or job.excluded_nodes
    return bool(job.request.outside or named or job.het_job_id is not None)


def place(job: PendingJob, capacity: Capacity, rule: PlacementRule = "pack") -> Placement | None:
    """Where a job could start now; None = it does not fit, or is outside the model."""
    if is_outside(job):
        return None
    left = capacity.without(capacity.kept.of(job))
    shares = place_request(job.request, left.members_of(job.partitions), left, rule)
    return None if shares is None else Placement(job.job_id, shares)


def place_request(
    request: Request, member: BoolArray, capacity: Capacity, rule: PlacementRule
) -> tuple[Share, ...] | None:
    """As `place`, for a bare request on the nodes of member (N,)."""
    count, rows = width(request, member, capacity)
    if not count:
        return None
    accepts = np.zeros(len(capacity.total.of_type), dtype=bool)
    accepts[list(rows)] = True
    chosen = np.empty(count, dtype=np.int64)
    total, free, sign = capacity.total, capacity.free, _SIGN[rule]
    ask, member = ask_of(request, count), member & capacity.usable
    row = cluster.place(ask, accepts, member, total, free, sign, chosen)
    return None if row < 0 else _shares_on(request, chosen.tolist(), row, capacity)


def ask_of(request: Request, count: int) -> Ask:
    """What a request takes of so many nodes."""
    need = request.total
    low, larger = divmod(need.gpus, count)
    cpus, mem_mib = ceil_div(need.cpus, count), ceil_div(need.mem_mib, count)
    return Ask(need.gpus, count, low, larger, cpus, mem_mib, request.exclusive)


def _shares_on(
    request: Request, columns: Sequence[int], row: int, capacity: Capacity
) -> tuple[Share, ...]:
    """What a request takes on given nodes, those with the larger share first."""
    gpu_type = capacity.gpu_types[row] if row < len(capacity.gpu_types) else None
    need, total, count = request.total, capacity.total, len(columns)
    found = []
    for at, column in enumerate(columns):
        if request.exclusive:
            its = total.of_type[row, column], total.cpus[column], total.mem_mib[column]
            taken = Resources(*(int(amount) for amount in its))
        else:
            each = need.gpus, need.cpus, need.mem_mib
            taken = Resources(*(cluster.even(amount, count, at) for amount in each))
        found.append(Share(capacity.names[column], taken, gpu_type))
    return tuple(found)


# What Slurm itself would start now: in order, best fit, EASY backfill.
#
# The first job of a partition that does not fit gets a reservation, and later ones start only if
# they do not delay it. Ends are ends by time limit, as everywhere in the core.


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
            could &= capacity.total.of_type[list(capacity.accepted(self.request))].any(axis=0)
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
    return any(one.member[c] and later.free.gpus[c] >= gpus_each for c in columns)


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
