"""The cluster at one instant, as a scheduler may know it."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Final, Literal, NamedTuple

from rltuned.domain.cluster import Node, Partition, Reservation
from rltuned.domain.jobs import (
    JobRun,
    Ownership,
    PendingJob,
    RunKey,
    RunNews,
    RunningJob,
)
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.units import JobId, JobKey, UnixTime

# What rltuned adds to what Slurm says: marks of its jobs, the rest beside them.


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
SNAPSHOT_VERSION = 1
UNREADABLE_KINDS: Final = ("job", "node", "partition", "reservation")
_NO_JOB = JobId(0)


@dataclass(frozen=True, slots=True, order=True)
class Unreadable:
    """What cannot be read. name: "" = unknown. job_id: 0 = of no job, or not known."""

    kind: Literal["job", "node", "partition", "reservation"]
    name: str
    why: str
    job_id: JobId = _NO_JOB


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What Slurm says. What is Remembered of its pending jobs is joined to them; what else rltuned
    adds is in Context.

    The constructor puts every part into one canonical order (jobs by submit time and id, the rest
    by name), so that the order in which Slurm lists them can change no decision.

    Attributes:
        taken_at: the "now" of every computation on this snapshot.
        others: how many records there are in other states (completing, suspended ...).
        lingering: ids of those, and of their arrays, sorted.
        preemption: whether Slurm may preempt jobs; None = not known.
        priorities: how slurmctld turns waiting into priority.
        reservations: those to come and those in force, by name.
        unreadable: what could not be read, sorted. A pending job whose id, submit time and
            priority could be read is in `pending` all the same.
    """

    taken_at: UnixTime
    cluster: str
    pending: tuple[PendingJob, ...]
    running: tuple[RunningJob, ...]
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...] = ()
    others: int = 0
    preemption: bool | None = None
    lingering: tuple[JobId, ...] = ()
    priorities: PrioritySystem = field(default_factory=PrioritySystem)
    unreadable: tuple[Unreadable, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    version: int = SNAPSHOT_VERSION

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "pending", tuple(sorted(self.pending, key=attrgetter("submitted_at", "job_id"))))
        put(self, "running", tuple(sorted(self.running, key=attrgetter("job_id"))))
        put(self, "nodes", tuple(sorted(self.nodes, key=attrgetter("name"))))
        put(self, "partitions", tuple(sorted(self.partitions, key=attrgetter("name"))))
        put(self, "reservations", tuple(sorted(self.reservations, key=attrgetter("name"))))
        put(self, "unreadable", tuple(sorted(self.unreadable)))
        if self.version != SNAPSHOT_VERSION:
            raise ValueError(
                f"snapshot version {self.version}, this release reads {SNAPSHOT_VERSION}"
            )
        _refuse_twice("pending job", [j.job_id for j in self.pending])
        _refuse_twice("running job", [j.job_id for j in self.running])
        _refuse_twice("node", [n.name for n in self.nodes])

    def room_in_arrays(self) -> dict[JobId, int]:
        """How many more tasks of each throttled array may start."""
        most = {a.array_job_id: a.throttle for j in self.pending if (a := j.array) and a.throttle}
        runs = Counter(j.array_job_id for j in self.running if j.array_job_id in most)
        return {one: max(0, count - runs[one]) for one, count in most.items()}

    def full_arrays(self) -> frozenset[JobId]:
        """Arrays of which as many tasks run as they allow: no order starts another one."""
        return frozenset(one for one, room in self.room_in_arrays().items() if room == 0)

    def known_ids(self) -> frozenset[JobId]:
        """Ids of every job that Slurm shows in whatever state, and of the arrays they belong to."""
        arrays = {j.array.array_job_id for j in self.pending if j.array is not None}
        parents = {j.array_job_id for j in self.running if j.array_job_id is not None}
        pending = {j.job_id for j in self.pending}
        running = {j.job_id for j in self.running}
        hidden = {u.job_id for u in self.unreadable if u.job_id}
        return frozenset(pending | running | arrays | parents | hidden | set(self.lingering))

    def hidden_ids(self) -> frozenset[JobId]:
        """Ids of jobs whose rows cannot be read; 0 is among them when a row hides its id."""
        ids = {u.job_id for u in self.unreadable if u.kind == "job"}
        return frozenset(ids - {j.job_id for j in self.pending} - {j.job_id for j in self.running})

    def hidden(self, job_id: JobId) -> str:
        """Why a job that is not in `pending` may be pending all the same; empty = it is not."""
        for row in self.unreadable:
            if row.kind == "job" and row.job_id in {job_id, _NO_JOB}:
                if not row.name:
                    return row.why
                return f"the row of {row.name!r} in squeue cannot be read: {row.why}"
        return ""

    def left_out(self, keys: Collection[JobKey]) -> set[JobKey]:
        """Those of these jobs of which it is known that they are not pending any more."""
        shown = {job.key for job in self.pending}
        return {key for key in keys if key not in shown and not self.hidden(key[0])}

    def marked(self, remembered: Remembered) -> "Snapshot":
        """The same with what is remembered of its jobs, which is joined to them here alone."""
        return replace(self, pending=tuple(map(remembered.mark, self.pending)))


def _refuse_twice(what: str, names: Sequence[int | str]) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name} appears twice in one snapshot")
        seen.add(name)


# Which runs began and ended between two looks: the one place that follows runs of jobs.
#
# A run is a job's number and its start; a task of an array is a job of its own. Slurm says when a
# run began, so a lost cycle costs no start. Nobody says when it ended: that lies between two looks.


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
