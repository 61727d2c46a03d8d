"""What happened to jobs, fed to a memory of run times in the order of time."""

from collections.abc import Iterable
from itertools import groupby

from rltuned.core.asked import Job
from rltuned.core.memory import RunTimeMemory
from rltuned.domain.jobs import RunningJob
from rltuned.domain.runs import JobRun


def replay(memory: RunTimeMemory, ended: Iterable[JobRun]) -> None:
    """Feed a memory with the past, as if it had been seen."""
    runs = list(ended)
    jobs = [run.job for run in runs]
    feed(memory, jobs, jobs, runs)


def feed(
    memory: RunTimeMemory,
    submitted: Iterable[Job],
    started: Iterable[RunningJob],
    ended: Iterable[JobRun],
) -> None:
    """Feed a memory in the order of time: at one instant ends, then submissions, then starts. A run
    of less than a second is submitted and started before it ends all the same.
    """
    events: list[tuple[float, int, int, Job | JobRun]] = [
        (float(job.submitted_at or 0.0), 1, job.job_id, job) for job in submitted
    ]
    events += [(float(job.started_at), 2, job.job_id, job) for job in started]
    events += [(_end_s(run), 0, run.job.job_id, run) for run in ended]
    events.sort(key=lambda event: event[:3])
    for what, batch in groupby(events, key=lambda event: event[1]):
        some = [one for *_, one in batch]
        if what == 0:
            memory.end([run for run in some if isinstance(run, JobRun)])
        elif what == 1:
            memory.submit([job for job in some if not isinstance(job, JobRun)])
        else:
            memory.start([job for job in some if isinstance(job, RunningJob)])


def _end_s(run: JobRun) -> float:
    began, end_s = float(run.job.started_at), float(run.ended_at or 0.0)
    return end_s if end_s > began else began + 0.5
