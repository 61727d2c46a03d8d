"""The doors of the house: the world and the clock. (The third port, Policy, is in core/decide.)"""

from typing import Protocol

from rltuned.domain.context import RememberedBy, nothing
from rltuned.domain.plan import Outcome, Plan
from rltuned.domain.snapshot import Snapshot


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
