"""One scheduling pass: what Slurm starts when it walks the queue in priority order.

docs/simulator.md explains the rules with worked examples. Nothing here sees a run time: promises
about the future rest on time limits alone, as in Slurm.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from rltuned.core.capacity import BoolArray, Capacity
from rltuned.core.placement import PlacementRule, place_request
from rltuned.domain.cluster import Node, Partition, Resources
from rltuned.domain.jobs import Request, Share
from rltuned.domain.units import NodeName
from rltuned.sim.trace import TraceJob

BackfillRule = Literal["easy", "none"]


Shares = tuple[Share, ...]
Claim = tuple[float, Shares]
"""Until when at the latest a running job holds what."""


@dataclass(slots=True)
class Pending:
    """A job in the queue, with what Slurm (and rltuned) know and have set."""

    number: int
    job: TraceJob
    request: Request
    partition: Partition
    frozen: int | None = None
    site_factor: int = 0
    nice: int = 0
    reason: str = ""
    oversubscribe: str = ""


@dataclass(frozen=True, slots=True)
class Grounds:
    """What never changes between passes. neighbours: of a partition, those that share nodes."""

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
    claims: list[Claim]
    wishes: Mapping[int, Shares]
    heads: dict[str, _ReservedHead] = field(default_factory=dict)
    failed: set[tuple[object, ...]] = field(default_factory=set)

    def consider(self, job: Pending) -> Shares | None:
        """Shares when the job starts now; otherwise it may become its partition's head."""
        shares = self._fit(job)
        if shares is None:
            job.reason = "Priority"
            if job.partition.name not in self.heads:
                self.heads[job.partition.name] = self._reserve(job)
                job.reason = "Resources"
            return None
        if not self._allowed(job, shares):
            job.reason = "Priority"
            return None
        return shares

    def take(self, job: Pending, shares: Shares) -> None:
        latest_end = self.now + _limit(job.request)
        self.capacity.take(shares)
        self.claims.append((latest_end, shares))
        for head in self.heads.values():
            if latest_end > head.shadow_s:
                head.later.take(shares)

    def _fit(self, job: Pending) -> Shares | None:
        asks = job.request
        # what did not fit earlier in this pass cannot fit now: a pass only takes
        shape = asks.total, asks.gpu_types, asks.nodes, asks.exclusive, job.partition.name
        if shape in self.failed:
            return None
        member = self.capacity.members_of((job.partition.name,))
        shares = self._wished(job)
        if shares is None:
            shares = place_request(asks, member, self.capacity, self.grounds.placement)
        if shares is None:
            self.failed.add(shape)
            return None
        return whole_nodes(shares, self.grounds.nodes) if asks.exclusive else shares

    def _wished(self, job: Pending) -> Shares | None:
        """The wish, when every node of it has room now."""
        free, index = self.capacity, self.capacity.index
        wish = self.wishes.get(job.number)
        for share in wish or ():
            at, taken = index[share.node], share.taken
            room = free.free_gpus[free.row_on(share, at), at] >= taken.gpus
            room &= free.free_cpus[at] >= taken.cpus
            room &= free.free_mem_mib[at] >= taken.mem_mib
            if not (room and free.usable[at]):
                return None
        return wish

    def _allowed(self, job: Pending, shares: Shares) -> bool:
        near = self.grounds.neighbours[job.partition.name]
        heads = [head for name, head in self.heads.items() if name in near]
        if self.grounds.backfill == "none":
            return not heads
        latest_end = self.now + _limit(job.request)
        return all(latest_end <= head.shadow_s or self._still_fits(head, shares) for head in heads)

    def _still_fits(self, head: _ReservedHead, shares: Shares) -> bool:
        head.later.take(shares)
        try:
            rule = self.grounds.placement
            return place_request(head.request, head.member, head.later, rule) is not None
        finally:
            head.later.give(shares)

    def _reserve(self, job: Pending) -> _ReservedHead:
        """Find when the head fits at the latest, if nothing ends before its time limit."""
        member = self.capacity.members_of((job.partition.name,))
        later = self.capacity.copy()
        shadow_s = float("inf")
        for latest_end, together in groupby(sorted(self.claims, key=_end), key=_end):
            for _, shares in together:
                later.give(shares)
            if place_request(job.request, member, later, self.grounds.placement) is not None:
                shadow_s = latest_end
                break
        return _ReservedHead(job.request, member, shadow_s, later)


def run_pass(
    now: float,
    queue: Iterable[Pending],
    claims: Iterable[Claim],
    capacity: Capacity,
    grounds: Grounds,
    *,
    wishes: Mapping[int, Shares],
) -> list[tuple[Pending, Shares]]:
    """Walk the queue once, highest priority first, and start what may start; the starts, in order.
    queue: the reason of those that stay is updated. capacity: what is started is taken from it.
    wishes: nodes by number, where there is room.
    """
    one = _Pass(now, capacity, grounds, list(claims), wishes)
    starts: list[tuple[Pending, Shares]] = []
    for job in queue:
        shares = one.consider(job)
        if shares is not None:
            one.take(job, shares)
            starts.append((job, shares))
    return starts


def _end(claim: Claim) -> float:
    return claim[0]


def whole_nodes(shares: Shares, nodes: Mapping[NodeName, Node]) -> Shares:
    """The same nodes, whole; of several GPU types the first share has CPUs and memory."""
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
