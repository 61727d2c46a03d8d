"""What would change the world, and what came of it."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from rltuned.domain.units import JobId, UnixTime

MAX_PRIORITY = 4_294_967_293
"""Largest value `scontrol update Priority=` takes (higher ones are refused by the client)."""
MAX_SITE_FACTOR = 2_147_483_645
"""Largest |SiteFactor| that scontrol takes."""

OVERSUBSCRIBE_TOKENS = ("YES", "NO")
"""What `scontrol update OverSubscribe=` takes; OK, the state of a job that names none, it does
not."""


@dataclass(frozen=True, slots=True)
class Target:
    """The record an action is meant for. Submit time is part of it: Slurm re-uses job ids."""

    job_id: JobId
    submitted_at: UnixTime
    address: str

    @property
    def key(self) -> tuple[JobId, UnixTime]:
        """What tells jobs apart."""
        return self.job_id, self.submitted_at


@dataclass(frozen=True, slots=True)
class SetPriority:
    """`scontrol update Priority=`: freezes the job, destroys its nice. rest: see Ownership."""

    target: Target
    old: int
    new: int
    nice: int
    rest: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.new <= MAX_PRIORITY:
            raise ValueError(
                f"job {self.target.job_id}: priority {self.new} outside 1..{MAX_PRIORITY}"
            )


@dataclass(frozen=True, slots=True)
class SetSiteFactor:
    """`scontrol update SiteFactor=`: added to the multifactor sum, which stays alive.

    priority: of a job whose site factor Slurm does not show, as a dependency holds it: before this.
    Then a change of it is all that can be read back; None = the site factor is shown.
    """

    target: Target
    old: int
    new: int
    priority: int | None = None

    def __post_init__(self) -> None:
        if abs(self.new) > MAX_SITE_FACTOR:
            raise ValueError(f"job {self.target.job_id}: site factor {self.new} out of range")


@dataclass(frozen=True, slots=True)
class Release:
    """Give a job that rltuned froze back to multifactor: `scontrol release`, then the user's nice.

    Only ever for a job that is not held: a release by an operator would start a held one.
    original: the number before the first write. Under priority/basic, which would put a released
    job behind all others, that number is set again instead; None = not known.
    """

    target: Target
    old: int
    nice: int
    original: int | None = None


@dataclass(frozen=True, slots=True)
class SetNice:
    """`scontrol update Nice=`: restores the user's nice alone, which `Priority=` destroyed.

    Only for a job that bears rltuned's number no more, because a user holds it or has freed it: the
    hold stays, nothing is released, and one whose nice is no longer `old` is left alone.
    """

    target: Target
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class SetOverSubscribe:
    """`scontrol update OverSubscribe=`: YES puts a pending --exclusive job beside others.

    It strips --exclusive for good: NO afterwards isolates the job again, on what it asked for
    instead of whole nodes, and OK cannot be set at all. `old` is Slurm's own token.
    """

    target: Target
    old: str
    new: str

    def __post_init__(self) -> None:
        if self.new not in OVERSUBSCRIBE_TOKENS:
            raise ValueError(f"job {self.target.job_id}: OverSubscribe={self.new!r} cannot be set")


RequestField = Literal["num_nodes"]
REQUEST_WORDS: Final = re.compile(r"(?P<least>[1-9][0-9]{0,5})-(?P<most>[1-9][0-9]{0,5})")
"""What a request may be set to: a range of node counts."""


@dataclass(frozen=True, slots=True)
class SetRequest:
    """`scontrol update NumNodes=`: gives a job back the range that release 0.2.0 has narrowed.

    Sent only while Slurm shows `old`. A job whose range an operator has changed starts on the
    fewest nodes of whatever range it then has.
    """

    target: Target
    field: RequestField
    old: str
    new: str

    def __post_init__(self) -> None:
        found = REQUEST_WORDS.fullmatch(self.new)
        if found is None or int(found["least"]) > int(found["most"]):
            raise ValueError(f"job {self.target.job_id}: {self.field}={self.new!r} cannot be set")


Action = SetPriority | SetSiteFactor | Release | SetNice | SetOverSubscribe | SetRequest


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in the order in which they are to be sent; at most one of a kind per job."""

    actions: tuple[Action, ...] = ()

    def __post_init__(self) -> None:
        keys = [(type(a).__name__, a.target.job_id) for a in self.actions]
        if len(set(keys)) != len(keys):
            raise ValueError("a plan may hold one action of a kind per job")

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
