"""A plan, what came of it, and the ports: the world, and the clock. (Policy is in core/decide.)"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import PriorityKind
from rltuned.domain.snapshot import RememberedBy, Snapshot, nothing
from rltuned.domain.units import JobId, JobKey, UnixTime

# What rltuned writes to pending jobs: one table, read by all that writes, keeps and undoes it.
#
# A row says how a value is named, read, bounded, written and undone. The two rows of `release` are
# what undoes `priority`: they are written, but never owned. A row that is added is written, kept,
# handed over, shown and restored. What decides to write it is in core, and so is the mark of a word
# by which `undo_plan` knows it; an older state folder takes a new name with a step of its schema.


MAX_PRIORITY = 4_294_967_293
"""Largest value `scontrol update Priority=` takes (higher ones are refused by the client)."""
MAX_SITE_FACTOR = 2_147_483_645
"""Largest |SiteFactor| that scontrol takes; the same of Nice."""

Value = int | str


@dataclass(frozen=True, slots=True)
class Target:
    """The record an action is meant for. Submit time is part of it: Slurm re-uses job ids."""

    job_id: JobId
    submitted_at: UnixTime
    address: str

    @property
    def key(self) -> JobKey:
        return self.job_id, self.submitted_at


def target_of(job: PendingJob) -> Target:
    """The address of a job's record."""
    return Target(job.job_id, job.submitted_at, job.address)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Field:
    """A row of the table; each is itself alone.

    Attributes:
        name: in the journal and its documents.
        action: in the documents of plans.
        argument: of `scontrol update`; empty = `scontrol release`.
        label: for people.
        room: the numbers that Slurm takes.
        pattern: the words that it takes instead; its groups least and most are two numbers.
        of: the value that Slurm shows of a job; None = it shows none.
        carried: the same where rltuned may have left it and the job is not known to the journal.
        before: of a field of words, what a marked job had before rltuned; empty = it wrote none, or
            another user has changed it since.
        undo: see `back`.
        under: the only priority system that shows and counts it; None = all do.
        kind: the name in metrics, if not `name`.
        keys: what the document of an action has of it.
        done: what a restore says of it, beside the values or in place of them.
    """

    name: str
    action: str
    argument: str
    label: str
    of: Callable[[PendingJob], Value | None]
    room: range = range(0)
    pattern: re.Pattern[str] | None = None
    carried: Callable[[PendingJob], Value | None] = lambda _: None
    before: Callable[[PendingJob], str] = lambda _: ""
    undo: "Callable[[Field, PendingJob, Any], Action | None]" = lambda field, job, original: (
        None if field.of(job) is None else field.to(job, original)
    )
    under: PriorityKind | None = None
    kind: str = ""
    keys: tuple[str, ...] = ("old", "new")
    done: str = "{label} {old} -> {new}"

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.kind or self.name)

    def __repr__(self) -> str:
        return self.name

    @property
    def words(self) -> bool:
        """Whether its values are words."""
        return self.pattern is not None

    @property
    def orders(self) -> bool:
        """Whether it is a number that rltuned owns, by which it orders jobs."""
        return not self.words and not self.releases

    @property
    def releases(self) -> bool:
        """Whether it undoes a priority."""
        return self.kind == "release"

    def takes(self, value: Value | None) -> bool:
        """Whether Slurm takes it."""
        if self.pattern is None:
            return value in self.room
        found = self.pattern.fullmatch(value) if isinstance(value, str) else None
        if found is None or not found.groupdict():
            return found is not None
        return int(found["least"]) <= int(found["most"])

    def says(self, value: Value | None) -> str:
        """It and a value of it, for people."""
        return f"{self.label}={value}" if self.words else f"{self.label} {value}"

    def to(self, job: PendingJob, new: Any, **more: int | None) -> "Action":
        """What writes a value to a job."""
        return Action(self, target_of(job), self.of(job), new, **more)

    def back(self, job: PendingJob, original: Any) -> "Action | None":
        """What gives a marked job the value of before; None = not while it stands as it does."""
        return self.undo(self, job, original)


@dataclass(frozen=True, slots=True)
class Action:
    """One write to one job: `old` is Slurm's value before it.

    nice: of a priority, the user's that it destroys; of a release, the one that is set again. rest:
    see Ownership. new: of a release, the number before the first write, which priority/basic needs,
    as it would put a released job behind all others; None = not known. priority: of a job whose
    site factor Slurm does not show, as a dependency holds it: before this. Then a change of it is
    all that can be read back; None = the site factor is shown.
    """

    field: Field
    target: Target
    old: Any
    new: Any
    nice: int | None = None
    rest: int | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        if not self.field.releases and not self.field.takes(self.new):
            wrong = f"{self.field.says(repr(self.new))} cannot be set"
            raise ValueError(f"job {self.target.job_id}: {wrong}")

    def document(self) -> dict[str, Any]:
        """Flat JSON: what it is, which job it is for, and its values."""
        known = {
            "field": self.field.name, "old": self.old, "new": self.new, "nice": self.nice,
            "rest": self.rest, "original": self.new, "priority": self.priority,
        }  # fmt: skip
        values = {key: known[key] for key in self.field.keys}
        if values.get("priority", 0) is None:
            del values["priority"]
        where = self.target
        job = {"job_id": where.job_id, "submitted_at": where.submitted_at, "address": where.address}
        return {"action": self.field.action, **job, **values}

    def done(self) -> str:
        """What a restore says of it once it is done."""
        again = f", nice {self.nice} set again" if self.nice else ""
        label = self.field.label
        return self.field.done.format(label=label, old=self.old, new=self.new, again=again)


def _release(_: Field, job: PendingJob, original: int | None) -> Action | None:
    """`scontrol release` gives a job that is not held back to multifactor, then its nice is set.

    One that a user holds or has freed bears rltuned's number no more: of that the nice alone, which
    `Priority=` destroyed. The hold stays, as a release by an operator would start the job.
    """
    if job.lost_nice:
        return NICE.to(job, job.lost_nice)
    return RELEASE.to(job, original, nice=job.owned.nice or 0 if job.owned else 0)


def _site_factor_back(field: Field, job: PendingJob, original: int | None) -> Action | None:
    if job.site_factor is not None or job.owned is None:
        return field.to(job, original or 0)
    if not job.is_dependent or job.priority == 0:
        return None
    hidden = job.priority
    return Action(field, target_of(job), job.owned.value, original or 0, priority=hidden)


def _left_priority(job: PendingJob) -> int | None:
    if job.owned is not None or job.priority == 0:
        return None
    # sprio does not show a job that may not start yet, as one just requeued may not
    return job.priority if job.fixed or job.site_factor is None else None


def _left_site_factor(job: PendingJob) -> int | None:
    if not job.site_factor or job.fixed or job.owned is not None or job.priority == 0:
        return None
    return job.site_factor


PRIORITY: Final = Field(
    name="priority",
    action="SetPriority",
    argument="Priority",  # freezes the job, destroys its nice
    label="priority",
    room=range(1, MAX_PRIORITY + 1),
    of=lambda job: job.priority,
    carried=_left_priority,
    undo=_release,
    keys=("old", "new", "nice", "rest"),
)
SITE_FACTOR: Final = Field(
    name="site_factor",
    action="SetSiteFactor",
    argument="SiteFactor",  # added to the multifactor sum, which stays alive
    label="site factor",
    room=range(-MAX_SITE_FACTOR, MAX_SITE_FACTOR + 1),
    of=lambda job: job.site_factor,
    carried=_left_site_factor,
    undo=_site_factor_back,
    under="multifactor",
    keys=("old", "new", "priority"),
)
RELEASE: Final = Field(
    name="release",
    action="Release",
    argument="",
    label="priority",
    room=PRIORITY.room,
    of=lambda job: job.priority,
    keys=("old", "nice", "original"),
    done="priority {old} released to multifactor{again}",
)
NICE: Final = Field(
    name="nice",
    action="SetNice",
    argument="Nice",
    label="nice",
    room=SITE_FACTOR.room,
    of=lambda job: job.nice,
    kind="release",
    done="nice {new} set again; rltuned's number was gone by a hold",
)
OVERSUBSCRIBE: Final = Field(
    name="oversubscribe",
    action="SetOverSubscribe",
    # YES puts a pending --exclusive job beside others and strips --exclusive for good: NO isolates
    # it afterwards on what it asked for; OK, the state of a job that names none, is not taken
    argument="OverSubscribe",
    label="OverSubscribe",
    pattern=re.compile("YES|NO"),
    of=lambda job: job.oversubscribe,
    carried=lambda job: "YES" if job.oversubscribe == "YES" else None,
    before=lambda job: job.shared_from,
    done="{label} {old} -> {new}: alone on its nodes again, with what it asked for; whole nodes "
    "cannot be restored",
)

FIELDS: Final = (PRIORITY, SITE_FACTOR, RELEASE, NICE, OVERSUBSCRIBE)
OWNED: Final[Mapping[str, Field]] = {f.name: f for f in FIELDS if not f.releases}
"""The fields that rltuned can own of a job, by name."""
WORDS: Final = tuple(f for f in FIELDS if f.words)
KINDS: Final = tuple(dict.fromkeys(f.kind for f in FIELDS))
"""Names of changes in the journal's table, and in metrics."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in the order in which they are to be sent; at most one of a field per job."""

    actions: tuple[Action, ...] = ()

    def __post_init__(self) -> None:
        keys = [(a.field, a.target.job_id) for a in self.actions]
        if len(set(keys)) != len(keys):
            raise ValueError("a plan may hold one action of a field per job")

    @property
    def is_empty(self) -> bool:
        return not self.actions


HELD = "it is held"
"""Detail of a change that Slurm shows otherwise because the job was held meanwhile."""


class Result(StrEnum):
    """What became of an action."""

    APPLIED = "applied"
    GONE = "gone"
    """The job started, ended or was purged meanwhile: normal."""
    REFUSED = "refused"
    """Slurm did not take it: no rights, a submit plugin ..."""
    WITHHELD = "withheld"
    """It was not sent: the view was too old, the lease was lost, or the request rate is limited."""
    FAILED = "failed"
    """No answer, one that could not be read, or held meanwhile: what is in force is not known."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One action's result; detail is Slurm's own message, empty when applied."""

    action: Action
    result: Result
    detail: str = ""


class Backend(Protocol):
    """The world that is watched and changed."""

    def observe(self, remembered: RememberedBy = nothing) -> Snapshot:
        """Read the cluster, and join what is remembered of its pending jobs to them. Raises
        BackendError: no answer; SnapshotError: it cannot be read, or is incomplete.
        """
        ...

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Carry out a plan: one outcome per action, in the same order. Never raises per action."""
        ...


class Undoer(Protocol):
    """The part of the world that `rltuned restore` needs: the numbers of pending jobs, no more."""

    def look(self) -> Snapshot:
        """Read what pending jobs stand at, and nothing of what they ask for. Raises BackendError:
        no answer; SnapshotError: it cannot be read as a whole; a single row costs its job only.
        """
        ...

    def apply(self, plan: Plan) -> tuple[Outcome, ...]: ...


class Clock(Protocol):
    """Time, as the loop sees it."""

    def now(self) -> float:
        """Unix seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleep; True = asked to stop (returns at once)."""
        ...
