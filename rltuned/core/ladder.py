"""The trust ladder: how far rltuned is trusted, and on what terms.

observe looks. shadow decides as well, and compares its order with what Slurm does. canary writes,
to a part of the jobs, and compares them with the rest. full writes to all. Up by the settings only;
down by the settings, or by a partition's circuit breaker (daemon/breaker.py).
"""

from dataclasses import dataclass
from enum import StrEnum

from rltuned.core.canary import Canary


class Rung(StrEnum):
    """A stage. The value is the word in the settings and the metric label."""

    OBSERVE = "observe"
    SHADOW = "shadow"
    CANARY = "canary"
    FULL = "full"

    @property
    def writes(self) -> bool:
        return self in {Rung.CANARY, Rung.FULL}


@dataclass(frozen=True, slots=True)
class Ladder:
    """The knobs.

    Attributes:
        rung: what may be done.
        fraction: of a canary's jobs, that are treated.
        salt: of the canary; another one draws the sides anew.
        margin: a treated job may fare worse than one of the control in 1/2 + margin of the pairs.
        max_errors: cycles in a row in which a partition's changes fail, and its breaker opens.
    """

    rung: Rung = Rung.FULL
    fraction: float = 0.1
    salt: str = ""
    margin: float = 0.02
    max_errors: int = 5

    @property
    def canary(self) -> Canary | None:
        """Who is treated; None = no trial is on."""
        return Canary(self.fraction, self.salt) if self.rung is Rung.CANARY else None
