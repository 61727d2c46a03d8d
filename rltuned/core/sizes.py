"""How many nodes a pending job should have of those that it accepts, by marginal completion time.

One node more is worth its price while the job's own end comes nearer by more than the ends of those
behind it move away, together. A job on k nodes at speed s(k) takes 1/s(k) of its work in time, and
k/N of that from each of those that wait behind it on N nodes. Its run time cancels out.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rltuned.core.planning import target_of
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import SetRequest
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId

SizesMode = Literal["off", "shadow", "on"]
GAIN: Final = 0.1
"""A written count is changed only for one that is better by this share."""


def cost(speed: float, count: int, behind: int, nodes: int) -> float:
    """What a job on so many nodes adds to all completion times, in its run time at speed 1."""
    return (1.0 + behind * count / max(1, nodes)) / speed


def nodes_by_completion(speeds: Mapping[int, float], behind: int, nodes: int) -> int:
    """The node count, of those in speeds, that makes the sum of completion times least; of equals
    the fewest. behind: jobs that wait behind it for the same nodes.
    """
    return min(speeds, key=lambda k: (cost(speeds[k], k, behind, nodes), k))


@dataclass(frozen=True, slots=True)
class SizeChanges:
    """What becomes of node ranges: those given back, those written, and notes for people."""

    undone: tuple[SetRequest, ...] = ()
    chosen: tuple[SetRequest, ...] = ()
    notes: tuple[str, ...] = ()


def size_changes(
    mode: SizesMode,
    ranked: Sequence[PendingJob],
    first: int,
    leaving: Collection[JobId],
    snapshot: Snapshot,
) -> SizeChanges:
    """What a cycle changes of node ranges. ranked: first to run first. leaving: out of scope."""
    kept = mode == "on"
    undone = widenings(j for j in snapshot.pending if not kept or j.job_id in leaving)
    if mode == "off":
        return SizeChanges(undone)
    chosen = narrowings(ranked, first, snapshot)
    if kept:
        return SizeChanges(undone, chosen)
    words = (f"{a.target.job_id}: NumNodes {a.old} -> {a.new}" for a in chosen)
    note = (f"sizes.mode is shadow: not written of job {'; '.join(words)}",) if chosen else ()
    return SizeChanges(undone, notes=note)


def narrowings(
    ranked: Sequence[PendingJob], first: int, snapshot: Snapshot
) -> tuple[SetRequest, ...]:
    """What gives the first jobs of the ranking their node counts.

    Only within the range that was submitted, and only a count that can be put back: with more nodes
    than tasks Slurm raises tasks and CPUs for good. A job that has never been written is left alone
    where the most is best; of one that has, Slurm would start the whole range on its fewest.
    """
    found = []
    for place, job in enumerate(ranked[:first]):
        new = _wanted(job, ranked[place + 1 :], snapshot)
        if new is not None and job.sizes is not None and new != job.sizes.nodes:
            found.append(SetRequest(target_of(job), "num_nodes", job.sizes.nodes, new))
    return tuple(found)


def _wanted(job: PendingJob, behind: Sequence[PendingJob], snapshot: Snapshot) -> str | None:
    """The range that it should have; None = it is left as it is."""
    sizes = job.sizes
    if sizes is None or job.array is not None or not _is_ours(job):
        return None
    least, most = sizes.bounds
    speeds = {k: s for k, s in sizes.speeds if least <= k <= most}
    if not speeds or least == most:
        return None
    mine = set(job.partitions)
    waiting = sum(not mine.isdisjoint(other.partitions) for other in behind)
    nodes = sum(n.schedulable and not mine.isdisjoint(n.partitions) for n in snapshot.nodes)
    best = nodes_by_completion(speeds, waiting, nodes)
    now = int(sizes.nodes.partition("-")[2])
    if sizes.submitted and now in speeds:
        gain = 1.0 - cost(speeds[best], best, waiting, nodes) / cost(
            speeds[now], now, waiting, nodes
        )
        if gain < GAIN:
            return None
    if best == most and not sizes.submitted:
        return None
    return f"{best}-{best}" if best <= sizes.tasks else None


def widenings(jobs: Iterable[PendingJob]) -> tuple[SetRequest, ...]:
    """What gives jobs back the ranges that they were submitted with."""
    return tuple(
        SetRequest(target_of(job), "num_nodes", job.sizes.nodes, job.sizes.submitted)
        for job in jobs
        if job.sizes is not None and job.sizes.submitted and _is_ours(job)
    )


def _is_ours(job: PendingJob) -> bool:
    """Whether no one else has changed the range since rltuned wrote it."""
    sizes = job.sizes
    return sizes is not None and (not sizes.submitted or sizes.nodes == sizes.written)
