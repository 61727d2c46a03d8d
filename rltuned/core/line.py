"""Who is in line for the nodes, in which order, and why the others cannot start."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rltuned.core.decide import Decision
from rltuned.core.refusals import Refusal
from rltuned.core.select import Reservations, cannot_start
from rltuned.core.standing import tier_of, tiers_of
from rltuned.domain.context import NO_CONTEXT, Context
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.text import at_clock

THROTTLED: Final = "as many tasks of its array run as the array allows"
_FULL: Final = "JobArrayTaskLimit"
"""Slurm leaves the eligible time of such a record unset."""


@dataclass(frozen=True, slots=True)
class Line:
    """The waiting jobs of one look. jobs: those that could start, in order. delays_s: of those that
    rltuned orders; empty = it orders none. cannot: why each of the others cannot start, in words.
    """

    snapshot: Snapshot
    context: Context
    jobs: tuple[PendingJob, ...]
    delays_s: Mapping[JobId, float]
    cannot: Mapping[JobId, str]


def proposed_line(decision: Decision) -> Line:
    """In the order of the priorities after this plan."""
    settled = {entry.job.job_id: entry.settled for entry in decision.entries}
    delays_s = {entry.job.job_id: entry.delay_s for entry in decision.entries}
    return _line(decision.snapshot, decision.context, settled, delays_s)


def present_line(snapshot: Snapshot, context: Context = NO_CONTEXT) -> Line:
    """In Slurm's own present order, where rltuned writes nothing."""
    return _line(snapshot, context, {}, {})


def _line(
    snapshot: Snapshot,
    context: Context,
    number: Mapping[JobId, int],
    delays_s: Mapping[JobId, float],
) -> Line:
    jobs, cannot, reservations = [], {}, Reservations(snapshot)
    for job in snapshot.pending:
        reason = cannot_start(job, reservations)
        if reason is None:
            jobs.append(job)
        else:
            cannot[job.job_id] = _why(job, reason, snapshot)
    tiers = tiers_of(snapshot)
    jobs.sort(key=lambda j: (-tier_of(j, tiers), -number.get(j.job_id, j.priority), j.job_id))
    return Line(snapshot, context, tuple(jobs), delays_s, cannot)


def _why(job: PendingJob, reason: Refusal, seen: Snapshot) -> str:
    """Why it cannot start, with what Slurm says of it."""
    if reason is Refusal.NOT_ELIGIBLE and job.eligible_at and job.eligible_at > seen.taken_at:
        return f"it may not start before {at_clock(job.eligible_at, seen.taken_at)} (begin time)"
    if reason is Refusal.NOT_ELIGIBLE and job.reason == _FULL:
        return THROTTLED
    return reason.sentence.replace("see Slurm's reason", job.reason)
