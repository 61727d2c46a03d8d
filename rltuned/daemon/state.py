"""The state of the daemon: one word and one sentence, the same in every place that shows it.

Status page, `rltuned status`, /readyz, systemd's STATUS=, `rltuned_mode` and the log line `state`
all show the conditions of a Health. The sentences name no job, user, account or node: /readyz and
the metrics answer every client.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from rltuned.daemon.canary.effect import Effect

FRESH_CYCLES: Final = 3
"""So many intervals after the last result the daemon is no longer ready."""


class HealthState(StrEnum):
    """What the daemon does, by what an operator wants first to read: faults, then what it may do.
    The value is the label of the metric and the word in log lines, JSON and the journal.
    """

    JOURNAL_UNUSABLE = "journal_unusable"
    RIVAL_SUSPECTED = "rival_suspected"
    NUMBERS_UNEXPLAINED = "numbers_unexplained"
    CLOCK_OFF = "clock_off"
    SLURM_UNREACHABLE = "slurm_unreachable"
    NO_RESULT = "no_result"
    STALE = "stale"
    RELOAD_FAILED = "reload_failed"
    BREAKER_OPEN = "breaker_open"
    STARTING = "starting"
    SLURM_BUSY = "slurm_busy"
    DRY_RUN = "dry_run"
    PAUSED = "paused"
    """Would be live, but the pause file exists."""
    STANDBY = "standby"
    """Would be live, but the daemon beside the other slurmctld is the one that writes."""
    OBSERVE = "observe"
    """Only looks. What a cycle may do also while the journal cannot be used, so that nothing could
    be restored, or while another daemon seems to write."""
    SHADOW = "shadow"
    """Decides and compares, by its stage."""
    LEARNING = "learning"
    """Live, with too few pairs of blocks to say whether it helps."""
    LIVE = "live"


_SENTENCES: Final = {
    HealthState.JOURNAL_UNUSABLE: "nothing is written: the journal cannot be used: {detail}",
    HealthState.RIVAL_SUSPECTED: "nothing is written: {detail}",
    HealthState.NUMBERS_UNEXPLAINED: "nothing is written: {detail}",
    HealthState.CLOCK_OFF: "nothing is written: {detail}",
    HealthState.SLURM_UNREACHABLE: "Slurm does not answer: {detail}",
    HealthState.NO_RESULT: "the last cycle came to no result ({detail}); see the log",
    HealthState.STALE: "the last result is {detail}",
    HealthState.RELOAD_FAILED: (
        "the last reload failed, and the settings before it stay; see the log"
    ),
    HealthState.BREAKER_OPEN: (
        "the circuit breaker of {detail} is open: Slurm's own order holds there"
    ),
    HealthState.STARTING: "no cycle has come to a result since the start{detail}",
    HealthState.SLURM_BUSY: "{detail}: this cycle is left out",
    HealthState.DRY_RUN: "nothing is written: this is a dry run",
    HealthState.PAUSED: "nothing is written: the pause file exists",
    HealthState.STANDBY: "nothing is written: {detail}",
    HealthState.OBSERVE: "nothing is written: the stage is observe",
    HealthState.SHADOW: "nothing is written: the stage is shadow",
    HealthState.LEARNING: "whether it helps is not known yet: {detail}",
    HealthState.LIVE: "changes are written to Slurm",
}
_ORDER: Final = {state: place for place, state in enumerate(HealthState)}
_NOT_READY: Final = frozenset(
    {
        HealthState.JOURNAL_UNUSABLE,
        HealthState.STALE,
        HealthState.RELOAD_FAILED,
        HealthState.STARTING,
    }
)
_TROUBLE: Final = _NOT_READY | {
    HealthState.RIVAL_SUSPECTED,
    HealthState.NUMBERS_UNEXPLAINED,
    HealthState.CLOCK_OFF,
    HealthState.SLURM_UNREACHABLE,
    HealthState.NO_RESULT,
    HealthState.BREAKER_OPEN,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A state that holds. detail: the part of its sentence that is not always the same."""

    state: HealthState
    detail: str = ""

    @property
    def sentence(self) -> str:
        return _SENTENCES[self.state].format(detail=self.detail)

    @property
    def is_trouble(self) -> bool:
        """Whether a person has to look; else it is what was asked for, or ends by itself."""
        return self.state in _TROUBLE


class Health:
    """All that holds at one time, worst first; never empty."""

    def __init__(self, conditions: Iterable[Condition]) -> None:
        self.conditions = tuple(sorted(conditions, key=lambda c: _ORDER[c.state]))

    @property
    def ready(self) -> bool:
        """Whether the last result is fresh, the journal usable and the files on disk good."""
        return all(condition.state not in _NOT_READY for condition in self.conditions)

    @property
    def state(self) -> HealthState:
        return self.conditions[0].state

    @property
    def is_trouble(self) -> bool:
        return any(condition.is_trouble for condition in self.conditions)

    def __str__(self) -> str:
        return "; ".join(condition.sentence for condition in self.conditions)

    def document(self) -> dict[str, Any]:
        return {
            "ready": self.ready,
            "state": self.state.value,
            "reason": str(self),
            "conditions": [
                {"state": c.state.value, "sentence": c.sentence, "trouble": c.is_trouble}
                for c in self.conditions
            ],
        }


class KeptState(BaseModel):
    """What the journal keeps of the state. at: Unix seconds. effect: None = no switchback."""

    model_config = ConfigDict(frozen=True)

    at: float
    cluster: str
    conditions: tuple[Condition, ...]
    effect: Effect | None = None

    @property
    def health(self) -> Health:
        return Health(self.conditions)


def kept_state(kept: object) -> KeptState | None:
    """The value that the journal keeps; None = there is none that this release can read."""
    try:
        return KeptState.model_validate(kept)
    except ValidationError:
        return None
