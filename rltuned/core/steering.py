"""Steering by excluded nodes: keep a job that accepts several GPU types off all but one of them.

Slurm gives such a job the nodes of its own best fit. Where the joint solution leaves a sought-after
type to those who need it, `ExcNodeList` is what makes Slurm follow. Nodes are excluded, never
required: `ReqNodeList` would shrink a job that has started meanwhile, `ExcNodeList` is refused for
it. An exclusion is taken back at the first look that no longer wants it, and of no job does it last
longer than the expiry. docs/placement.md says what was measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rltuned.core.capacity import Capacity
from rltuned.core.planning import target_of
from rltuned.core.timeline import Candidate
from rltuned.domain.jobs import PendingJob, Share
from rltuned.domain.plan import SetExcludedNodes, SetOverSubscribe
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, NodeName, UnixTime

Exclusions = Mapping[JobId, tuple[NodeName, ...]]
Guidance = SetOverSubscribe | SetExcludedNodes


@dataclass(frozen=True, slots=True)
class Steer:
    """Whether jobs are steered by GPU type, and how long a job may be, in seconds."""

    on: bool = False
    expiry_s: float = 600.0

    def __post_init__(self) -> None:
        if not self.expiry_s > 0:
            raise ValueError(f"an expiry must be seconds > 0, not {self.expiry_s}")


def may_steer(job: PendingJob, taken_at: UnixTime, steer: Steer) -> bool:
    """Whether a job's nodes may be excluded: one record of one job, without nodes of its own."""
    if not steer.on or job.array is not None or job.het_job_id is not None or job.cron:
        return False
    if job.own_excluded_nodes or job.required_nodes or job.reservation or job.held_by:
        return False
    return job.steering is None or 0 <= taken_at - job.steering.since < steer.expiry_s


def other_types(
    one: Candidate, shares: tuple[Share, ...], capacity: Capacity
) -> tuple[NodeName, ...]:
    """Nodes of the types that a job accepts besides the one it is to get, by name."""
    chosen = capacity.row_on(shares[0], capacity.index[shares[0].node])
    rows = [row for row in capacity.accepted(one.request) if row != chosen]
    if not rows or one.request.total.gpus == 0:
        return ()
    others = (capacity.total_gpus[rows] > 0).any(axis=0) & (capacity.total_gpus[chosen] == 0)
    return tuple(capacity.names[column] for column in (one.member & others).nonzero()[0])


def without(one: Candidate, nodes: tuple[NodeName, ...], capacity: Capacity) -> Candidate:
    """A candidate as Slurm sees it when these nodes are excluded."""
    member = one.member.copy()
    member[[capacity.index[name] for name in nodes]] = False
    return Candidate(one.job, one.request, member)


def exclude(snapshot: Snapshot, wanted: Exclusions) -> tuple[SetExcludedNodes, ...]:
    """What brings the exclusions in force to those wanted; what is not wanted is taken back."""
    found = []
    for job in snapshot.pending:
        ours = job.excluded_nodes if job.steered else ()
        new = wanted.get(job.job_id, ())
        if set(new) != set(ours):
            found.append(SetExcludedNodes(target_of(job), ours, new))
    return tuple(found)


def within(room: int, wanted: Sequence[Guidance]) -> list[Guidance]:
    """As many flags and exclusions as the change cap leaves room for; taking nodes back is free."""
    kept: list[Guidance] = []
    for action in wanted:
        is_free = isinstance(action, SetExcludedNodes) and not action.new
        if is_free or room > 0:
            kept.append(action)
            room -= not is_free
    return kept
