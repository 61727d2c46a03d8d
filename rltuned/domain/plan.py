"""A plan, what would change the world, and what came of it."""

from dataclasses import dataclass
from enum import StrEnum

from rltuned.domain.fields import Action


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
