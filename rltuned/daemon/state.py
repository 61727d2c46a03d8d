"""The state of the daemon: one word and one sentence, the same in every place that shows it.

Status page, `rltuned status`, /readyz, systemd's STATUS=, `rltuned_mode` and the log line `state`
all show the conditions of a Health. The sentences name no job, user, account or node: /readyz and
the metrics answer every client.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, Self

FRESH_CYCLES: Final = 3
"""So many intervals after the last result the daemon is no longer ready."""


Level = Literal["ok", "notice", "warning", "bad"]


class HealthState(StrEnum):
    """What the daemon does, by what an operator wants first to read: faults, then what it may do.
    The value is the label of the metric and the word in log lines, JSON and the journal; then the
    sentence, and the level that the page shows.
    """

    sentence: str
    level: Level

    def __new__(cls, value: str, sentence: str, level: Level) -> Self:
        made = str.__new__(cls, value)
        made._value_ = value
        made.sentence, made.level = sentence, level
        return made

    JOURNAL_UNUSABLE = (
        "journal_unusable",
        "nothing is written: the journal cannot be used: {detail}",
        "bad",
    )
    RIVAL_SUSPECTED = "rival_suspected", "nothing is written: {detail}", "bad"
    NUMBERS_UNEXPLAINED = "numbers_unexplained", "nothing is written: {detail}", "bad"
    CLOCK_OFF = "clock_off", "nothing is written: {detail}", "bad"
    SLURM_UNREACHABLE = "slurm_unreachable", "Slurm does not answer: {detail}", "bad"
    NO_RESULT = "no_result", "the last cycle came to no result ({detail}); see the log", "bad"
    STALE = "stale", "the last result is {detail}", "bad"
    RELOAD_FAILED = (
        "reload_failed",
        "the last reload failed, and the settings before it stay; see the log",
        "bad",
    )
    BREAKER_OPEN = (
        "breaker_open",
        "the circuit breaker of {detail} is open: Slurm's own order holds there",
        "bad",
    )
    NO_ROOM = "no_room", "{detail}", "warning"
    """Priorities are too low for the delays, which are cut: some jobs tie."""
    STARTING = "starting", "no cycle has come to a result since the start", "notice"
    SLURM_BUSY = "slurm_busy", "{detail}: this cycle is left out", "warning"
    DRY_RUN = "dry_run", "nothing is written: this is a dry run", "notice"
    PAUSED = "paused", "nothing is written: the pause file exists", "warning"
    """Would be live, but the pause file exists."""
    STANDBY = "standby", "nothing is written: {detail}", "notice"
    """Would be live, but the daemon beside the other slurmctld is the one that writes."""
    OBSERVE = "observe", "nothing is written: the stage is observe", "notice"
    """Only looks. What a cycle may do also while the journal cannot be used, so that nothing could
    be restored, or while another daemon seems to write."""
    SHADOW = "shadow", "nothing is written: the stage is shadow", "notice"
    """Decides and compares, by its stage."""
    LEARNING = "learning", "whether it helps is not known yet: {detail}", "ok"
    """Live, with too few pairs of blocks to say whether it helps."""
    LIVE = "live", "changes are written to Slurm", "ok"

    @property
    def word(self) -> str:
        """For the page."""
        return self.value.replace("_", " ").capitalize()


STATES: Final[Mapping[str, HealthState]] = {state.value: state for state in HealthState}
_ORDER: Final = {state: place for place, state in enumerate(HealthState)}
_NOT_READY: Final = frozenset(
    {
        HealthState.JOURNAL_UNUSABLE,
        HealthState.STALE,
        HealthState.RELOAD_FAILED,
        HealthState.STARTING,
    }
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A state that holds. detail: the part of its sentence that is not always the same."""

    state: HealthState
    detail: str = ""

    @property
    def sentence(self) -> str:
        return self.state.sentence.format(detail=self.detail)

    @property
    def is_trouble(self) -> bool:
        """Whether a person has to look; else it is what was asked for, or ends by itself."""
        return self.state.level == "bad" or self.state in _NOT_READY


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
