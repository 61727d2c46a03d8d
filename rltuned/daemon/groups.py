"""Groups of dependent jobs in the daemon: kept in the journal, shown to people."""

from math import isfinite
from typing import Any, Final

from pydantic import ConfigDict

from rltuned.core.groups import GroupForecast, follow, forecasts, node_of
from rltuned.domain.jobs import GroupStore, JobPhase, PendingJob
from rltuned.domain.snapshot import RunTimes, Snapshot
from rltuned.journal.journal import Journal
from rltuned.journal.store import Kept
from rltuned.slurm.values import parse_dependency

Document = dict[str, Any]

GROUPS: Final[Kept[GroupStore]] = Kept(
    "groups", GroupStore, "groups of jobs", ConfigDict(extra="ignore", allow_inf_nan=False)
)
"""By cluster."""


Groups = tuple[GroupForecast, ...]
"""All groups of one cluster after one look."""


def open_of(groups: Groups) -> Groups:
    """Those that have not ended."""
    return tuple(group for group in groups if not group.has_ended)


def phases(groups: Groups) -> dict[JobPhase, int]:
    """How far the jobs of the open ones have come."""
    found = [job.phase for group in open_of(groups) for job in group.jobs.values()]
    return {phase: found.count(phase) for phase in JobPhase}


def documents(groups: Groups) -> list[Document]:
    """Every group for JSON, open ones first."""
    return [document(g) for g in sorted(groups, key=lambda group: (group.has_ended, group.group))]


def edges_left_out(groups: Groups, seen: Snapshot) -> int:
    """Edges between jobs that Slurm shows and that no group holds: core/groups.MOST_EDGES is the
    bound.
    """
    held = {node for group in groups for node in group.jobs}
    shown = {node_of(job) for job in seen.pending} | {node_of(run) for run in seen.running}
    return sum(
        parent in shown
        for job in seen.pending
        if job.dependency and node_of(job) not in held
        for parent, _ in parse_dependency(job.dependency).parents
    )


def looked(before: GroupStore, seen: Snapshot, predicted: RunTimes) -> GroupStore:
    """The groups after one more look."""
    waits = {job.job_id: parse_dependency(job.dependency) for job in seen.pending if job.dependency}
    return follow(before, seen, waits, predicted)


def kept_groups(journal: Journal, cluster: str) -> GroupStore:
    """Those of the last cycle; raises as Kept.read."""
    return GROUPS.read(journal).get(cluster, GroupStore())


def take_in(journal: Journal, seen: Snapshot, predicted: RunTimes) -> Groups:
    """Take one look into what the journal keeps. Raises JournalError."""
    after = GroupStore()

    def put(every: dict[str, GroupStore]) -> dict[str, GroupStore]:
        nonlocal after
        before = every.get(seen.cluster, GroupStore())
        after = looked(before, seen, predicted)
        return every if after == before else {**every, seen.cluster: after}

    GROUPS.alter(journal, put, seen.taken_at)
    return forecasts(after, seen.taken_at)


def document(group: GroupForecast) -> Document:
    """One group for JSON. Times are Unix seconds; null = not known."""
    critical = group.critical
    return {
        "group": group.group,
        "state": _state(group),
        "user": ",".join(sorted({job.user for job in group.jobs.values() if job.user})),
        "understood": group.whole,
        "depth": group.depth,
        "end_at": _known(group.end_at),
        "edges": [
            {"parent": parent, "child": node, "kind": kind}
            for node, job in group.jobs.items()
            for parent, kind in job.parents.items()
        ],
        "jobs": [
            {
                "job_id": node,
                "state": job.phase.value,
                "step": group.level.get(node),
                "waits_for": group.held_by(node) if job.phase is JobPhase.WAITING else [],
                "run_s": job.run_s,
                "source": job.source,
                "rank_s": _known(group.rank_s[node]),
                "end_at": _known(group.ends_at[node]),
                "critical": node in critical,
            }
            for node, job in group.jobs.items()
        ],
    }


def place_of(groups: Groups, job: PendingJob, now: float) -> Document | None:
    """Where a job stands in its group, for `explain`; None = it has none. now: Unix seconds."""
    node = node_of(job)
    group = next((one for one in groups if node in one.jobs), None)
    if group is None:
        return None
    whole = document(group)
    found = {one["job_id"]: one for one in whole["jobs"]}
    own = found[node]
    return {
        "group": group.group,
        "jobs": len(group.jobs),
        "understood": group.whole,
        "depth": group.depth,
        "end_at": whole["end_at"],
        "step": own["step"],
        "critical": own["critical"],
        "rank_s": own["rank_s"],
        "run_s": own["run_s"],
        "source": own["source"],
        "waits_for": [
            {
                "job_id": parent,
                "state": found[parent]["state"],
                "source": found[parent]["source"],
                "ends_in_s": None
                if found[parent]["end_at"] is None
                else max(0.0, found[parent]["end_at"] - now),
            }
            for parent in own["waits_for"]
        ],
    }


def _state(group: GroupForecast) -> str:
    """ended, stuck (a dependency can never be satisfied), running or waiting."""
    jobs = group.jobs.values()
    if group.has_ended:
        return "ended"
    if any(job.never for job in jobs):
        return "stuck"
    return "running" if any(job.phase is JobPhase.RUNNING for job in jobs) else "waiting"


def _known(value: float) -> float | None:
    return value if isfinite(value) else None
