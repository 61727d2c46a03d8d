"""What a night found, as plain data for JSON and page; its state is kept, and its winner becomes a
generation.
"""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rltuned import __version__
from rltuned.daemon.clock import SystemClock
from rltuned.lab.backtest.study import VERDICTS
from rltuned.lab.compare import DAY_S, Change, Comparison, JobScores
from rltuned.lab.report import plots
from rltuned.lab.train.export import export_predictor
from rltuned.lab.tune.journal_history import Sources
from rltuned.lab.tune.night import Night
from rltuned.lab.tune.search import Candidate
from rltuned.policies.generations import MODEL, PREDICTOR, Generation, Generations, TunedOrder
from rltuned.policies.tune_state import TuneState, Verdict, read_state, write_state
from rltuned.report import render
from rltuned.settings import Settings
from rltuned.text import utc

SHOWN: Final = {"objective": "objective", "wait": "mean wait", "bsld": "bounded slowdown"}
WEEK_S: Final = 7 * DAY_S
"""At most one promotion by a night in this time; a change must be seen before the next one."""


def document(night: Night, asked: Mapping[str, Any], sources: Sources) -> dict[str, Any]:
    """Everything but the verdict, which the command adds; what is unknown is null.

    asked: how it was asked for. sources: of the record's jobs.
    """
    past, whole = night.test.past, night.calibration.whole
    training, end, test = night.periods_s
    return {
        "rltuned": __version__,
        "asked": dict(asked),
        "calibration": {
            "verdict": whole.verdict,
            "means": VERDICTS[whole.verdict],
            "whole": {**asdict(whole), "verdict": whole.verdict},
            "unit": night.calibration.unit,
        },
        "record": {
            "cluster": past.site.cluster.name,
            "begin": utc(past.begin),
            "lesson": utc(past.begin + training),
            "gap": utc(past.begin + end),
            "exam": utc(past.begin + test),
            "until": utc(past.until),
            "jobs": int(past.scored.sum()),
            "exam_jobs": int(past.later.sum()),
            "users": len({past.jobs[i].user for i in past.scored.nonzero()[0]}),
            "sources": {**asdict(sources), "text": sources.words},
        },
        "power": night.power,
        "slurm": _figures(night.test.natural),
        "incumbent": {**_order(night.incumbent), **_figures(night.base)},
        "candidates": _candidates(night),
        "left_out": night.left_out,
        "plain": list(night.price_words),
        "plays": night.searched.plays,
    }


def _order(candidate: Candidate) -> dict[str, Any]:
    return {
        "order": candidate.name,
        "policy": candidate.policy.name,
        "trust": candidate.policy.trust,
        "own": candidate.own,
        "share": candidate.share,
        "max_delay_s": candidate.max_delay_s,
        "site_predictor": candidate.is_refitted,
    }


def _candidates(night: Night) -> list[dict[str, Any]]:
    """Those of the test period first, then the others of the training period."""
    tested = {one.candidate.name: one for one in night.tested}
    tried = {one.candidate.name: one for one in night.searched.tried}
    found = []
    for name in dict.fromkeys([*tested, *tried]):
        test, training = tested.get(name), tried.get(name)
        candidate = test.candidate if test else tried[name].candidate
        why = ["the longest wait is above the price on the training period"]
        if training is None or training.keeps:
            why = ["it was not the best on the training period"]
        found.append(
            {
                **_order(candidate),
                "longest": None if training is None else training.longest,
                "lesson": None if training is None else difference_json(training.change),
                "exam": None if test is None else difference_json(test.change),
                **_figures(None if test is None else test.scores),
                "passes": candidate is night.taken,
                "why": list(test.why) if test else why,
            }
        )
    return found


def _figures(scores: JobScores | None) -> dict[str, float | None]:
    """Mean, 99% and longest wait."""
    if scores is None:
        return dict.fromkeys(("wait_s", "wait_p99_s", "wait_max_s"))
    return {
        "wait_s": scores.mean_s,
        "wait_p99_s": scores.tail_s,
        "wait_max_s": scores.longest_s,
    }


def difference_json(found: Comparison) -> dict[str, Any]:
    """Relative changes with their intervals; null where there are too few days."""
    return {
        "days": found.days,
        **{name: _change(getattr(found, name)) for name in ("wait", "bsld", "objective")},
    }


def _change(found: Change) -> dict[str, float | None]:
    return {"change": found.change, "low": found.low, "high": found.high}


def page_of(night: Night, found: Mapping[str, Any]) -> str:
    """One HTML page that needs nothing else. found: see document, with the verdict."""
    past = night.test.past
    simulated = (night.test.played.start_s - past.arrived_s)[past.scored]
    tested = {one.candidate.name: one.change for one in night.tested}
    panels = [
        (title, {name: getattr(change, metric) for name, change in tested.items()})
        for metric, title in SHOWN.items()
    ]
    record = found["record"]
    terms = [(k.replace("_", " "), str(v)) for k, v in found["asked"].items()]
    terms += [
        ("record", f"{record['jobs']} jobs, {record['begin']} to {record['until']}"),
        ("users", str(record["users"])),
        ("sources", record["sources"]["text"]),
        ("training period from, to", f"{record['lesson']}, {record['gap']}"),
        ("test period from", record["exam"]),
        ("orders played", str(found["plays"])),
    ]
    return render(
        "tune.html",
        title=f"Tuning of {record['cluster']}",
        headline=found["sentence"],
        tone="" if found["verdict"] == "kept" else "close",
        night=found,
        plots={
            "calibration": plots.calibration(
                night.calibration.days, past.split_s, (past.wait_s[past.scored], simulated)
            ),
            "exam": plots.forests("exam", panels, same=True) if tested else "",
        },
        terms=terms,
    )


# -- what becomes of it ---------------------------------------------------------------------------


class NightState:
    """tune.json: a night that does not come to its end counts as failed."""

    def __init__(self, settings: Settings, *, dry_run: bool) -> None:
        self._folder, self._dry_run = settings.daemon.state_dir, dry_run
        self.before = read_state(self._folder, TuneState) or TuneState()
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
        name = seal(store, night, verdict=sentence, at=now).name
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


def seal(store: Generations, night: Night, *, verdict: str, at: float) -> Generation:
    """The winner as a generation, which nothing follows yet.

    Raises:
        ModelError: it cannot be written, or what was written cannot be used.
        ValueError: no candidate has passed.
    """
    won = night.taken
    if won is None:
        raise ValueError("no candidate has passed")
    with tempfile.TemporaryDirectory(prefix="rltuned-tune-") as work:
        parts: dict[str, Path] = {}
        if won.bundle is not None:
            parts[MODEL] = won.bundle
        if won.is_refitted and night.fitted is not None:
            parts[PREDICTOR] = Path(work, "site")
            export_predictor(
                parts[PREDICTOR],
                night.fitted,
                command="rltuned tune",
                seed=1,
                data=f"{night.fitted.examples} jobs of this site",
                licence="the site's own",
            )
        order = TunedOrder(
            policy=MODEL if won.bundle is not None else won.policy.name,
            trust=1.0 if won.policy.trust is None else won.policy.trust,
            own=won.own,
            share=won.share,
            max_delay_s=won.max_delay_s,
            site_predictor=PREDICTOR in parts,
            label=won.policy.name,
            verdict=verdict,
            made_at=math.floor(at),
            rltuned_version=__version__,
        )
        return store.add(order, parts)
