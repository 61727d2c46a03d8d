"""Domain objects with defaults, so that a test names only what it is about."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rltuned.core.decide import Decision, Knobs
from rltuned.core.numbers import EPOCH_S, RESOLUTION_S
from rltuned.daemon.apply import remembered_by
from rltuned.daemon.documents import Look
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import HealthState
from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.plan import (
    MAX_PRIORITY,
    PRIORITY,
    RELEASE,
    SITE_FACTOR,
    Action,
    Outcome,
    Plan,
    Result,
    target_of,
)
from rltuned.domain.snapshot import NO_CONTEXT, Snapshot
from rltuned.domain.units import GpuType, JobId, NodeName, UnixTime
from rltuned.journal.cycles import CycleObservation
from rltuned.journal.journal import Journal
from rltuned.journal.owned import OwnedRow

T = TypeVar("T")
NOW = 1_700_000_000.0
"""The "now" of every built snapshot, unless the test says otherwise."""


def request(
    *,
    gpus: int = 1,
    cpus: int = 2,
    mem_mib: int = 4_000,
    time_limit_s: float | None = 3_600.0,
    gpu_types: Sequence[str] = (),
    **rest: Any,
) -> Request:
    """What a job asks for: one GPU, two CPUs, 4 000 MiB, one hour."""
    return Request(
        total=Resources(gpus, cpus, mem_mib),
        time_limit_s=time_limit_s,
        gpu_types=tuple(GpuType(t) for t in gpu_types),
        **rest,
    )


def job(
    job_id: int = 1,
    *,
    submitted_at: float = NOW - 600.0,
    priority: int = 1_000,
    partition: str = "gpu",
    partitions: Sequence[str] | None = None,
    asks: Request | None = None,
    gpus: int = 1,
    cpus: int = 2,
    mem_mib: int = 4_000,
    time_limit_s: float | None = 3_600.0,
    gpu_types: Sequence[str] = (),
    **rest: Any,
) -> PendingJob:
    """An ordinary pending job, eligible since it was submitted; `asks` replaces the amounts."""
    wants = asks or request(
        gpus=gpus, cpus=cpus, mem_mib=mem_mib, time_limit_s=time_limit_s, gpu_types=gpu_types
    )
    fields: dict[str, Any] = {
        "address": str(job_id),
        "eligible_at": UnixTime(submitted_at),
        "user": "alice",
        "account": "lab",
        "qos": "normal",
        "reason": "Priority",
        "site_factor": 0,
    }
    return PendingJob(
        job_id=JobId(job_id),
        submitted_at=UnixTime(submitted_at),
        request=wants,
        priority=priority,
        partitions=tuple(partitions) if partitions is not None else (partition,),
        **(fields | rest),
    )


def running(
    job_id: int = 100,
    *,
    node_name: str = "p1",
    started_at: float = NOW - 1_200.0,
    gpus: int = 1,
    cpus: int = 2,
    mem_mib: int = 4_000,
    time_limit_s: float | None = 3_600.0,
    gpu_type: str | None = "p100",
    partition: str = "gpu",
    asks: Request | None = None,
    **rest: Any,
) -> RunningJob:
    """A job that runs on one node; `asks` replaces the amounts."""
    total = Resources(gpus, cpus, mem_mib) if asks is None else asks.total
    kind = GpuType(gpu_type) if gpu_type is not None and gpus else None
    return RunningJob(
        job_id=JobId(job_id),
        started_at=UnixTime(started_at),
        request=asks or Request(total=total, time_limit_s=time_limit_s),
        shares=(Share(node=NodeName(node_name), taken=total, gpu_type=kind),),
        partition=partition,
        **({"user": "bob", "account": "lab"} | rest),
    )


def node(
    name: str = "p1",
    *,
    gpu_type: str = "p100",
    gpus: int = 4,
    free_gpus: int | None = None,
    cpus: int = 16,
    free_cpus: int | None = None,
    mem_mib: int = 64_000,
    free_mem_mib: int | None = None,
    schedulable: bool = True,
    partitions: Sequence[str] = ("gpu",),
    **rest: Any,
) -> Node:
    """A node with GPUs of one type, all free unless given."""
    free = gpus if free_gpus is None else free_gpus
    counts = (GpuCount(GpuType(gpu_type), gpus, free),) if gpus else ()
    return Node(
        name=NodeName(name),
        gpus=counts,
        total=Resources(gpus, cpus, mem_mib),
        free=Resources(
            free,
            cpus if free_cpus is None else free_cpus,
            mem_mib if free_mem_mib is None else free_mem_mib,
        ),
        schedulable=schedulable,
        partitions=tuple(partitions),
        **({"state": "IDLE"} | rest),
    )


def snapshot(
    *pending: PendingJob,
    runs: Sequence[RunningJob] = (),
    nodes: Sequence[Node] | None = None,
    partitions: Sequence[Partition] | None = None,
    taken_at: float = NOW,
    cluster: str = "test",
    **rest: Any,
) -> Snapshot:
    """A cluster of one four-GPU node and one partition `gpu` with the given pending jobs."""
    return Snapshot(
        taken_at=UnixTime(taken_at),
        cluster=cluster,
        pending=pending,
        running=tuple(runs),
        nodes=tuple(nodes) if nodes is not None else (node(),),
        partitions=tuple(partitions) if partitions is not None else (Partition("gpu", True),),
        **rest,
    )


def basic(delay_s: float, *, eligible_at: float = NOW - 600.0, now: float = NOW) -> int:
    """The priority that stands for a delay under priority/basic (core/numbers)."""
    epoch = (now // EPOCH_S - 1) * EPOCH_S
    return MAX_PRIORITY - int((eligible_at + delay_s - epoch) // RESOLUTION_S)


def set_priority(of: PendingJob, new: int) -> Action:
    return PRIORITY.to(of, new, nice=of.nice)


def set_site_factor(of: PendingJob, new: int) -> Action:
    return Action(SITE_FACTOR, target_of(of), old=of.site_factor or 0, new=new)


def release(of: PendingJob, nice: int = 0) -> Action:
    return RELEASE.to(of, None, nice=nice)


def sight(
    seen: Snapshot, *, cycle: int = 1, at: float = NOW, mode: str = "live"
) -> CycleObservation:
    """What the journal keeps of a cycle that changed nothing."""
    nothing: dict[str, Any] = {"actions": [], "reasons": {}, "notes": []}
    return CycleObservation(cycle, at, mode, seen, NO_CONTEXT, "fcfs", plan=nothing)


def noted(
    journal: Journal,
    *actions: Action,
    by: Callable[[Plan], Sequence[Outcome]] | Result | None = Result.APPLIED,
    cycle: int = 1,
    at: float = NOW,
) -> None:
    """Note an intent and what comes of it. by: what all come to, or who says; None = a crash."""
    plan = Plan(actions)
    ticket = journal.intend(plan, cluster="test", cycle=cycle, at=at)
    if by is not None:
        found = by(plan) if callable(by) else [Outcome(one, by) for one in actions]
        journal.settle(ticket, found, at=at)


def numbers_in(journal: Journal, cluster: str = "test") -> list[OwnedRow]:
    """What a journal holds of numbers."""
    return [claim for claim in journal.claims(cluster) if not claim.field.words]


def marked_by(journal: Journal, seen: Snapshot) -> Snapshot:
    """A snapshot with what a journal says of its jobs."""
    return seen.marked(remembered_by(journal, seen.cluster, seen.taken_at))


def words_in(journal: Journal, cluster: str = "test") -> list[OwnedRow]:
    """The same of words."""
    return [claim for claim in journal.claims(cluster) if claim.field.words]


def decided(decision: Decision) -> CycleReport:
    """A dry run that came to this decision."""
    return CycleReport(1, NOW, HealthState.DRY_RUN, {}, decision.snapshot, decision=decision)


def looked_at(decision: Decision) -> Look:
    """What documents are made of."""
    return Look(decision.snapshot, decision.context, decision, Knobs())


def sure(found: T | None) -> T:
    """What has to be there."""
    assert found is not None
    return found
