"""The only place where simulated time moves: nodes, queue, clock and the heap of events.

At one instant: jobs end, then nodes fail, drain or come back, then jobs are submitted, then one
scheduling pass looks at all of it.
"""

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from rltuned.core.capacity import Capacity
from rltuned.core.placement import PlacementRule
from rltuned.core.slurm_plan import Parameters
from rltuned.domain.jobs import Share
from rltuned.domain.units import NodeName
from rltuned.errors import TraceError
from rltuned.sim.cluster import Cluster
from rltuned.sim.dispatch import BackfillRule, Claim, Grounds, Natural, Pending, Whole, run_pass
from rltuned.sim.trace import EmptyCluster, TraceJob, in_partition


class EventKind(IntEnum):
    """Events, in the order in which they happen at one instant."""

    END = 0
    FAULT = 1
    SUBMIT = 2


class NodeFault(StrEnum):
    """What can befall a node."""

    FAIL = "fail"
    """It goes down; its jobs are requeued."""
    DRAIN = "drain"
    """It takes no new jobs; those it has go on."""
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of one node at a given time."""

    at_s: float
    node: str
    change: NodeFault
    where: str = ""

    def no_node(self) -> TraceError:
        """It names a node that there is not. where: file and line; empty = made by a program."""
        where = f"{self.where}: " if self.where else ""
        return TraceError(f"{where}fault at {self.at_s:g} s: no node named {self.node!r}")


@dataclass(frozen=True, slots=True)
class Running:
    """A job on its nodes."""

    pending: Pending
    started_at: float
    shares: tuple[Share, ...]

    @property
    def claim(self) -> Claim:
        limit_s = self.pending.request.time_limit_s
        return self.started_at + (math.inf if limit_s is None else limit_s), self.shares


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job that has ended. status: COMPLETED or TIMEOUT."""

    number: int
    job: TraceJob
    started_at: float
    ended_at: float
    shares: tuple[Share, ...]
    status: str


@dataclass(frozen=True, slots=True)
class Rules:
    """How the simulated Slurm is set up. parameters: of the backfill `slurm`."""

    backfill: BackfillRule = "easy"
    placement: PlacementRule = "pack"
    natural: Natural = field(default_factory=Natural)
    parameters: Parameters = field(default_factory=Parameters)


Order = Callable[["World"], Iterable[Pending]]
"""Ranks the pending jobs of a world for one pass, first to start first."""


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
        self.cluster = cluster
        self.rules = rules or Rules()
        if self.rules.backfill == "slurm":
            raise TraceError("joint placement and plugins play with backfill easy or none only")
        self._empty = EmptyCluster(cluster)
        self.capacity = Capacity.of(self._empty.snapshot)
        nodes = {n.name: n for n in cluster.nodes}
        self.grounds = Grounds(nodes, self.rules.placement, self.rules.backfill)
        self.now = -math.inf
        self.pending: dict[int, Pending] = {}
        self.running: dict[int, Running] = {}
        self.finished: dict[int, FinishedJob] = {}
        self.lost_gpu_s = 0.0
        self.shown: dict[tuple[str, object], tuple[object, object]] = {}
        """What the last look was shown, with what it depended on: most of it stays the same."""
        self._order = order or by_priority
        self._partitions = {p.name: p for p in cluster.partitions}
        self._down: set[NodeName] = set()
        self._events: list[tuple[float, EventKind, int, Pending | Fault | Running]] = []
        self._sequence = 0
        self._submitted = 0
        self.first_s = math.inf
        """When the first job is submitted."""
        self._max_factor = max(1, *(p.priority_factor for p in cluster.partitions))
        cpus = sum(n.total.cpus for n in cluster.nodes)
        self._whole = Whole(cluster.gpus, cpus, len(cluster.nodes))
        self.submit(jobs)
        for fault in faults:
            if fault.node not in self.grounds.nodes:
                raise fault.no_node()
            self._push(fault.at_s, EventKind.FAULT, fault)

    def submit(self, jobs: Iterable[TraceJob]) -> None:
        """Announce jobs that come at their submit time. Raises TraceError: one can never run."""
        for job in jobs:
            why = self._empty.why_not(job)
            if why is not None:
                raise TraceError(f"job {job.job_id} can never run on {self.cluster.name}: {why}")
            self._submitted += 1
            self.first_s = min(self.first_s, job.submit_s)
            partition = self._partitions[job.partition or self.cluster.default_partition]
            request = in_partition(job.request(), partition)
            self._push(
                job.submit_s, EventKind.SUBMIT, Pending(self._submitted, job, request, partition)
            )

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
                self._end(what)

    def advance(self, to: float) -> None:
        """Let everything happen up to and at a time, which becomes now."""
        while (time := self.next_time()) is not None and time <= to:
            self.step()
        self.now = max(self.now, to)

    def schedule(self) -> None:
        if not self.pending:
            return
        ordered, claims = self._order(self), [r.claim for r in self.running.values()]
        for job, shares in run_pass(self.now, ordered, claims, self.capacity, self.grounds):
            self._start(job, shares)

    def priority(self, job: Pending) -> int:
        """The priority in force: what was frozen, or the natural one with site factor and nice."""
        if job.frozen is not None:
            return job.frozen
        return max(1, self.natural_priority(job) + job.site_factor - job.nice)

    def natural_priority(self, job: Pending) -> int:
        """What Slurm would give the job by itself now."""
        return self.rules.natural.priority(
            number=job.number,
            waited_s=max(0.0, self.now - job.job.submit_s),
            size_share=self.rules.natural.size(job.request.total, job.request.nodes, self._whole),
            partition_share=job.partition.priority_factor / self._max_factor,
        )

    def usable(self, node: NodeName) -> bool:
        return bool(self.capacity.usable[self.capacity.index[node]])

    def is_down(self, node: NodeName) -> bool:
        """Whether the node has failed (not merely drained)."""
        return node in self._down

    def _push(self, at: float, kind: EventKind, what: Pending | Fault | Running) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (at, kind, self._sequence, what))

    def _start(self, job: Pending, shares: tuple[Share, ...]) -> None:
        del self.pending[job.number]
        run = Running(job, self.now, shares)
        self.running[job.number] = run
        self._push(self.now + _runs(job), EventKind.END, run)

    def _end(self, run: Running) -> None:
        number = run.pending.number
        del self.running[number]
        self.shown.pop(("running", number), None)
        self.capacity.give(run.shares)
        job = run.pending.job
        limit_s = run.pending.request.time_limit_s
        cut = limit_s is not None and job.duration_s > limit_s
        self.finished[number] = FinishedJob(
            number, job, run.started_at, self.now, run.shares, "TIMEOUT" if cut else "COMPLETED"
        )

    def _change(self, fault: Fault) -> None:
        name = NodeName(fault.node)
        self.capacity.usable[self.capacity.index[name]] = fault.change is NodeFault.RESUME
        self._down.discard(name)
        if fault.change is not NodeFault.FAIL:
            return
        self._down.add(name)
        for place, run in sorted(self.running.items()):
            if any(share.node == name for share in run.shares):
                del self.running[place]
                self._events = [event for event in self._events if event[3] is not run]
                self.capacity.give(run.shares)
                self.lost_gpu_s += run.pending.job.gpus * (self.now - run.started_at)
                run.pending.reason = ""
                self.pending[place] = run.pending
        heapq.heapify(self._events)
        self.pending = dict(sorted(self.pending.items()))  # in submit order, as before


def by_priority(world: World) -> list[Pending]:
    """Slurm's order: tier of the partition, priority, then submit order."""
    return sorted(
        world.pending.values(),
        key=lambda p: (-p.partition.priority_tier, -world.priority(p), p.number),
    )


def _runs(job: Pending) -> float:
    limit_s = job.request.time_limit_s
    return job.job.duration_s if limit_s is None else min(job.job.duration_s, limit_s)


# -- The fault file: what befalls nodes, and when -------------------------------------------------
