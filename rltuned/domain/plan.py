"""A plan, what came of it, and the ports: the world, and the clock. (Policy is in core/decide.)"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from rltuned.domain.context import RememberedBy, nothing
from rltuned.domain.fields import Action
from rltuned.domain.snapshot import Snapshot


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
