"""The trust ladder: how far rltuned is trusted, and on what terms.

observe looks. shadow decides as well, and logs what it would write. canary writes in blocks of
time, and compares them with blocks without delays. full writes. Up by the settings only; down by
the settings, or by a partition's circuit breaker (daemon/canary/breaker.py).
"""

from dataclasses import dataclass
from enum import StrEnum


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
    """The knobs. margin: of longer waits in on blocks. max_errors: cycles until a breaker opens."""

    rung: Rung = Rung.FULL
    margin: float = 0.05
    max_errors: int = 5
