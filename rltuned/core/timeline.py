"""What comes free when, and what Slurm itself would start now: the frame of a joint decision.

Ends are ends by time limit, as everywhere in the core. The reference is Slurm's own walk: in order,
best fit, the first job of a partition that does not fit gets a reservation, and later ones start
only if they do not put it off (EASY backfill).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rltuned.core.capacity import BoolArray, Capacity
from rltuned.core.placement import place_request, width
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.snapshot import Snapshot

OVERDUE_S: Final = 1.0
"""A job past its limit is being ended: its nodes are free any moment, but not yet."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job of the top K: `request` is what it would be placed by, member (N,) where it may run."""

    job: PendingJob
    request: Request
    member: BoolArray

    @property
    def limit_s(self) -> float:
        limit = self.request.time_limit_s
        return math.inf if limit is None else limit

    def reach(self, capacity: Capacity) -> BoolArray:
        """(N,) nodes that have what it asks for, and on which Slurm starts jobs now."""
        could: BoolArray = self.member & capacity.usable
        if self.request.total.gpus:
            could &= (capacity.total_gpus[list(capacity.accepted(self.request))] > 0).any(axis=0)
        return could


@dataclass(frozen=True, slots=True)
class ResourceRelease:
    """Amounts that come free at an offset in seconds from now, at the latest."""

    at_s: float
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Reserved:
    """A job that would wait at the head of its partition, and when it could start by limits.

    shares: where, then; None and inf when no end makes room for it.
    """

    candidate: int
    at_s: float
    shares: tuple[Share, ...] | None


@dataclass(frozen=True, slots=True)
class Reference:
    """What would happen in the given order: starts by candidate, and who waits with a promise."""

    starts: Mapping[int, tuple[Share, ...]]
    reserved: tuple[Reserved, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Moments from now on, in seconds, and what is free then if nothing new starts."""

    offsets_s: tuple[float, ...]
    capacities: tuple[Capacity, ...]

    def last_slot(self, slot: int, limit_s: float) -> int:
        """The last slot at which a job started at `slot` is still there."""
        end_s = self.offsets_s[slot] + limit_s
        return max(slot, sum(at < end_s for at in self.offsets_s) - 1)


def releases(snapshot: Snapshot, capacity: Capacity) -> tuple[ResourceRelease, ...]:
    """When running jobs end at the latest, soonest first; those without a known end never."""
    found = []
    for run in snapshot.running:
        shares = _known(run, capacity)
        end_s = run.latest_end() - snapshot.taken_at
        if shares and math.isfinite(end_s):
            found.append(ResourceRelease(max(end_s, OVERDUE_S), shares))
    return tuple(sorted(found, key=lambda r: r.at_s))


def _known(run: RunningJob, capacity: Capacity) -> tuple[Share, ...]:
    return tuple(s for s in run.shares if s.node in capacity.index)


def timeline(
    capacity: Capacity,
    ends: Sequence[ResourceRelease],
    *,
    horizon_s: float,
    most: int,
    also: Sequence[float],
) -> Timeline:
    """Slots: now, releases within the horizon, and the moments of `also`.

    Args:
        capacity: free now.
        ends: see `releases`.
        horizon_s: seconds.
        most: slots at most, now included; those of `also` come first, the rest is spread evenly
            over the releases.
        also: offsets that must be among them, such as reservations.
    """
    soon = sorted({r.at_s for r in ends if r.at_s <= horizon_s} - set(also))
    wanted = sorted({at for at in also if math.isfinite(at)})[: max(0, most - 1)]
    offsets = sorted({0.0, *wanted, *_spaced(soon, most - 1 - len(wanted))})
    free, capacities, next_end = capacity.copy(), [], 0
    for offset in offsets:
        while next_end < len(ends) and ends[next_end].at_s <= offset:
            free.give(ends[next_end].shares)
            next_end += 1
        free.cap()
        capacities.append(free.copy())
    return Timeline(tuple(offsets), tuple(capacities))


def _spaced(times: Sequence[float], count: int) -> list[float]:
    """So many of the times, evenly by their number, the soonest among them."""
    if count <= 0:
        return []
    if len(times) <= count:
        return list(times)
    return [times[i * len(times) // count] for i in range(count)]


@dataclass(slots=True)
class _Head:
    candidate: int
    at_s: float
    later: Capacity
    shares: tuple[Share, ...] | None


def reference(
    candidates: Sequence[Candidate],
    capacity: Capacity,
    ends: Callable[[], Sequence[ResourceRelease]],
) -> Reference:
    """Slurm's own walk over the candidates in the given order.

    ends: see `releases`; only called when somebody has to wait.
    """
    free = capacity.copy()
    starts: dict[int, tuple[Share, ...]] = {}
    heads: dict[str, _Head] = {}
    begun: list[ResourceRelease] = []
    for at, one in enumerate(candidates):
        shares = place_request(one.request, one.member, free, "pack")
        partition = one.job.partitions[0]
        if shares is None:
            if partition not in heads:
                heads[partition] = _reserve(at, one, free, [*ends(), *begun])
            continue
        late = [h for h in heads.values() if one.limit_s > h.at_s]
        if not all(_still_fits(h, candidates, shares) for h in late):
            continue
        free.take(shares)
        for head in late:
            head.later.take(shares)
        starts[at] = shares
        begun.append(ResourceRelease(one.limit_s, shares))
    reserved = tuple(Reserved(h.candidate, h.at_s, h.shares) for h in heads.values())
    return Reference(starts, reserved)


def _reserve(at: int, one: Candidate, free: Capacity, ends: Sequence[ResourceRelease]) -> _Head:
    later = free.copy()
    ordered = sorted(ends, key=lambda r: r.at_s)
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
        shares = place_request(one.request, one.member, later, "pack")
        if shares is not None:
            return _Head(at, end.at_s, later, shares)
    return _Head(at, math.inf, later, None)


def _may_help(one: Candidate, gpus_each: int, end: ResourceRelease, later: Capacity) -> bool:
    """Whether an end leaves a node on which a share could go; what did not fit before needs one."""
    columns = [later.index[share.node] for share in end.shares]
    return any(one.member[c] and later.free_gpus[:, c].sum() >= gpus_each for c in columns)


def _still_fits(head: _Head, candidates: Sequence[Candidate], shares: tuple[Share, ...]) -> bool:
    one = candidates[head.candidate]
    head.later.take(shares)
    fits = place_request(one.request, one.member, head.later, "pack")
    if fits is None:
        head.later.give(shares)
        return False
    head.later.give(shares)
    head.shares = fits
    return True
