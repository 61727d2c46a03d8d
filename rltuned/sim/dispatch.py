"""One scheduling pass of the simulated Slurm: core/placement's, with whole nodes.

docs/simulator.md explains the rules with worked examples. Nothing here sees a run time: promises
about the future rest on time limits alone, as in Slurm.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rltuned.core.capacity import Capacity
from rltuned.core.cluster import BoolArray
from rltuned.core.placement import JobEnd, PlacementRule, easy_backfill, place_request
from rltuned.domain.cluster import Node, Partition, Resources
from rltuned.domain.jobs import Request, Share
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.units import NodeName
from rltuned.sim.trace import TraceJob

# The priority that the simulated Slurm gives a job by itself.
#
# `fcfs` is priority/basic: every new job stands just below the one before. `multifactor` is
# priority/multifactor with age, size and partition (the associations that fair share would need are
# not in a trace): a weighted sum that grows while the job waits.


FIRST_PRIORITY = 4_294_901_759
"""What priority/basic gives the first job; later ones get one less each (slurm.conf(5))."""


class Whole(NamedTuple):
    """All that a cluster has; nothing is counted as one, so that shares exist."""

    gpus: int
    cpus: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Natural:
    """Weights as in slurm.conf, in points; max_age_s: of the full age factor. favor_small: size
    counts for the small jobs. size_of: `gpus`: the share of the GPUs; `nodes`: mean share of nodes
    and CPUs, as in Slurm. base: of every job; own: of each, by its number from 1 (fair share, QOS
    ...).
    """

    kind: Literal["fcfs", "multifactor"] = "fcfs"
    age_weight: int = 10_000
    size_weight: int = 1_000
    partition_weight: int = 1_000
    max_age_s: float = 7 * 86_400.0
    favor_small: bool = False
    size_of: Literal["gpus", "nodes"] = "gpus"
    own: tuple[int, ...] = ()
    base: int = 0

    def priority(
        self, *, number: int, waited_s: float, size_share: float, partition_share: float
    ) -> int:
        """At least 1, as 0 would hold the job. number: in submit order, from 1. size_share: of the
        cluster, 0..1. partition_share: its factor as a part of the largest, 0..1.
        """
        if self.kind == "fcfs":
            return max(1, FIRST_PRIORITY - number + 1)
        size = 1.0 - size_share if self.favor_small else size_share
        points = (
            self.base
            + (self.own[number - 1] if self.own else 0)
            + self.age_weight * min(1.0, waited_s / self.max_age_s)
            + self.size_weight * size
            + self.partition_weight * partition_share
        )
        return max(1, int(points))

    @property
    def system(self) -> PrioritySystem:
        """The same as a scheduler reads it."""
        if self.kind == "fcfs":
            return PrioritySystem("basic")
        return PrioritySystem(
            "multifactor", ages=True, age_weight=self.age_weight, max_age_s=self.max_age_s
        )

    def size(self, asked: Resources, nodes: int | None, whole: Whole) -> float:
        """How much of the cluster a request is, 0..1."""
        if self.size_of == "gpus":
            return asked.gpus / max(1, whole.gpus)
        share = (nodes or 1) / max(1, whole.nodes) + asked.cpus / max(1, whole.cpus)
        return min(1.0, share / 2)


AGE_ONLY = Natural(
    kind="multifactor",
    age_weight=31_536_000,
    size_weight=0,
    partition_weight=0,
    max_age_s=31_536_000.0,
    base=10_000_000,
)
"""A site that orders by age alone, a point for every second: first come, first served. The base
leaves room for delays."""


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
    """A job of the queue as core/placement sees it."""

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
