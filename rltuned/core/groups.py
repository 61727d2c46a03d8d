"""Groups of jobs that wait for each other, over time: squeue forgets an edge when it is satisfied.

A group is all jobs that edges connect. Each look is folded into a GroupStore. An edge that vanishes
stays where the parent has come as far as the edge asked; else a user took it away. Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from math import ceil, inf, isfinite
from typing import Final

from rltuned.domain.jobs import (
    AFTER_START,
    Dependency,
    GroupJob,
    GroupStore,
    JobPhase,
    PendingJob,
    RunningJob,
)
from rltuned.domain.snapshot import RunTimes, Snapshot
from rltuned.domain.units import JobId

# Directed graphs as parents by node: order, parts, levels, upward ranks. Pure.


Parents = Mapping[int, Collection[int]]
"""Of each node; a parent that is no key is none."""


def within(parents: Parents, nodes: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """The part of a graph between some nodes, in the order of their ids."""
    kept = set(nodes)
    return {n: tuple(sorted(p for p in parents[n] if p in kept)) for n in sorted(kept)}


def topological(parents: Parents) -> list[int] | None:
    """The nodes, each behind its parents; None = there is a cycle."""
    try:
        return list(TopologicalSorter(within(parents, parents)).static_order())
    except CycleError:
        return None


def children(parents: Parents) -> dict[int, list[int]]:
    """Of each node."""
    found: dict[int, list[int]] = {node: [] for node in parents}
    for node in parents:
        for parent in parents[node]:
            if parent in found:
                found[parent].append(node)
    return found


def components(parents: Parents) -> list[list[int]]:
    """Nodes that edges connect, each part sorted, the part with the least node first."""
    near: defaultdict[int, set[int]] = defaultdict(set)
    for node, those in children(parents).items():
        near[node].update(those)
        for child in those:
            near[child].add(node)
    found, seen = [], set[int]()
    for node in sorted(parents):
        if node in seen:
            continue
        part, edge = {node}, [node]
        while edge:
            new = near[edge.pop()] - part
            part |= new
            edge.extend(new)
        seen |= part
        found.append(sorted(part))
    return found


def levels(parents: Parents, order: Sequence[int]) -> dict[int, int]:
    """How many nodes the longest path to each one has, itself included."""
    found: dict[int, int] = {}
    for node in order:
        found[node] = 1 + max((found[p] for p in parents[node] if p in found), default=0)
    return found


# What to expect of one group: its order, its critical path, when it ends. Pure.
#
# The end is that of a group whose jobs never wait for anything but each other: no one knows how
# long the queue will hold them. docs/groups.md says so too.


_SLACK_S: Final = 1.0
"""A job whose end may move by less than this is on the critical path."""


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """One group, named by its least job id, at one moment; inf = a time or duration not known.

    jobs: by id, each behind its parents. whole: all edges are understood, without a circle. level:
    how many jobs the longest path to each one has. rank_s: seconds to the group's end behind each
    job (HEFT's upward rank), of what is left. starts_at, ends_at: Unix times.
    """

    group: int
    jobs: Mapping[int, GroupJob]
    whole: bool
    level: Mapping[int, int]
    rank_s: Mapping[int, float]
    starts_at: Mapping[int, float]
    ends_at: Mapping[int, float]

    @property
    def end_at(self) -> float:
        return max(self.ends_at.values())

    @property
    def has_ended(self) -> bool:
        return all(job.phase is JobPhase.ENDED for job in self.jobs.values())

    @property
    def edges(self) -> int:
        return sum(len(job.parents) for job in self.jobs.values())

    @property
    def depth(self) -> int:
        """How many jobs its longest path has; 0 where there is a circle."""
        return max(self.level.values(), default=0)

    @property
    def critical(self) -> frozenset[int]:
        """The jobs that make the group end later if they do; none where the end is not known."""
        end = self.end_at
        if not self.whole or not isfinite(end):
            return frozenset()
        return frozenset(
            node
            for node, job in self.jobs.items()
            if job.phase is not JobPhase.ENDED
            and self.starts_at[node] + self.rank_s[node] >= end - _SLACK_S
        )

    def held_by(self, job_id: int) -> list[int]:
        job = self.jobs[job_id]
        return sorted(
            parent
            for parent, kind in job.parents.items()
            if parent in self.jobs and not is_satisfied(self.jobs[parent].phase, kind)
        )


def is_satisfied(phase: JobPhase, kind: str) -> bool:
    """Whether a parent has come as far as an edge of this kind asks, if all went well."""
    return phase is JobPhase.ENDED or (kind in AFTER_START and phase is JobPhase.RUNNING)


def foresee(jobs: Mapping[int, GroupJob], now: float) -> GroupForecast:
    """What to expect of the jobs of one group. now: Unix seconds."""
    parents = {node: [p for p in job.parents if p in jobs] for node, job in jobs.items()}
    order = topological(parents)
    if order is None:
        unknown = dict.fromkeys(sorted(jobs), inf)
        ordered = dict(sorted(jobs.items()))
        return GroupForecast(min(jobs), ordered, False, {}, unknown, unknown, unknown)
    left_s = {node: _left_s(jobs[node], now) for node in order}
    starts: dict[int, float] = {}
    ends: dict[int, float] = {}
    for node in order:
        job = jobs[node]
        starts[node] = now if job.ended_at is None else job.ended_at
        if job.phase is JobPhase.WAITING:
            free = ((starts if job.parents[p] in AFTER_START else ends)[p] for p in parents[node])
            starts[node] = max((now, *free))
        ends[node] = starts[node] + left_s[node]
    below, ranks = children(parents), dict[int, float]()
    for node in reversed(order):
        after = (
            ranks[child] + (0.0 if jobs[child].parents[node] in AFTER_START else left_s[node])
            for child in below[node]
        )
        ranks[node] = max((left_s[node], *after))
    return GroupForecast(
        group=min(jobs),
        jobs={node: jobs[node] for node in order},
        whole=all(job.whole for job in jobs.values()),
        level=levels(parents, order),
        rank_s=ranks,
        starts_at=starts,
        ends_at=ends,
    )


def _left_s(job: GroupJob, now: float) -> float:
    if job.phase is JobPhase.ENDED:
        return 0.0
    longer = [s for s in (job.run_s, job.high_s, job.most_s) if s is not None]
    if not longer:
        return inf
    ran_s = 0.0 if job.started_at is None else now - job.started_at
    return max(0.0, next((s for s in longer if s > ran_s), longer[-1]) - ran_s)


MOST_EDGES: Final = 10_000
"""Of all groups of a cluster, about 2.5 MiB in the journal; further groups are left out."""
MOST_LOOKED_AT: Final = 100_000
"""Edges of one look; what further jobs wait for is not known."""
KEPT_S: Final = 7 * 86_400.0
"""A group that has ended is kept so long."""
RENEWED_S: Final = 300.0
"""What is kept is as old as this at most, where nothing else has changed."""
_NEVER: Final = "DependencyNeverSatisfied"
_NO_JOB: Final = JobId(0)


_Shown = tuple[list[PendingJob], list[RunningJob]]
"""What one look shows of a job or an array: its records."""


def node_of(job: PendingJob | RunningJob) -> int:
    """The id by which dependencies name a job: that of its array or heterogeneous job, if any."""
    if isinstance(job, RunningJob):
        return job.job_id if job.array_job_id is None else job.array_job_id
    if job.array is not None:
        return job.array.array_job_id
    return job.job_id if job.het_job_id is None else job.het_job_id


def follow(
    before: GroupStore, seen: Snapshot, waits_for: Mapping[JobId, Dependency], predicted: RunTimes
) -> GroupStore:
    """The groups after one more look; waits_for: of the pending records that wait for others."""
    if not before.jobs and not waits_for:
        return GroupStore()
    shown = _shown(seen)
    edges: dict[int, Dependency] = {}
    room = MOST_LOOKED_AT
    for job in seen.pending:
        one = waits_for.get(job.job_id)
        if one is not None:
            if len(one.parents) > room:
                one = Dependency((), whole=False)
            room -= len(one.parents)
            edges[node_of(job)] = _both(edges.get(node_of(job)), one, node_of(job))
    wanted = set(before.jobs) | edges.keys()
    wanted |= {p for one in edges.values() for p, _ in one.parents if p in shown}
    hidden = seen.hidden_ids() | set(seen.lingering)
    now = float(seen.taken_at)
    found = {
        node: _brought_up(before.jobs.get(node), shown[node], predicted)
        if node in shown
        else _missed(before.jobs[node], now, is_hidden=node in hidden or _NO_JOB in hidden)
        for node in wanted
        if node in shown or node in before.jobs
    }
    found = {node: _with_edges(found[node], edges.get(node), found) for node in found}
    after = _kept(found, now)
    same = replace(after, seen_at=before.seen_at) == before
    return before if same and now - before.seen_at < RENEWED_S else after


def _shown(seen: Snapshot) -> dict[int, _Shown]:
    found: dict[int, _Shown] = {}
    for job in seen.pending:
        found.setdefault(node_of(job), ([], []))[0].append(job)
    for run in seen.running:
        found.setdefault(node_of(run), ([], []))[1].append(run)
    return found


def _both(one: Dependency | None, other: Dependency, own: int) -> Dependency:
    """Those of two records of one array; no job waits for itself."""
    parents = dict(() if one is None else one.parents) | dict(other.parents)
    parents.pop(JobId(own), None)
    whole = other.whole and (one is None or one.whole)
    return Dependency(tuple(sorted(parents.items())), whole)


def _brought_up(before: GroupJob | None, shown: _Shown, predicted: RunTimes) -> GroupJob:
    """A job that Slurm shows. An estimate from before its start is kept while it runs."""
    job = before or GroupJob()
    waiting, running = shown
    started = [float(run.started_at) for run in running]
    job = replace(
        job,
        user=(waiting[0] if waiting else running[0]).user,
        phase=JobPhase.RUNNING if running else JobPhase.WAITING,
        never=any(one.reason == _NEVER for one in waiting),
        started_at=min(started) if started else None,
        ended_at=None,
    )
    if waiting:
        return _estimated(job, waiting[0], predicted)
    return job if before is not None else _by_limit(job, running[0].request.time_limit_s, 1)


def _estimated(job: GroupJob, record: PendingJob, predicted: RunTimes) -> GroupJob:
    """An array takes as many times as long as its throttle makes it."""
    array, known = record.array, predicted.get(record.job_id)
    waves = 1 if array is None or not array.throttle else ceil(array.tasks / array.throttle)
    job = _by_limit(job, record.request.time_limit_s, waves)
    if known is None:
        return job
    mean_s, high_s = known.mean_s * waves, known.high_s * waves
    return replace(job, run_s=mean_s, high_s=high_s, source="predicted")


def _by_limit(job: GroupJob, limit_s: float | None, waves: int) -> GroupJob:
    if limit_s is None or not isfinite(limit_s):
        return replace(job, run_s=None, high_s=None, most_s=None, source="unknown")
    most_s = limit_s * waves
    return replace(job, run_s=most_s, high_s=None, most_s=most_s, source="limit")


def _missed(job: GroupJob, now: float, *, is_hidden: bool) -> GroupJob:
    """A job that is neither pending nor running; one that completes has not ended yet."""
    if is_hidden or job.phase is JobPhase.ENDED:
        return job
    return replace(job, phase=JobPhase.ENDED, ended_at=now)


def _with_edges(job: GroupJob, shown: Dependency | None, found: Mapping[int, GroupJob]) -> GroupJob:
    """Its edges of old that were satisfied, and those that Slurm shows."""
    if job.phase is not JobPhase.WAITING:
        return job
    parents = {
        parent: kind
        for parent, kind in job.parents.items()
        if parent in found and _may_vanish(found[parent].phase, kind)
    }
    if shown is not None:
        parents |= {int(parent): kind for parent, kind in shown.parents}
    return replace(job, parents=parents, whole=job.whole and (shown is None or shown.whole))


def _may_vanish(parent: JobPhase, kind: str) -> bool:
    """Whether Slurm takes such an edge away by itself; of arrays, task by task."""
    by_task = kind == "aftercorr" and parent is JobPhase.RUNNING
    return by_task or is_satisfied(parent, kind)


def _kept(found: Mapping[int, GroupJob], now: float) -> GroupStore:
    """What there is room for, open groups first."""
    parts = [part for part in _parts(found) if len(part) > 1]
    parts = [p for p in parts if _ended_at(found[n] for n in p) > now - KEPT_S]
    parts.sort(key=lambda part: -_ended_at(found[n] for n in part))
    jobs: dict[int, GroupJob] = {}
    edges = 0
    for part in parts:
        edges += sum(len(found[node].parents) for node in part)
        if edges <= MOST_EDGES:
            jobs |= {node: found[node] for node in part}
    return GroupStore(jobs, now)


def _parts(jobs: Mapping[int, GroupJob]) -> list[list[int]]:
    return components({node: job.parents for node, job in jobs.items()})


def _ended_at(jobs: Iterable[GroupJob]) -> float:
    """When the last one ended; inf = it has not."""
    return max(float("inf") if job.ended_at is None else job.ended_at for job in jobs)


def forecasts(store: GroupStore, now: float) -> tuple[GroupForecast, ...]:
    """What to expect of every group, the least id first."""
    parts = _parts(store.jobs)
    return tuple(foresee({node: store.jobs[node] for node in part}, now) for part in parts)
