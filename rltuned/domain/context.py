"""What rltuned adds to what Slurm says: marks of its jobs, the rest beside them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Final, NamedTuple

from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.units import JobId, JobKey

_whole: Final = attrgetter(*(one.name for one in fields(PendingJob)))


@dataclass(frozen=True, slots=True)
class Remembered:
    """What is remembered of jobs, by id and submit time: Slurm hands out ids again.

    Attributes:
        recent_writes: how often rltuned wrote to it within the last hour.
        shared: OverSubscribe before rltuned, and what it wrote.
        earlier: the jobs as the look before showed them.
        at: when the next look is made, Unix seconds.
    """

    owned: Mapping[JobKey, Ownership] = field(default_factory=dict)
    recent_writes: Mapping[JobKey, int] = field(default_factory=dict)
    shared: Mapping[JobKey, tuple[str, str]] = field(default_factory=dict)
    earlier: Mapping[JobKey, PendingJob] = field(default_factory=dict)
    at: float = 0.0

    def mark(self, job: PendingJob) -> PendingJob:
        """A job with its marks; one that bears them already is not copied."""
        key = job.key
        owned, writes = self.owned.get(key), self.recent_writes.get(key, 0)
        before, ours = self.shared.get(key, ("", ""))
        before = before if job.oversubscribe == ours else ""
        changed_at, was = job.changed_at, self.earlier.get(key)
        if was is not None and was is not job:
            changed_at = was.changed_at if was.asks == job.asks else self.at
        marks = job.owned, job.recent_writes, job.shared_from, job.changed_at
        if marks == (owned, writes, before, changed_at):
            return job
        # half of the time of `replace`, of which ten thousand would cost most of the join
        made = PendingJob(*_whole(job))
        made.owned, made.recent_writes = owned, writes
        made.shared_from, made.changed_at = before, changed_at
        return made


NOTHING: Final = Remembered()
RememberedBy = Callable[[str, float], Remembered]
"""Of a cluster's jobs, which were read at a Unix time."""


def nothing(_cluster: str, _now: float) -> Remembered:
    """Nothing is remembered."""
    return NOTHING


class RunTime(NamedTuple):
    """A prediction of one job's run time, in seconds, within its limit. plan_s: what the rule
    `delay` goes by. Quantiles of 10, 50, 90%. ends: ended jobs of its user; 0 = a stranger.
    """

    plan_s: float
    mean_s: float
    low_s: float
    median_s: float
    high_s: float
    ends: int


RunTimes = Mapping[JobId, RunTime]


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of a snapshot's jobs and partitions besides what Slurm says.

    Attributes:
        demoted: partitions whose circuit breaker is open, from rltuned's journal, sorted.
        neutral: the delay that a job without a number of rltuned stands for, from its journal; None
            = none has been found yet.
        run_times: what is predicted of pending jobs, in seconds; a job that is not in it has no
            prediction.
        limit_use: what jobs here use of their time limits, 0 to 1, by GPU time: what is expected of
            a job without a prediction. None = none of the site's own has ended yet.
    """

    demoted: tuple[str, ...] = ()
    neutral: NeutralDelay | None = None
    run_times: RunTimes = field(default_factory=dict)
    limit_use: float | None = None


NO_CONTEXT: Final = Context()
