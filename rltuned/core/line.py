"""Who is in line for the nodes, in which order, and why the others cannot start."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rltuned.core.decide import Decision
from rltuned.core.planning import tier_of, tiers_of
from rltuned.core.refusals import Refusal
from rltuned.core.select import Reservations, cannot_start
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import NO_CONTEXT, Context, Snapshot
from rltuned.domain.units import JobId
from rltuned.text import at_clock, span

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


def sentence(decision: Decision, row: int) -> str:
    """What a job's delay means, for the person whose job it is. row: of the matrix."""
    job, delays = decision.matrix.jobs[row], decision.delays
    entry = next(e for e in decision.entries if e.job is job)
    if entry.sla is not None:
        return f"delay 0, by the promise to {entry.sla.name}"
    own, share = span(float(delays.own_s[row])), float(delays.queue_s[row])
    held, delay = delays.bound_on(row), span(float(delays.delay_s[row]))
    return (
        f"may be overtaken because of rltuned by jobs that become eligible within {delay} after "
        f"it, and by no later ones: {own} for its own length"
        + (f", {span(share)} for its share of the backlog" if share else "")
        + (f", held to {delay} by {held.value}" if held is not None else "")
    )


def advised_nodes(decision: Decision, job: PendingJob, speeds: Mapping[int, float]) -> int | None:
    """The node count, of those that a job accepts, with which jobs end soonest on average; None =
    not known. speeds: by node count, as its user says.
    """
    request, mine = job.request, set(job.partitions)
    fewest, most = request.nodes or 1, request.nodes_most or 0
    accepted = {k: speed for k, speed in speeds.items() if fewest <= k <= most}
    line = proposed_line(decision).jobs
    place = next((i for i, j in enumerate(line) if j.job_id == job.job_id), None)
    if not accepted or place is None:
        return None
    behind = sum(not mine.isdisjoint(other.partitions) for other in line[place + 1 :])
    shown = decision.snapshot.nodes
    nodes = sum(n.schedulable and not mine.isdisjoint(n.partitions) for n in shown)
    return _by_completion(accepted, behind, nodes)


def _by_completion(speeds: Mapping[int, float], behind: int, nodes: int) -> int:
    """The node count that makes the sum of completion times least; of equals the fewest.

    One node more is worth its price while the job's own end comes nearer by more than the ends of
    those behind it move away, together. A job on k nodes at speed s(k) takes 1/s(k) of its work in
    time, and k/N of that from each of those that wait behind it on N nodes. Its run time cancels
    out.
    """
    return min(speeds, key=lambda k: ((1.0 + behind * k / max(1, nodes)) / speeds[k], k))
