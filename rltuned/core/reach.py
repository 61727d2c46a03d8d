"""In which of its partitions a job could run at all, whatever is free or down now.

Slurm takes a job that names several partitions where one of them suits it. So a user may name one
in which the job can never run, and by that alone nothing may be gained.
"""

from functools import cached_property

from rltuned.core.capacity import Capacity
from rltuned.core.placement import width
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot


class Reach:
    """By time limits and hardware; jobs that share one Request object are looked at once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[tuple[int, tuple[str, ...]], tuple[str, ...]] = {}

    def of(self, job: PendingJob) -> tuple[str, ...]:
        """Those of a job's partitions; all, where it could run in none. In one of which Slurm shows
        nothing, it could.
        """
        names = job.partitions
        if len(names) == 1:
            return names
        key = id(job.request), names
        if key not in self._known:
            self._known[key] = tuple(n for n in names if self._could_run(job, n)) or names
        return self._known[key]

    def _could_run(self, job: PendingJob, name: str) -> bool:
        if name not in self._longest_s:
            return True
        longest_s = self._longest_s[name]
        if longest_s is not None and (job.request.time_limit_s or 0.0) > longest_s:
            return False
        capacity = self._capacity
        return width(job.request, capacity.members_of((name,)), capacity)[0] > 0

    @cached_property
    def _longest_s(self) -> dict[str, float | None]:
        return {p.name: p.max_time_s for p in self._snapshot.partitions}

    @cached_property
    def _capacity(self) -> Capacity:
        return Capacity.of(self._snapshot)
