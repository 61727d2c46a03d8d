"""Which runs began and ended between two looks: the one place that follows runs of jobs.

A run is a job's number and its start; a task of an array is a job of its own. Slurm says when a run
began, so a lost cycle costs no start. Nobody says when it ended: that lies between two looks.
"""

from dataclasses import dataclass
from typing import Final

from rltuned.domain.jobs import RunningJob
from rltuned.domain.runs import JobRun, RunKey, RunNews
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime

APART_S: Final = 600.0
APART_SHARE: Final = 0.1
"""Looks further apart than both, the second of the time that the job ran, do not show its end."""
LIMBO_S: Final = 600.0
"""A job that is completing ends sooner; of one that is suspended longer the end is not known."""
_CLOCK_S: Final = 1.0
"""Slurm's times are whole seconds."""
_UNKNOWN: Final = JobId(0)


@dataclass(frozen=True, slots=True)
class _Gone:
    """A job that ran at one look and not at the next. Unix times of both looks."""

    job: RunningJob
    last: float
    missed: float

    @property
    def ended_at(self) -> UnixTime | None:
        """None = the looks lie too far apart, or the clock went back."""
        ran_s = self.last - self.job.started_at
        if not 0.0 <= self.missed - self.last <= max(APART_S, APART_SHARE * ran_s):
            return None
        at = min((self.last + self.missed) / 2, self.job.latest_end())
        return UnixTime(max(float(self.job.started_at), at))


class JobTracker:
    """Compares each look with the one before.

    One that is gone may be completing or suspended, or its row cannot be read: that is decided
    later. One that is pending again, or runs with another start, was requeued, by a user, a
    preemption or the failure of a node: its end is not known. Nor is that of a job that was
    suspended or unreadable meanwhile, or of a cluster that was not polled for long. Polls cannot
    tell a job that failed with its node from one that ended.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._cluster = ""
        self._running: dict[RunKey, RunningJob] = {}
        self._gone: dict[RunKey, _Gone] = {}
        self._interrupted: set[RunKey] = set()

    def look(self, seen: Snapshot) -> RunNews:
        """What has happened since the last look; nothing at the first one of a cluster."""
        last, self._at = self._at, float(seen.taken_at)
        if seen.cluster != self._cluster:
            last, self._cluster, self._running, self._gone = None, seen.cluster, {}, {}
        running = {(job.job_id, job.started_at): job for job in seen.running}
        before, self._running = self._running, running
        if last is None:
            return RunNews()
        started = tuple(
            JobRun(job)
            for key, job in running.items()
            # one that was suspended and runs on has started long ago
            if key not in before and key not in self._gone and job.started_at >= last - _CLOCK_S
        )
        missing = before.keys() - running.keys()
        self._gone |= {key: _Gone(before[key], last, self._at) for key in missing}
        over = self._settle(seen) if self._gone else []
        undecided = (one for one in self._gone.values() if not self._is_late(one))
        return RunNews(started, tuple(over), tuple(one.job for one in undecided))

    def _is_late(self, gone: _Gone) -> bool:
        return (self._at or 0.0) - gone.missed > LIMBO_S

    def _settle(self, seen: Snapshot) -> list[JobRun]:
        """Decide what became of those that are gone, where it shows by now; the first end first."""
        hidden = seen.hidden_ids()
        elsewhere, is_anyone_hidden = hidden | set(seen.lingering), _UNKNOWN in hidden
        again = {job.job_id for job in seen.pending} | {job.job_id for job in seen.running}
        over: list[JobRun] = []
        for key, gone in list(self._gone.items()):
            is_late = self._is_late(gone)
            if key in self._running:
                self._interrupted.add(key)
            elif key[0] in again:
                over.append(JobRun(gone.job))
            elif key[0] in elsewhere:
                self._interrupted |= {key} if is_late else set()
                continue
            elif is_anyone_hidden and not is_late:
                continue
            else:
                is_known = not is_anyone_hidden and key not in self._interrupted
                over.append(JobRun(gone.job, gone.ended_at if is_known else None))
            del self._gone[key]
        self._interrupted &= self._running.keys() | self._gone.keys()
        return sorted(over, key=lambda run: (run.ended_at or 0.0, run.job.job_id))
