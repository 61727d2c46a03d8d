"""Groups of dependent jobs in the daemon: kept in the journal, shown to people."""

from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from pydantic import ConfigDict

from rltuned.core.group_forecast import GroupForecast
from rltuned.core.groups import follow, forecasts, node_of
from rltuned.domain.context import RunTimes
from rltuned.domain.groups import ExpectedEnd, GroupStore, JobPhase
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.journal import Journal
from rltuned.journal.named_values import Kept, Recall
from rltuned.slurm.strings import parse_dependency

Document = dict[str, Any]

GROUPS: Final[Kept[GroupStore]] = Kept(
    "groups", GroupStore, "groups of jobs", ConfigDict(extra="ignore", allow_inf_nan=False)
)
"""By cluster."""


@dataclass(frozen=True, slots=True)
class GroupsStatus:
    """The groups after one look. ended: since the last one. left_out: jobs without room."""

    groups: tuple[GroupForecast, ...] = ()
    expected: tuple[tuple[int, ExpectedEnd], ...] = ()
    ended: tuple[tuple[int, ExpectedEnd], ...] = ()
    left_out: int = 0

    @property
    def open(self) -> tuple[GroupForecast, ...]:
        return tuple(group for group in self.groups if not group.has_ended)

    def jobs(self) -> dict[JobPhase, int]:
        phases = [job.phase for group in self.open for job in group.jobs.values()]
        return {phase: phases.count(phase) for phase in JobPhase}

    def documents(self) -> list[Document]:
        """Every group for JSON, open ones first."""
        known = dict(self.expected)
        found = sorted(self.groups, key=lambda group: (group.has_ended, group.group))
        return [document(group, known.get(group.group)) for group in found]


def looked(before: GroupStore, seen: Snapshot, predicted: RunTimes) -> GroupStore:
    """The groups after one more look."""
    waits = {job.job_id: parse_dependency(job.dependency) for job in seen.pending if job.dependency}
    return follow(before, seen, waits, predicted)


def kept_groups(memory: Recall, cluster: str) -> GroupStore:
    """Those of the last cycle; raises as Kept.read."""
    return GROUPS.read(memory).get(cluster, GroupStore())


def take_in(journal: Journal, seen: Snapshot, predicted: RunTimes) -> GroupsStatus:
    """Take one look into what the journal keeps. Raises JournalError."""
    before = after = GroupStore()

    def put(every: dict[str, GroupStore]) -> dict[str, GroupStore]:
        nonlocal before, after
        before = every.get(seen.cluster, before)
        after = looked(before, seen, predicted)
        return every if after == before else {**every, seen.cluster: after}

    GROUPS.alter(journal, put, seen.taken_at)
    return status_of(after, seen.taken_at, before)


def status_of(store: GroupStore, now: float, before: GroupStore | None = None) -> GroupsStatus:
    """What is known of the groups at a Unix time. before: at the last look."""
    known = {} if before is None else before.expected
    ended = (
        (group, one)
        for group, one in store.expected.items()
        if one.ended_at is not None and group in known and known[group].ended_at is None
    )
    return GroupsStatus(
        tuple(forecasts(store, now)), tuple(store.expected.items()), tuple(ended), store.left_out
    )


def document(group: GroupForecast, expected: ExpectedEnd | None) -> Document:
    """One group for JSON. Times are Unix seconds; null = not known."""
    critical = group.critical
    return {
        "group": group.group,
        "state": _state(group),
        "user": ",".join(sorted({job.user for job in group.jobs.values() if job.user})),
        "understood": group.whole,
        "depth": group.depth,
        "end_at": _known(group.end_at),
        "expected_at_first": None if expected is None else expected.end_at,
        "error_s": None if expected is None else expected.error_s,
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


def place_of(status: GroupsStatus, job: PendingJob, now: float) -> Document | None:
    """Where a job stands in its group, for `explain`; None = it has none. now: Unix seconds."""
    node = node_of(job)
    group = next((one for one in status.groups if node in one.jobs), None)
    if group is None:
        return None
    whole = document(group, dict(status.expected).get(group.group))
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
