"""One scheduling pass of the simulated Slurm: core/backfill's, with whole nodes.

docs/simulator.md explains the rules with worked examples. Nothing here sees a run time: promises
about the future rest on time limits alone, as in Slurm.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rltuned.core.backfill import JobEnd, easy_backfill
from rltuned.core.capacity import BoolArray, Capacity
from rltuned.core.placement import PlacementRule, place_request
from rltuned.domain.cluster import Node, Partition, Resources
from rltuned.domain.jobs import Request, Share
from rltuned.domain.units import NodeName
from rltuned.sim.trace import TraceJob

BackfillRule = Literal["easy", "none", "slurm"]
"""slurm: what sched/backfill plays, in the compiled world alone."""


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
    """What never changes between passes."""

    nodes: Mapping[NodeName, Node]
    placement: PlacementRule = "pack"
    backfill: BackfillRule = "easy"


@dataclass(frozen=True, slots=True)
class _InLine:
    """A job of the queue as core/backfill sees it."""

    job: Pending
    member: BoolArray

    @property
    def request(self) -> Request:
        return self.job.request

    @property
    def limit_s(self) -> float:
        return float("inf") if self.request.time_limit_s is None else self.request.time_limit_s

    @property
    def partition(self) -> str:
        return self.job.partition.name


def run_pass(
    now: float,
    queue: Iterable[Pending],
    claims: Iterable[Claim],
    capacity: Capacity,
    grounds: Grounds,
) -> list[tuple[Pending, Shares]]:
    """Walk the queue once, highest priority first, and start what may start; the starts, in order.
    queue: the reason of those that stay is updated. capacity: what is started is taken from it.
    """
    line = [_InLine(job, capacity.members_of((job.partition.name,))) for job in queue]
    failed: set[tuple[object, ...]] = set()

    def place(at: int, free: Capacity) -> Shares | None:
        one, asks = line[at], line[at].request
        # what did not fit earlier in this pass cannot fit now: a pass only takes
        shape = asks.total, asks.gpu_types, asks.nodes, asks.exclusive, one.partition
        if shape in failed:
            return None
        shares = place_request(asks, one.member, free, grounds.placement)
        if shares is None:
            failed.add(shape)
            return None
        return whole_nodes(shares, grounds.nodes) if asks.exclusive else shares

    done = easy_backfill(
        line,
        capacity,
        lambda: [JobEnd(latest_end, shares) for latest_end, shares in claims],
        now=now,
        rule=grounds.placement,
        place=place,
        passes=grounds.backfill == "easy",
    )
    heads = {head.job for head in done.reservations}
    for at, one in enumerate(line):
        if at in done.starts:
            capacity.take(done.starts[at])
        else:
            one.job.reason = "Resources" if at in heads else "Priority"
    return [(line[at].job, shares) for at, shares in done.starts.items()]


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
