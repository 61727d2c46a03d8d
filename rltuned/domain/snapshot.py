"""The cluster at one instant, as a scheduler may know it."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Final, Literal, NamedTuple

from rltuned.domain.cluster import Node, Partition
from rltuned.domain.jobs import PendingJob, Remembered, RunningJob
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.units import JobId, JobKey, UnixTime


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


SNAPSHOT_VERSION = 1
UNREADABLE_KINDS: Final = ("job", "node", "partition")
_NO_JOB = JobId(0)


@dataclass(frozen=True, slots=True, order=True)
class Unreadable:
    """A job, node or partition that cannot be read. name: "" = unknown. job_id: 0 = none."""

    kind: Literal["job", "node", "partition"]
    name: str
    why: str
    job_id: JobId = _NO_JOB


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything one decision may see.

    The constructor puts every part into one canonical order (jobs by submit time and id, the rest
    by name), so that the order in which Slurm lists them can change no decision.

    Attributes:
        taken_at: the "now" of every computation on this snapshot.
        others: how many records there are in other states (completing, suspended ...).
        lingering: ids of those, and of their arrays, sorted.
        preemption: whether Slurm may preempt jobs; None = not known.
        demoted: partitions whose circuit breaker is open, from rltuned's journal, sorted.
        priorities: how slurmctld turns waiting into priority.
        neutral: the delay that a job without a number of rltuned stands for, from its journal; None
            = none has been found yet.
        run_times: what is predicted of pending jobs, by job id, sorted; a job that is not in it has
            no prediction.
        limit_use: what jobs here use of their time limits, by GPU time: what is expected of a job
            without a prediction. None = none of the site's own has ended yet.
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
    demoted: tuple[str, ...] = ()
    lingering: tuple[JobId, ...] = ()
    priorities: PrioritySystem = field(default_factory=PrioritySystem)
    neutral: NeutralDelay | None = None
    unreadable: tuple[Unreadable, ...] = ()
    run_times: tuple[tuple[JobId, RunTime], ...] = ()
    limit_use: float | None = None
    version: int = SNAPSHOT_VERSION

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "pending", tuple(sorted(self.pending, key=attrgetter("submitted_at", "job_id"))))
        put(self, "running", tuple(sorted(self.running, key=attrgetter("job_id"))))
        put(self, "nodes", tuple(sorted(self.nodes, key=attrgetter("name"))))
        put(self, "partitions", tuple(sorted(self.partitions, key=attrgetter("name"))))
        put(self, "unreadable", tuple(sorted(self.unreadable)))
        put(self, "run_times", tuple(sorted(self.run_times, key=itemgetter(0))))
        if self.version != SNAPSHOT_VERSION:
            raise ValueError(
                f"snapshot version {self.version}, this release reads {SNAPSHOT_VERSION}"
            )
        _refuse_twice("pending job", [j.job_id for j in self.pending])
        _refuse_twice("running job", [j.job_id for j in self.running])
        _refuse_twice("node", [n.name for n in self.nodes])

    def run_time_of(self, job_id: JobId) -> RunTime | None:
        return dict(self.run_times).get(job_id)

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
                return f"the row of {row.name!r} in squeue cannot be read: {row.why}"
        return ""

    def left_out(self, keys: Collection[JobKey]) -> set[JobKey]:
        """Those of these jobs of which it is known that they are not pending any more."""
        shown = {job.key for job in self.pending}
        return {key for key in keys if key not in shown and not self.hidden(key[0])}

    def marked(
        self,
        says: Remembered,
        demoted: Collection[str] = (),
        neutral: NeutralDelay | None = None,
    ) -> "Snapshot":
        """The snapshot with what the journal says; a job that bears it already is not copied."""

        def marked(job: PendingJob) -> PendingJob:
            key = job.key
            owned, writes = says.owned.get(key), says.recent_writes.get(key, 0)
            before, ours = says.shared.get(key, ("", ""))
            before = before if job.oversubscribe == ours else ""
            if job.node_range is not None:
                submitted, written = says.narrowed.get(key, ("", ""))
                widened = replace(job.node_range, submitted=submitted, written=written)
                job = replace(job, node_range=widened)
            if (job.owned, job.recent_writes, job.shared_from) == (owned, writes, before):
                return job
            return replace(job, owned=owned, recent_writes=writes, shared_from=before)

        pending = tuple(map(marked, self.pending))
        return replace(self, pending=pending, demoted=tuple(sorted(demoted)), neutral=neutral)


def _refuse_twice(what: str, names: Sequence[int | str]) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name} appears twice in one snapshot")
        seen.add(name)
