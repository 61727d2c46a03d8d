"""Does it help? All that is known of it now: the canary that runs, and the last report kept."""

from dataclasses import asdict
from typing import Any

from rltuned.daemon.effect import Effect, Waits
from rltuned.daemon.reckoning import Kept, Reader, State
from rltuned.daemon.report import CycleReport, Mode
from rltuned.daemon.seams import Rig
from rltuned.daemon.trial import arms

Document = dict[str, Any]


class Helping:
    """Hears of every cycle. Its attributes are exchanged whole: other threads read them.

    Attributes:
        running: treated against control since the canary began, or the daemon started if that was
            later; None = there is no canary, so there is nobody to compare with.
        kept: the last report.

    Args:
        reader: finds the last report; None = none is looked for.
    """

    def __init__(self, reader: Reader | None = None) -> None:
        self.running: Effect | None = None
        self.kept = Kept(State.ABSENT)
        self._reader = reader
        self._rig: Rig | None = None
        self._waits = Waits()
        self._cluster: str | None = None

    def loaded(self, rig: Rig) -> None:
        """Settings and policy are in force."""
        before = self._rig
        if before is None or (before.ladder, before.model) != (rig.ladder, rig.model):
            self._waits = Waits()  # other terms or another model: not compared, never pooled
        self._rig = rig
        self._weigh()

    def cycle(self, report: CycleReport) -> None:
        """Take in one cycle."""
        rig = self._rig
        if report.snapshot is not None:
            self._cluster = report.snapshot.cluster
            if rig is not None and rig.ladder.canary is not None:
                sides = arms(report.snapshot, report.decision, rig.knobs.rules, rig.ladder.rung)
                self._waits.look(report.snapshot, sides, joining=report.mode is Mode.LIVE)
        self._weigh()
        if self._reader is not None:
            self.kept = self._reader.look(self._cluster)

    def _weigh(self) -> None:
        canary = None if self._rig is None else self._rig.ladder.canary
        self.running = None if canary is None else self._waits.effect()

    def document(self) -> Document:
        """For the status page: `effect` of the running canary (None = none), and `report`."""
        running, kept = self.running, self.kept
        effect = None if running is None else {**asdict(running), "verdict": running.verdict}
        found = None if kept.found is None else kept.found.model_dump()
        return {
            "effect": effect,
            "report": {"state": kept.state.value, "why": kept.why, "found": found},
        }
