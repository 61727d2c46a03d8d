"""What happened to jobs, fed to a memory of run times in the order of time."""

from collections.abc import Iterable
from itertools import groupby

from rltuned.core.asked import Job
from rltuned.core.memory import RunTimeMemory
from rltuned.domain.jobs import OF_A_RUN, EndedJob, RunningJob


def replay(memory: RunTimeMemory, ended: Iterable[EndedJob]) -> None:
    """Feed a memory with the past, as if it had been seen."""
    jobs = list(ended)
    feed(memory, jobs, [run_of(job) for job in jobs], jobs)


def run_of(job: EndedJob) -> RunningJob:
    """An ended job as it ran, on nodes that are not known."""
    same = {name: getattr(job, name) for name in OF_A_RUN}
    return RunningJob(**same, shares=(), submitted_at=job.submitted_at)


def feed(
    memory: RunTimeMemory,
    submitted: Iterable[Job],
    started: Iterable[RunningJob],
    ended: Iterable[EndedJob],
) -> None:
    """Feed a memory in the order of time: at one instant ends, then submissions, then starts. A run
    of less than a second is submitted and started before it ends all the same.
    """
    events = [(float(job.submitted_at or 0.0), 1, job) for job in submitted]
    events += [(float(job.started_at), 2, job) for job in started]
    events += [(_end_s(job), 0, job) for job in ended]
    events.sort(key=lambda event: (*event[:2], event[2].job_id))
    for what, batch in groupby(events, key=lambda event: event[1]):
        jobs = [job for _, _, job in batch]
        if what == 0:
            memory.end([job for job in jobs if isinstance(job, EndedJob)])
        elif what == 1:
            memory.submit(jobs)
        else:
            memory.start([job for job in jobs if isinstance(job, RunningJob)])


def _end_s(job: EndedJob) -> float:
    return float(job.ended_at) if job.ended_at > job.started_at else job.started_at + 0.5
