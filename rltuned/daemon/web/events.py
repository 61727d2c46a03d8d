"""The timeline: what has changed of the daemon's state, the latest first."""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import STATES, Condition, HealthState
from rltuned.journal.cycles import UNFINISHED, CycleRow

KEPT: Final = 60
_DETAILS: Final[Mapping[HealthState, str]] = {
    HealthState.STANDBY: "another daemon writes",
    HealthState.RIVAL_SUSPECTED: "another daemon seems to write",
    HealthState.NUMBERS_UNEXPLAINED: "the journal does not explain numbers that jobs have",
}
"""Of modes whose sentence needs one, which the journal does not keep."""
_SKIPS: Final[Mapping[str, tuple[str, str]]] = {
    "": ("ok", "cycles come to a result again"),
    "backend": ("bad", "Slurm does not answer"),
    "busy": ("warning", "slurmctld is busy: cycles are left out"),
    "snapshot": ("bad", "what Slurm says cannot be understood"),
    "policy": ("bad", "the policy gives no usable answer"),
    "unexpected": ("bad", "an unexpected error; see the log"),
    UNFINISHED: ("bad", "a cycle was cut off: the daemon was killed"),
}


class Events:
    """Follows the cycles, those of before from the journal."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._mode: str | None = None
        self._skip = ""
        self._off: frozenset[str] = frozenset()

    def documents(self) -> list[dict[str, Any]]:
        return list(reversed(self._kept))

    def past(self, one: CycleRow) -> None:
        self._state(one.at, one.mode, one.skipped)

    def look(self, report: CycleReport) -> None:
        at, verdict = report.started_at, report.verdict
        self._state(at, report.mode.value, report.skip.value if report.skip else "")
        if report.moved is not None:
            self._add(at, "notice", f"model {report.moved.generation} {report.moved.what}")
        if verdict is None:
            return
        for name in verdict.opened:
            self._add(
                at, "bad", f"the circuit breaker of {name} opens: {verdict.breakers[name].detail}"
            )
        for pair in verdict.pairs:
            self._add(at, "notice", f"a comparison of {pair.partition} is complete")
        off = frozenset(verdict.off)
        for name in sorted(off - self._off):
            self._add(at, "notice", f"off block of {name}: Slurm's own order is measured")
        for name in sorted(self._off - off):
            self._add(at, "ok", f"on block of {name}: delays are on")
        self._off = off

    def reloaded(self, at: float) -> None:
        self._add(at, "notice", "settings loaded")

    def _state(self, at: float, mode: str, skip: str) -> None:
        if skip != self._skip:
            self._skip = skip
            self._add(at, *_SKIPS.get(skip, ("bad", skip)))
        if mode != self._mode and not skip:
            self._mode = mode
            state = STATES.get(mode)
            if state is None:  # of another release
                self._add(at, "notice", mode)
            else:
                self._add(at, state.level, Condition(state, _DETAILS.get(state, "")).sentence)

    def _add(self, at: float, severity: str, text: str) -> None:
        self._kept.append({"at": at, "severity": severity, "text": text})
