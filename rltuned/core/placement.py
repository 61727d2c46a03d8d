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

from rltuned.core.capacity import BoolArray, Capacity, IntArray
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import PendingJob, Request, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId

PlacementRule = Literal["pack", "spread", "first"]
"""Best fit, worst fit, and first fit by node name: the last is what studies compare with."""
_LAST: Final = np.iinfo(np.int64).max
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
    best, rows = 0, []
    for row in capacity.accepted(request):
        count = width_on(request, row, member, capacity)
        if count and (not best or count < best):
            best, rows = count, [row]
        elif count and count == best:
            rows.append(row)
    return best, tuple(rows)


def width_on(request: Request, row: int, member: BoolArray, capacity: Capacity) -> int:
    """The same for one GPU type (one row of the capacity); 0 when it can never carry the job."""
    has = member if request.total.gpus == 0 else member & (capacity.total_gpus[row] > 0)
    if not has.any():
        return 0
    gpus = capacity.total_gpus[row][has]
    cpus, mem_mib = capacity.total_cpus[has], capacity.total_mem_mib[has]
    need = request.total
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
    shares = _on_one_node(request, member, capacity, rule)
    if shares is None:
        return place_widely(request, member, capacity, rule)
    return shares or None


def _on_one_node(
    request: Request, member: BoolArray, capacity: Capacity, rule: PlacementRule
) -> tuple[Share, ...] | None:
    """What most jobs need, as `place_widely` finds it; () = no fit now; None = not on one node."""
    need = request.total
    if not need.gpus or request.exclusive or request.nodes not in {None, 1}:
        return None
    rows = capacity.accepted(request)
    if not rows:
        return None
    # rows beside each other are a view, others a copy
    its = slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] < len(rows) else list(rows)
    free = capacity.free_gpus[its]  # (R, N)
    alone = member & capacity.usable
    alone &= capacity.free_cpus >= need.cpus
    alone &= capacity.free_mem_mib >= need.mem_mib
    fits = free >= need.gpus
    fits &= alone
    key = np.where(fits, free if rule == "pack" else _SIGN[rule] * free, _LAST)
    column, at = divmod(int(key.T.argmin()), len(rows))  # of equals the first node, then type
    if not fits[at, column]:
        big = member & (capacity.total_cpus >= need.cpus) & (capacity.total_mem_mib >= need.mem_mib)
        return () if ((capacity.total_gpus[its] >= need.gpus) & big).any() else None
    return (Share(capacity.names[column], need, capacity.gpu_types[rows[at]]),)


def place_widely(
    request: Request, member: BoolArray, capacity: Capacity, rule: PlacementRule
) -> tuple[Share, ...] | None:
    """The search for any number of nodes, type by type."""
    count, rows = width(request, member, capacity)
    best: tuple[int, IntArray, int] | None = None
    for row in rows:
        chosen = _choose(request, count, row, member, capacity, rule=rule)
        if chosen is None:
            continue
        free = _SIGN[rule] * int(idle_gpus(row, capacity)[chosen].sum())
        rank = (free, *sorted(chosen.tolist()))
        if best is None or rank < (best[0], *sorted(best[1].tolist())):
            best = (rank[0], chosen, row)
    if best is None:
        return None
    return shares_on(request, best[1].tolist(), best[2], capacity)


def _choose(
    request: Request,
    count: int,
    row: int,
    member: BoolArray,
    capacity: Capacity,
    *,
    rule: PlacementRule,
) -> IntArray | None:
    """Node columns, those with the larger share first; None when they are not there now."""
    need = request.total
    free = capacity.free_gpus[row]
    ok = (
        member
        & capacity.usable
        & (capacity.free_cpus >= ceil_div(need.cpus, count))
        & (capacity.free_mem_mib >= ceil_div(need.mem_mib, count))
    )
    if need.gpus:
        ok &= capacity.total_gpus[row] > 0  # nodes of one type, also for a share without GPUs
    if request.exclusive:
        ok &= capacity.untouched()
    low, larger = divmod(need.gpus, count)
    fits = np.flatnonzero(ok & (free >= low))
    if len(fits) < count:
        return None
    idle = idle_gpus(row, capacity)[fits]
    ordered = fits[np.argsort(_SIGN[rule] * idle, kind="stable")]
    if not larger:
        return ordered[:count]
    with_larger = ordered[free[ordered] > low][:larger]
    if len(with_larger) < larger:
        return None
    rest = ordered[~np.isin(ordered, with_larger)][: count - larger]
    return np.concatenate([with_larger, rest])


def idle_gpus(row: int, capacity: Capacity) -> IntArray:
    """(N,) what pack and spread go by; a job without GPUs looks at all GPUs it would sit beside."""
    of_type = row < len(capacity.gpu_types)
    idle: IntArray = capacity.free_gpus[row] if of_type else capacity.free_gpus.sum(axis=0)
    return idle


def shares_on(
    request: Request, columns: Sequence[int], row: int, capacity: Capacity
) -> tuple[Share, ...]:
    """What a request takes on given nodes, those with the larger share first."""
    gpu_type = capacity.gpu_types[row] if row < len(capacity.gpu_types) else None
    if len(columns) == 1 and not request.exclusive:
        return (Share(capacity.names[columns[0]], request.total, gpu_type),)
    return tuple(
        Share(capacity.names[column], taken, gpu_type)
        for column, taken in zip(columns, _split(request, columns, row, capacity), strict=True)
    )


def _split(
    request: Request, columns: Sequence[int], row: int, capacity: Capacity
) -> list[Resources]:
    if request.exclusive:
        return [
            Resources(
                int(capacity.total_gpus[row, c]),
                int(capacity.total_cpus[c]),
                int(capacity.total_mem_mib[c]),
            )
            for c in columns
        ]
    need, count = request.total, len(columns)
    each = [divmod(amount, count) for amount in (need.gpus, need.cpus, need.mem_mib)]
    return [Resources(*(low + (i < more) for low, more in each)) for i in range(count)]


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
