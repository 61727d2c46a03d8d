"""Jobs as a scheduler may know them. No type here can hold a true run time."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from rltuned.domain.cluster import Resources
from rltuned.domain.kinds import NO_KINDS, Kinds
from rltuned.domain.priority import HIGHEST_BASIC
from rltuned.domain.units import GpuType, JobId, JobKey, NodeName, UnixTime

# Jobs that wait for each other: what Slurm says of one job, and what is kept of a whole group.


AFTER_START: Final = frozenset({"after"})
"""Kinds of edges that hold no longer once the parent has started."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """Which jobs one job waits for. parents: ids with the kind of the edge in Slurm's word
    (`afterok`). whole: the edges say all of it, each must hold, and on success.
    """

    parents: tuple[tuple[JobId, str], ...] = ()
    whole: bool = True


class JobPhase(StrEnum):
    """How far a job of a group has come."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    """Slurm shows it no more, whether it ran or was cancelled."""


@dataclass(frozen=True, slots=True)
class GroupJob:
    """A job or a whole array in a group; None = not known, or not yet.

    parents: the kind of the edge by the parent's id, satisfied edges too. run_s: expected, by
    `source`. high_s: the predictor's 90% quantile. most_s: by its limit. never: Slurm says that its
    dependency can never be satisfied. started_at, ended_at: Unix times of the first start seen, and
    of the first look without it.
    """

    parents: Mapping[int, str] = field(default_factory=dict)
    whole: bool = True
    user: str = ""
    phase: JobPhase = JobPhase.WAITING
    run_s: float | None = None
    high_s: float | None = None
    most_s: float | None = None
    source: Literal["predicted", "limit", "unknown"] = "unknown"
    never: bool = False
    started_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class GroupStore:
    """All groups of a cluster. jobs: by id, or the array's."""

    jobs: Mapping[int, GroupJob] = field(default_factory=dict)
    seen_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """What one job (one task of an array) asks for, over all its nodes.

    time_limit_s: inf = UNLIMITED, None = unknown. gpu_types: empty = any. nodes: None = the fewest
    that fit. outside: what this model lacks (licences, constraints, shards, two GPU types at once
    ...), in Slurm's words; such a job is ranked but never placed. nodes_most: of a range, with
    `total` for the fewest and `expected` for the middle; None = no range.
    """

    total: Resources
    time_limit_s: float | None = None
    gpu_types: tuple[GpuType, ...] = ()
    nodes: int | None = None
    exclusive: bool = False
    outside: tuple[str, ...] = ()
    nodes_most: int | None = None
    expected: Resources | None = None

    def __post_init__(self) -> None:
        if self.nodes is not None and self.nodes < 1:
            raise ValueError(f"a job needs at least one node: {self}")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise ValueError(f"a time limit must be positive: {self}")

    @property
    def size(self) -> Resources:
        """What it is expected to take, over all its nodes: of a node range, of its middle."""
        return self.total if self.expected is None else self.expected


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """The array of a record: pending tasks, `%` throttle; listed: the tasks as "0-3,8"."""

    array_job_id: JobId
    tasks: int
    throttle: int | None = None
    listed: str = ""


DRIFT_SHARE: Final = 0.01
"""How far a number may be from the priority that a job had at first and still count as that one."""


@dataclass(slots=True, unsafe_hash=True)
class Ownership:
    """What rltuned did to a job, from its own journal; nobody changes one, as of PendingJob. nice:
    the user's, before `Priority=` destroyed it. original: before the first write. earlier: values
    written or replaced before; backfill can put one back. rest: `PendingJob.rest` at the first
    write of a priority. None = not known. written_at: the last write, Unix seconds; 0 = not known.
    """

    field: str
    value: int
    nice: int | None = None
    original: int | None = None
    earlier: tuple[int, ...] = ()
    rest: int | None = None
    written_at: float = 0.0

    def explains(self, actual: int) -> bool:
        """Whether the value in force is rltuned's, or one that backfill put back.

        Backfill writes back the copy it made when its pass began. That may be a number which
        multifactor found a little after rltuned had looked, so a priority near the original counts.
        Anything else was set by another user, and is left alone.
        """
        if actual == self.value or actual in self.earlier:
            return True
        if self.field != "priority" or self.original is None:
            return False
        if self.rest is None and actual > HIGHEST_BASIC:
            return False  # priority/basic gives no such number
        return abs(actual - self.original) <= DRIFT_SHARE * self.original


@dataclass(slots=True, unsafe_hash=True)
class PendingJob:
    """One pending record of Slurm's queue. Nobody changes one: `replace` makes another. It is not
    frozen, as a look makes ten thousand of them, and each would take three times as long.

    Attributes:
        address: how scontrol names this record and nothing else (`12`, `12_[0-3,8]`).
        partitions: in the order given; more than one is a multi-partition job.
        priority: the value in force; 0 = held.
        site_factor: None = not known (sprio shows only jobs under multifactor).
        base: the sum of all other factors, less the nice; None = not known.
        rest: what neither age nor fair share moves of its priority under multifactor: all other
            factors, less the nice; None = not known, as of a job whose priority is fixed.
        fair: points that its fair share adds, by sprio or, where its priority is fixed, by sshare;
            None = not known.
        accrue_at: Unix time from which multifactor counts its age; None = as eligible_at. It is
            later than that under limits such as MaxJobsAccruePU.
        reason: Slurm's own token for why it waits (`Resources`, `JobHeldUser`, `Dependency` ...).
        held_by: "user" or "admin" for a held job, empty otherwise.
        het_job_id: id of the heterogeneous job's leader; None for an ordinary job.
        fixed: its priority was set directly (`scontrol update Priority=`, by rltuned or by another
            user), so multifactor does not rule it; False where that is not known.
        live: multifactor is seen to rule it, or will when it is no longer held; False where it does
            not, or that is not known.
        uneven: its partitions give it different priorities, or that is not known; one number
            for all would move it among them. Then `priority` is the highest of them.
        sticky: a priority once raised may stay (PriorityFlags=INCR_ONLY), so that a write could not
            be taken back.
        shared_from: OverSubscribe before rltuned wrote what is in force; empty = it wrote none, or
            another user has changed it since.
        owned: set when rltuned's journal says that it wrote to this job.
        changed_at: when what it asks for last changed, as far as looks show; 0 = it never did.
        recent_writes: how often it did so within the last hour, from the same journal.
        deadline_at: when Slurm removes it if it cannot end by then; None = never.
        kinds: what jobs like it share.
        unreadable: what of it could not be read; such a job is left alone. Empty = nothing.
    """

    job_id: JobId
    address: str
    submitted_at: UnixTime
    request: Request
    priority: int
    partitions: tuple[str, ...]
    eligible_at: UnixTime | None = None
    user: str = ""
    account: str = ""
    qos: str = ""
    nice: int = 0
    site_factor: int | None = None
    base: int | None = None
    rest: int | None = None
    fair: float | None = None
    accrue_at: UnixTime | None = None
    reason: str = ""
    held_by: str = ""
    reservation: str = ""
    dependency: str = ""
    array: ArrayInfo | None = None
    het_job_id: JobId | None = None
    cron: bool = False
    required_nodes: tuple[NodeName, ...] = ()
    excluded_nodes: tuple[NodeName, ...] = ()
    oversubscribe: str = ""
    shared_from: str = ""
    fixed: bool = False
    live: bool = False
    uneven: bool = False
    sticky: bool = False
    owned: Ownership | None = None
    changed_at: float = 0.0
    recent_writes: int = 0
    deadline_at: UnixTime | None = None
    kinds: Kinds = NO_KINDS
    unreadable: str = ""

    def __post_init__(self) -> None:
        if self.priority < 0:
            raise ValueError(f"job {self.job_id}: negative priority {self.priority}")
        if not self.partitions:
            raise ValueError(f"job {self.job_id}: no partition")

    @property
    def key(self) -> JobKey:
        return self.job_id, self.submitted_at

    @property
    def unit(self) -> JobKey:
        """What counts once: the array with its submit time, or the job itself."""
        return self.job_id if self.array is None else self.array.array_job_id, self.submitted_at

    @property
    def asks(self) -> tuple[object, ...]:
        """What its user may change while it waits, and what follows from it must follow."""
        return (
            self.request, self.partitions, self.user, self.account, self.qos, self.kinds,
            self.deadline_at,
        )  # fmt: skip

    @property
    def ages_since(self) -> float:
        """Unix time from which its age counts."""
        return self.waits_since if self.accrue_at is None else self.accrue_at

    @property
    def waits_since(self) -> UnixTime:
        """When its waiting began: when it could first run, if Slurm says so, else at submission."""
        return max(self.submitted_at, self.eligible_at or self.submitted_at)

    def waited_s(self, now: float) -> float:
        """Seconds that it has waited at a Unix time; 0 before it can first run."""
        return max(0.0, now - self.waits_since)

    @property
    def is_held(self) -> bool:
        """Whether a user holds it, or Slurm keeps it at 0 for another reason."""
        return self.priority == 0 or bool(self.held_by)

    @property
    def is_dependent(self) -> bool:
        return bool(self.dependency) or self.reason == "Dependency"

    @property
    def in_force(self) -> int | None:
        """What stands in the field that rltuned owns, an attribute of that name; None = it owns
        none, or Slurm does not show it.
        """
        return None if self.owned is None else getattr(self, self.owned.field)

    @property
    def taken_over(self) -> bool:
        """Whether another user has set, since rltuned wrote, the field that rltuned wrote to."""
        owned, actual = self.owned, self.in_force
        return owned is not None and actual is not None and not owned.explains(actual)

    @property
    def lost_nice(self) -> int:
        """The nice that rltuned's `Priority=` took from it and that can be restored alone; 0 =
        none.

        It can where the number is gone but the journal still owns the job: a user holds it, or has
        held and freed it. One whose nice is not the 0 that rltuned left has a new one.
        """
        if self.owned is None or self.owned.field != "priority" or self.nice != 0:
            return 0
        # priority/basic takes a nice off the number at once, which would free a held job
        is_bare = self.live and (bool(self.held_by) or self.taken_over)
        return (self.owned.nice or 0) if is_bare else 0

    @property
    def natural_priority(self) -> int | None:
        """Priority without a site factor of rltuned; None when Slurm does not show it."""
        if self.owned is not None and self.owned.field == "priority":
            return None
        return self.priority - (self.site_factor or 0)


@dataclass(frozen=True, slots=True)
class Share:
    """What one job takes, or would take, on one node."""

    node: NodeName
    taken: Resources
    gpu_type: GpuType | None = None


@dataclass(slots=True, unsafe_hash=True)
class RunningJob:
    """One running record, which nobody changes, as of PendingJob; its end is known as start plus
    limit at best. array_job_id: None for an ordinary job. array_task: None = not known.
    """

    job_id: JobId
    started_at: UnixTime
    request: Request
    shares: tuple[Share, ...]
    partition: str = ""
    user: str = ""
    account: str = ""
    submitted_at: UnixTime | None = None
    array_job_id: JobId | None = None
    array_task: int | None = None
    eligible_at: UnixTime | None = None
    qos: str = ""
    kinds: Kinds = NO_KINDS

    @property
    def address(self) -> str:
        known = self.array_job_id is not None and self.array_task is not None
        return f"{self.array_job_id}_{self.array_task}" if known else str(self.job_id)

    @property
    def unit(self) -> JobKey:
        """As PendingJob.unit."""
        number = self.job_id if self.array_job_id is None else self.array_job_id
        return number, self.started_at if self.submitted_at is None else self.submitted_at

    @property
    def waits_since(self) -> UnixTime | None:
        """When its waiting had begun, as PendingJob.waits_since; None = not known."""
        if self.submitted_at is None:
            return None
        return max(self.submitted_at, self.eligible_at or self.submitted_at)

    def latest_end(self) -> float:
        """Unix time at which the limit ends the job; inf when it has none or it is unknown."""
        limit_s = self.request.time_limit_s
        return float("inf") if limit_s is None else self.started_at + limit_s


FED_LIMIT: Final = 4_000
"""Characters of one line on scontrol's standard input, which it reads in pieces of 4096 bytes."""
ARGUMENT_LIMIT: Final = 120_000
"""Characters of one line sent as scontrol's arguments; Linux takes 131,072 bytes in each. Tried
with 69,000: Slurm updates exactly the tasks of a list, and splits no record."""
_ADDRESS: Final = re.compile(r"[1-9][0-9]{0,9}(?:\+[0-9]{1,6}|_[0-9]{1,10}|_\[[0-9,:-]+\])?")
_NUMBER: Final = re.compile(r"[0-9]+")
_DIGITS: Final = 7
"""Of a task number that is not known; MaxArraySize is at most 4,000,001."""
_VALUE: Final = 64
"""Characters of a line besides the address, at most; lists of nodes are checked when sent."""


def is_address(text: str) -> bool:
    """Whether this is how scontrol names one record: `12`, `12+1`, `12_3`, `12_[0-3,8]`."""
    return _ADDRESS.fullmatch(text) is not None


def is_sayable(job: PendingJob) -> bool:
    """Whether a write can be taken back: the longest list that an array's record can come to need
    counts, with every third task away.
    """
    return is_address(job.address) and _longest(job) + _VALUE <= ARGUMENT_LIMIT


def _longest(job: PendingJob) -> int:
    if job.array is None or job.array.tasks == 1:
        return len(job.address)
    digits = max((len(n) for n in _NUMBER.findall(job.array.listed)), default=_DIGITS)
    listed = (2 * job.array.tasks + 2) // 3 * (digits + 1)
    return max(len(job.address), len(f"{job.array.array_job_id}_[]") + listed)


# Runs of jobs: what is known of one, and what has happened since the last look.


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
