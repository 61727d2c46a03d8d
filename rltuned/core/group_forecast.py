"""What to expect of one group: its order, its critical path, when it ends. Pure.

The end is that of a group whose jobs never wait for anything but each other: no one knows how long
the queue will hold them. docs/groups.md says so too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

from rltuned.core.dag import children, levels, topological
from rltuned.domain.groups import AFTER_START, GroupJob, JobPhase

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
