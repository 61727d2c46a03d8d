"""One scheduling pass: what Slurm starts when it walks the queue in priority order.

docs/simulator.md explains the rules with worked examples. Nothing here sees a run time: promises
about the future rest on time limits alone, as in Slurm.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rltuned.core.capacity import BoolArray, Capacity
from rltuned.core.placement import PlacementRule, place_request
from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import Request, Share
from rltuned.domain.units import NodeName

BackfillRule = Literal["easy", "none"]


@dataclass(slots=True)
class PendingEntry:
    """A pending job as the pass sees it; `reason` is filled in for those that stay.

    wish: where it goes if there is room (a job steered to nodes); elsewhere it goes by the rule.
    """

    number: int
    request: Request
    partition: str
    reason: str = ""
    wish: tuple[Share, ...] | None = None


@dataclass(frozen=True, slots=True)
class RunningClaim:
    """What a running job holds, and until when at the latest."""

    latest_end: float
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """A job that the pass starts now."""

    number: int
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Grounds:
    """What never changes between passes.

    Attributes:
        nodes: hardware by name.
        neighbours: for each partition the partitions that share a node with it, itself included.
    """

    nodes: Mapping[NodeName, Node]
    neighbours: Mapping[str, frozenset[str]]
    placement: PlacementRule = "pack"
    backfill: BackfillRule = "easy"


def neighbours(nodes: Iterable[Node], partitions: Iterable[str]) -> dict[str, frozenset[str]]:
    """For each partition the partitions that share a node with it, itself included."""
    near: dict[str, set[str]] = {name: {name} for name in partitions}
    for node in nodes:
        for name in node.partitions:
            near[name].update(node.partitions)
    return {name: frozenset(others) for name, others in near.items()}


@dataclass(slots=True)
class _ReservedHead:
    """The reserved job of one partition, and what will be free at its shadow time."""

    request: Request
    member: BoolArray
    shadow_s: float
    later: Capacity


@dataclass(slots=True)
class _Pass:
    now: float
    capacity: Capacity
    grounds: Grounds
    claims: list[RunningClaim]
    heads: dict[str, _ReservedHead] = field(default_factory=dict)
    failed: set[tuple[object, ...]] = field(default_factory=set)

    def consider(self, entry: PendingEntry) -> tuple[Share, ...] | None:
        """Shares when the job starts now; otherwise it may become its partition's head."""
        shares = self._fit(entry)
        if shares is None:
            entry.reason = "Priority"
            if entry.partition not in self.heads:
                self.heads[entry.partition] = self._reserve(entry)
                entry.reason = "Resources"
            return None
        if not self._allowed(entry, shares):
            entry.reason = "Priority"
            return None
        return shares

    def take(self, entry: PendingEntry, shares: tuple[Share, ...]) -> None:
        latest_end = self.now + _limit(entry.request)
        self.capacity.take(shares)
        self.claims.append(RunningClaim(latest_end, shares))
        for head in self.heads.values():
            if latest_end > head.shadow_s:
                head.later.take(shares)

    def _fit(self, entry: PendingEntry) -> tuple[Share, ...] | None:
        asks = entry.request
        # what did not fit earlier in this pass cannot fit now: a pass only takes
        shape = asks.total, asks.gpu_types, asks.nodes, asks.exclusive, entry.partition
        if shape in self.failed:
            return None
        member = self.capacity.members_of((entry.partition,))
        shares = self._wished(entry)
        if shares is None:
            shares = place_request(asks, member, self.capacity, self.grounds.placement)
        if shares is None:
            self.failed.add(shape)
            return None
        return whole_nodes(shares, self.grounds.nodes) if asks.exclusive else shares

    def _wished(self, entry: PendingEntry) -> tuple[Share, ...] | None:
        """The wish, when every node of it has room now."""
        free, index = self.capacity, self.capacity.index
        for share in entry.wish or ():
            at, taken = index[share.node], share.taken
            room = free.free_gpus[free.row_on(share, at), at] >= taken.gpus
            room &= free.free_cpus[at] >= taken.cpus
            room &= free.free_mem_mib[at] >= taken.mem_mib
            if not (room and free.usable[at]):
                return None
        return entry.wish

    def _allowed(self, entry: PendingEntry, shares: tuple[Share, ...]) -> bool:
        near = self.grounds.neighbours[entry.partition]
        heads = [head for name, head in self.heads.items() if name in near]
        if self.grounds.backfill == "none":
            return not heads
        latest_end = self.now + _limit(entry.request)
        return all(latest_end <= head.shadow_s or self._still_fits(head, shares) for head in heads)

    def _still_fits(self, head: _ReservedHead, shares: tuple[Share, ...]) -> bool:
        head.later.take(shares)
        try:
            rule = self.grounds.placement
            return place_request(head.request, head.member, head.later, rule) is not None
        finally:
            head.later.give(shares)

    def _reserve(self, entry: PendingEntry) -> _ReservedHead:
        """Find when the head fits at the latest, if nothing ends before its time limit."""
        member = self.capacity.members_of((entry.partition,))
        later = self.capacity.copy()
        shadow_s = float("inf")
        waiting = sorted(self.claims, key=lambda c: c.latest_end)
        for position, claim in enumerate(waiting):
            later.give(claim.shares)
            together = position + 1 < len(waiting) and (
                waiting[position + 1].latest_end == claim.latest_end
            )
            if together:
                continue
            if place_request(entry.request, member, later, self.grounds.placement) is not None:
                shadow_s = claim.latest_end
                break
        return _ReservedHead(entry.request, member, shadow_s, later)


def run_pass(
    now: float,
    queue: Sequence[PendingEntry],
    claims: Iterable[RunningClaim],
    capacity: Capacity,
    grounds: Grounds,
) -> list[Start]:
    """Walk the queue once, highest priority first, and start what may start.

    Args:
        now: seconds, same clock as the claims.
        queue: pending jobs in priority order; the reason of those that stay is updated.
        claims: what the running jobs hold.
        capacity: what is free now; what is started is taken from it.
        grounds: hardware, sharing of partitions, placement and backfill rule.

    Returns:
        The starts, in the order in which they were decided.
    """
    one = _Pass(now, capacity, grounds, list(claims))
    starts: list[Start] = []
    for entry in queue:
        shares = one.consider(entry)
        if shares is not None:
            one.take(entry, shares)
            starts.append(Start(entry.number, shares))
    return starts


def whole_nodes(shares: tuple[Share, ...], nodes: Mapping[NodeName, Node]) -> tuple[Share, ...]:
    """The same nodes, all of what they have: nobody else fits beside an exclusive job.

    A node with GPUs of several types is a share for each; CPUs and memory stand in the first.
    """
    return tuple(one for share in shares for one in _whole(nodes[share.node]))


def _whole(node: Node) -> Iterator[Share]:
    cpus, mem_mib = node.total.cpus, node.total.mem_mib
    if not node.gpus:
        yield Share(node.name, node.total)
    for i, count in enumerate(node.gpus):
        rest = (0, 0) if i else (cpus, mem_mib)
        yield Share(node.name, Resources(count.total, *rest), count.gpu_type)


def _limit(request: Request) -> float:
    return float("inf") if request.time_limit_s is None else request.time_limit_s
