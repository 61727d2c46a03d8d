"""Runs of jobs: what is known of one, and what has happened since the last look."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rltuned.domain.jobs import RunningJob
from rltuned.domain.units import JobId, UnixTime

SHORTEST_S: Final = 10.0
"""Of bounded slowdown: shorter jobs count as this long (docs/interfaces.md)."""

RunKey = tuple[JobId, UnixTime]
"""A run: a job's number and its start, since a job that is requeued runs again."""


class Side(StrEnum):
    """Whether a job became eligible while its delay was on. The value is the metric label."""

    ON = "on"
    OFF = "off"
    """rltuned may order it, but did not: in an off block, or at a stage that writes nothing."""
    OTHER = "other"
    """Not for rltuned to order, or not known."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job. job: what it was while it ran, with its times and sizes. ended_at: None =
    it runs, or its end is not known. suspended_s: within the run.
    """

    job: RunningJob
    ended_at: UnixTime | None = None
    suspended_s: float = 0.0
    side: Side = Side.OTHER

    def __post_init__(self) -> None:
        if self.run_s < 0:
            raise ValueError(f"job {self.job.job_id}: its times are out of order")

    @property
    def key(self) -> RunKey:
        return self.job.job_id, self.job.started_at

    @property
    def run_s(self) -> float:
        """How long it ran; nan = its end is not known."""
        if self.ended_at is None:
            return math.nan
        return self.ended_at - self.job.started_at - self.suspended_s

    @property
    def wait_s(self) -> float | None:
        """From when it was eligible to its start; None = Slurm does not say."""
        since = self.job.waits_since
        return None if since is None else max(0.0, self.job.started_at - since)

    @property
    def slowdown(self) -> float | None:
        """Bounded slowdown; None = its wait or its end is not known."""
        if self.wait_s is None or self.ended_at is None:
            return None
        return bounded_slowdown(self.wait_s, self.run_s)


def bounded_slowdown(wait_s: float, length_s: float) -> float:
    """Of a job that waited and ran for so many seconds."""
    return max(1.0, (wait_s + length_s) / max(length_s, SHORTEST_S))


@dataclass(frozen=True, slots=True)
class RunNews:
    """What has happened to runs since the last look. over: they run no more; one without an end was
    requeued, or its end is not known. undecided: they do not run, and may run on.
    """

    started: tuple[JobRun, ...] = ()
    over: tuple[JobRun, ...] = ()
    undecided: tuple[RunningJob, ...] = ()

    def __add__(self, later: "RunNews") -> "RunNews":
        """As if there had been no look in between: without runs that began and ended there."""
        over, began = ({run.key for run in some} for some in (later.over, self.started))
        started = (run for run in self.started if run.key not in over)
        ended = (run for run in later.over if run.key not in began)
        return RunNews((*started, *later.started), (*self.over, *ended), later.undecided)

    @property
    def ended(self) -> tuple[JobRun, ...]:
        return tuple(run for run in self.over if run.ended_at is not None)
