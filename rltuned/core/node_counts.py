"""How many nodes a job should have of those that it accepts; and what takes back ranges of 0.2.0.

One node more is worth its price while the job's own end comes nearer by more than the ends of those
behind it move away, together. A job on k nodes at speed s(k) takes 1/s(k) of its work in time, and
k/N of that from each of those that wait behind it on N nodes. Its run time cancels out.
"""

from collections.abc import Iterable, Mapping

from rltuned.core.planning import target_of
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import SetRequest


def nodes_by_completion(speeds: Mapping[int, float], behind: int, nodes: int) -> int:
    """The node count, of those in speeds, that makes the sum of completion times least; of equals
    the fewest. behind: jobs that wait behind it for the same nodes.
    """
    return min(speeds, key=lambda k: ((1.0 + behind * k / max(1, nodes)) / speeds[k], k))


def widenings(jobs: Iterable[PendingJob]) -> tuple[SetRequest, ...]:
    """What gives jobs back the ranges that they were submitted with, and that 0.2.0 narrowed. A
    range that someone else has changed since is left alone.
    """
    return tuple(
        SetRequest(target_of(job), "num_nodes", job.node_range.nodes, job.node_range.submitted)
        for job in jobs
        if job.node_range is not None
        and job.node_range.submitted
        and job.node_range.nodes == job.node_range.written
    )
