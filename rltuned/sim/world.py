"""The simulated Slurm: its priorities, its pass, and the only place where simulated time moves.

At one instant: jobs end, then nodes fail, drain or come back, then jobs are submitted, then one
scheduling pass looks at all of it. docs/simulator.md explains the pass with worked examples. It
sees no run time: promises about the future rest on time limits alone, as in Slurm.
"""

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from rltuned.core.capacity import Capacity
from rltuned.core.cluster import BoolArray
from rltuned.core.placement import JobEnd, PlacementRule, easy_backfill, place_request
from rltuned.core.slurm_plan import Parameters
from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import PendingJob, Request, Share
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.units import NodeName
from rltuned.errors import TraceError
from rltuned.sim.cluster import Cluster, Whole
from rltuned.sim.trace import EmptyCluster, TraceJob, in_partition

FIRST_PRIORITY = 4_294_901_759
"""What priority/basic gives the first job; later ones get one less each (slurm.conf(5))."""
BackfillRule = Literal["easy", "none", "slurm"]
"""slurm: what sched/backfill plays, in the compiled world alone."""


@dataclass(frozen=True, slots=True)
class Natural:
    """What Slurm's own priorities are made of. `fcfs` is priority/basic: every new job stands just
    below the one before. `multifactor` is a weighted sum that grows while the job waits.

    Weights as in slurm.conf, in points; max_age_s: of the full age factor. favor_small: size counts
    for the small jobs. size_of: `gpus`: the share of the GPUs; `nodes`: mean share of nodes and
    CPUs, as in Slurm. base: of every job; own: of each, by its number from 1 (fair share, QOS ...).
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


@dataclass(frozen=True, slots=True)
class Rules:
    """How the simulated Slurm is set up. parameters: of the backfill `slurm`."""

    backfill: BackfillRule = "easy"
    placement: PlacementRule = "pack"
    natural: Natural = field(default_factory=Natural)
    parameters: Parameters = field(default_factory=Parameters)


class NodeFault(StrEnum):
    """What can befall a node."""

    FAIL = "fail"
    """It goes down; its jobs are requeued."""
    DRAIN = "drain"
    """It takes no new jobs; those it has go on."""
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of one node at a given time. where: file and line; empty = made by a program."""

    at_s: float
    node: str
    change: NodeFault
    where: str = ""

    def no_node(self) -> TraceError:
        """It names a node that there is not."""
        where = f"{self.where}: " if self.where else ""
        return TraceError(f"{where}fault at {self.at_s:g} s: no node named {self.node!r}")


@dataclass(slots=True)
class Pending:
    """A job in the queue, with what Slurm (and rltuned) know and have set. member: (N,) the nodes
    of its partition.
    """

    number: int
    job: TraceJob
    request: Request
    partition: str
    member: BoolArray
    frozen: int | None = None
    site_factor: int = 0
    nice: int = 0
    reason: str = ""
    oversubscribe: str = ""
    shown: tuple[tuple[object, ...], PendingJob] | None = None

    @property
    def limit_s(self) -> float:
        limit_s = self.request.time_limit_s
        return math.inf if limit_s is None else limit_s


@dataclass(slots=True)
class Run:
    """A job on its nodes. ended_at: inf = it still runs."""

    pending: Pending
    started_at: float
    shares: tuple[Share, ...]
    ended_at: float = math.inf

    @property
    def number(self) -> int:
        return self.pending.number

    @property
    def job(self) -> TraceJob:
        return self.pending.job

    @property
    def status(self) -> str:
        """At its end."""
        return "TIMEOUT" if self.job.duration_s > self.pending.limit_s else "COMPLETED"


Order = Callable[["World"], Iterable[Pending]]
"""Ranks the pending jobs of a world for one pass, first to start first."""
_END, _FAULT, _SUBMIT = range(3)
"""Events, in the order in which they happen at one instant."""


class World:
    """A cluster, its queue, and time. Jobs are numbered from 1 in submit order, as by Slurm."""

    def __init__(
        self,
        cluster: Cluster,
        jobs: Iterable[TraceJob],
        *,
        rules: Rules | None = None,
        faults: Iterable[Fault] = (),
        order: Order | None = None,
    ) -> None:
        self.cluster, self.rules = cluster, rules or Rules()
        if self.rules.backfill == "slurm":
            raise TraceError("joint placement and plugins play with backfill easy or none only")
        self.empty = EmptyCluster(cluster)
        self.capacity = Capacity.of(self.empty.snapshot)
        self.partitions = {p.name: p for p in cluster.partitions}
        self.now, self.lost_gpu_s = -math.inf, 0.0
        self.pending: dict[int, Pending] = {}
        self.running: dict[int, Run] = {}
        self.finished: dict[int, Run] = {}
        self.down: set[NodeName] = set()
        self.nodes_shown: dict[NodeName, tuple[object, Node]] = {}
        self.first_s = math.inf
        """When the first job is submitted."""
        self._order = order or by_priority
        self._nodes = {n.name: n for n in cluster.nodes}
        self._events: list[tuple[float, int, int, Pending | Fault | Run]] = []
        self._sequence = 0
        self._max_factor = max(1, *(p.priority_factor for p in cluster.partitions))
        self._whole = cluster.whole
        self.jobs = tuple(jobs)
        for number, job in enumerate(self.jobs, 1):
            if why := self.empty.why_not(job):
                raise TraceError(f"job {job.job_id} can never run on {cluster.name}: {why}")
            self.first_s = min(self.first_s, job.submit_s)
            name = job.partition or cluster.default_partition
            request = in_partition(job.request(), self.partitions[name])
            waits = Pending(number, job, request, name, self.capacity.members_of((name,)))
            self._push(job.submit_s, _SUBMIT, waits)
        for fault in faults:
            if fault.node not in self._nodes:
                raise fault.no_node()
            self._push(fault.at_s, _FAULT, fault)

    def next_time(self) -> float | None:
        """When something happens next; None = never again."""
        return self._events[0][0] if self._events else None

    def step(self) -> None:
        """Let everything of the next instant happen, then schedule."""
        self.happen()
        self.schedule()

    def happen(self) -> None:
        """Let everything of the next instant happen, without a scheduling pass."""
        self.now = self._events[0][0]
        while self._events and self._events[0][0] == self.now:
            what = heapq.heappop(self._events)[3]
            if isinstance(what, Pending):
                self.pending[what.number] = what
            elif isinstance(what, Fault):
                self._change(what)
            else:
                what.ended_at = self.now
                self.finished[what.number] = self.running.pop(what.number)
                self.capacity.give(what.shares)

    def advance(self, to: float) -> None:
        """Let everything happen up to and at a time, which becomes now."""
        while (time := self.next_time()) is not None and time <= to:
            self.step()
        self.now = max(self.now, to)

    def schedule(self) -> None:
        """Walk the queue once, highest priority first, and start what may start."""
        if not self.pending:
            return
        line, failed = list(self._order(self)), set[tuple[object, ...]]()

        def place(at: int, free: Capacity) -> tuple[Share, ...] | None:
            job, asks = line[at], line[at].request
            # what did not fit earlier in this pass cannot fit now: a pass only takes
            shape = asks.total, asks.gpu_types, asks.nodes, asks.exclusive, job.partition
            if shape in failed:
                return None
            shares = place_request(asks, job.member, free, self.rules.placement)
            if shares is None:
                failed.add(shape)
                return None
            if not asks.exclusive:
                return shares
            return tuple(one for share in shares for one in _whole(self._nodes[share.node]))

        done = easy_backfill(
            line,
            self.capacity,
            lambda: [
                JobEnd(run.started_at + run.pending.limit_s, run.shares)
                for run in self.running.values()
            ],
            now=self.now,
            rule=self.rules.placement,
            place=place,
            passes=self.rules.backfill == "easy",
        )
        heads = {head.job for head in done.reservations}
        for at, job in enumerate(line):
            if at in done.starts:
                self.capacity.take(done.starts[at])
                run = Run(self.pending.pop(job.number), self.now, done.starts[at])
                self.running[job.number] = run
                self._push(self.now + min(job.job.duration_s, job.limit_s), _END, run)
            else:
                job.reason = "Resources" if at in heads else "Priority"

    def priority(self, job: Pending) -> int:
        """The priority in force: what was frozen, or the natural one with site factor and nice."""
        if job.frozen is not None:
            return job.frozen
        natural = self.rules.natural.priority(
            number=job.number,
            waited_s=max(0.0, self.now - job.job.submit_s),
            size_share=self.rules.natural.size(job.request.total, job.request.nodes, self._whole),
            partition_share=self.partitions[job.partition].priority_factor / self._max_factor,
        )
        return max(1, natural + job.site_factor - job.nice)

    def _push(self, at: float, kind: int, what: Pending | Fault | Run) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (at, kind, self._sequence, what))

    def _change(self, fault: Fault) -> None:
        name = NodeName(fault.node)
        self.capacity.usable[self.capacity.index[name]] = fault.change is NodeFault.RESUME
        self.down.discard(name)
        if fault.change is not NodeFault.FAIL:
            return
        self.down.add(name)
        for place, run in sorted(self.running.items()):
            if any(share.node == name for share in run.shares):
                del self.running[place]
                self._events = [event for event in self._events if event[3] is not run]
                self.capacity.give(run.shares)
                self.lost_gpu_s += run.job.gpus * (self.now - run.started_at)
                run.pending.reason = ""
                self.pending[place] = run.pending
        heapq.heapify(self._events)
        self.pending = dict(sorted(self.pending.items()))  # in submit order, as before


def by_priority(world: World) -> list[Pending]:
    """Slurm's order: tier of the partition, priority, then submit order."""
    return sorted(
        world.pending.values(),
        key=lambda p: (
            -world.partitions[p.partition].priority_tier,
            -world.priority(p),
            p.number,
        ),
    )


def _whole(node: Node) -> Iterable[Share]:
    """All of a node; of several GPU types the first share has CPUs and memory."""
    rest = node.total.cpus, node.total.mem_mib
    if not node.gpus:
        yield Share(node.name, node.total)
    for at, count in enumerate(node.gpus):
        yield Share(node.name, Resources(count.total, *((0, 0) if at else rest)), count.gpu_type)
