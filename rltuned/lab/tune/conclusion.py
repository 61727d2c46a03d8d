"""What becomes of a night: its state is kept, its winner becomes a generation."""

from typing import Any, Final

from rltuned.daemon.clock import SystemClock
from rltuned.lab.backtest.calibration import Calibration
from rltuned.lab.stats import DAY_S
from rltuned.lab.tune.night import Night
from rltuned.lab.tune.results import seal
from rltuned.policies.generations import Generations
from rltuned.policies.tune_state import TuneState, Verdict, read_state, write_state
from rltuned.settings import Settings

WEEK_S: Final = 7 * DAY_S
"""At most one promotion by a night in this time; a change must be seen before the next one."""


class NightState:
    """tune.json: a night that does not come to its end counts as failed."""

    def __init__(self, settings: Settings, *, dry_run: bool) -> None:
        self._folder, self._dry_run = settings.daemon.state_dir, dry_run
        self.before = read_state(self._folder) or TuneState()
        self._at = SystemClock().now()
        words = "the night has not come to its end"
        self._write(
            self.before.model_copy(
                update={
                    "verdict": "failed",
                    "sentence": words,
                    "at": self._at,
                    "failed": self.before.failed + 1,
                }
            )
        )

    def end(self, state: TuneState) -> None:
        """A verdict, or that there can be none."""
        promoted = state.promoted_at or self.before.promoted_at
        known = {"at": self._at, "ended_at": SystemClock().now(), "promoted_at": promoted}
        self._write(state.model_copy(update=known))

    def _write(self, state: TuneState) -> None:
        if not self._dry_run:
            write_state(self._folder, state)


def concluded(
    settings: Settings, night: Night, found: dict[str, Any], state: NightState, *, dry_run: bool
) -> dict[str, Any]:
    """Verdict, sentence, reasons and generation; the generation is made and proposed here."""
    verdict: Verdict = "kept"
    why, text, name, now = list(night.why), night.incumbent.name, "", SystemClock().now()
    won = next((c for c in found["candidates"] if c["passes"]), None)
    change = won["exam"]["objective"] if won is not None else {}
    if won is not None:
        verdict, doubts = _standing(settings, state, dry_run=dry_run)
        why += doubts
        text = f"{won['order']}: objective {change['change']:+.1%} on the test period"
    sentence = f"{verdict.capitalize()}: {text}"
    if verdict != "kept" and not dry_run:
        store = Generations(settings.daemon.state_dir)
        name = seal(store, night, verdict=sentence, at=now, command="rltuned tune").name
        store.propose(name, at=now, why=sentence)
        if verdict == "promoted":
            store.promote(at=now, why=sentence)
        store.prune()
    promoted_at = now if verdict == "promoted" else 0.0
    state.end(
        TuneState(
            verdict=verdict, sentence=sentence, candidate=name, promoted_at=promoted_at, **change
        )
    )
    return {"verdict": verdict, "sentence": sentence, "why": why, "generation": name or None}


def _standing(settings: Settings, state: NightState, *, dry_run: bool) -> tuple[Verdict, list[str]]:
    """What becomes of an order that passed, and why it is no more."""
    promote, now = settings.tune.promote, SystemClock().now()
    if promote == "canary" and not dry_run and (name := _on_trial(settings)):
        return "kept", [f"an order has passed, but {name} is on trial"]
    if promote != "auto" or dry_run:
        return "proposed", []
    if now - state.before.promoted_at < WEEK_S:
        return "proposed", ["a night promoted within the last week"]
    return "promoted", []


def _on_trial(settings: Settings) -> str:
    """The candidate that the daemon has on trial; empty = there is none."""
    store = Generations(settings.daemon.state_dir)
    candidate = store.named_by("candidate")
    return "" if candidate in {None, store.named_by("current")} else str(candidate)


def poor_calibration(calibration: Calibration) -> str:
    """Why no order is chosen by a simulator that plays the past so badly."""
    whole = calibration.whole
    off = (
        "no job waited"
        if whole.mean.change is None
        else f"mean wait off by {whole.mean.change:+.1%}"
    )
    rank = "none" if whole.rank is None else f"{whole.rank:.2f}"
    return (
        f"the simulator does not behave as this Slurm did ({off}, rank correlation {rank}): no "
        "order is chosen by it; `rltuned backtest --report DIR` shows what is not played"
    )
