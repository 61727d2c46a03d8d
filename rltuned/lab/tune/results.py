"""What a night found, as plain data for JSON and page; and its winner as a generation."""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rltuned import __version__
from rltuned.lab.backtest.study import VERDICTS
from rltuned.lab.compare import Change, Comparison
from rltuned.lab.train.export import export_predictor
from rltuned.lab.tune.candidates import Entrant
from rltuned.lab.tune.journal_history import Sources
from rltuned.lab.tune.night import FamilyResult, Figures, Night
from rltuned.policies.generation import MODEL, PREDICTOR, Generation, TunedOrder
from rltuned.policies.generations import Generations
from rltuned.text import utc

FIGURES: Final = ("wait_s", "wait_p99_s", "wait_max_s")


def document(night: Night, asked: Mapping[str, Any], sources: Sources) -> dict[str, Any]:
    """Everything but the verdict, which the command adds; what is unknown is null.

    asked: how it was asked for. sources: of the record's jobs.
    """
    past, whole = night.past, night.calibration.whole
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
        "power": None
        if night.power is None
        else {**asdict(night.power), "text": night.power.words},
        "slurm": _figures(night.natural_figures),
        "incumbent": {**_order(night.incumbent), **_figures(night.incumbent_figures)},
        "candidates": [_candidate(e, night) for e in night.tested],
        "left_out": night.left_out,
        "plain": list(night.plain),
        "plays": night.plays,
    }


def _order(entrant: Entrant) -> dict[str, Any]:
    return {
        "order": entrant.name,
        "policy": entrant.policy.name,
        "trust": entrant.policy.trust,
        "own": entrant.own,
        "share": entrant.share,
        "max_delay_s": entrant.max_delay_s,
        "site_predictor": entrant.family.site_predictor,
    }


def _candidate(one: FamilyResult, night: Night) -> dict[str, Any]:
    choice = one.choice
    return {
        "name": choice.entrant.family.name,
        **_order(choice.entrant),
        "is_rule": choice.entrant.family.is_rule,
        "plays": choice.played,
        "lesson": difference_json(choice.training),
        "exam": None if one.test is None else difference_json(one.test),
        **(_figures(one.figures) if one.figures else dict.fromkeys(FIGURES)),
        "passes": one is night.picked and not one.why,
        "why": list(one.why),
    }


def _figures(found: Figures) -> dict[str, float]:
    return dict(zip(FIGURES, found, strict=True))


def difference_json(found: Comparison) -> dict[str, Any]:
    """Relative changes with their intervals; null where there are too few days."""
    return {
        "days": found.days,
        **{name: _change(getattr(found, name)) for name in ("wait", "bsld", "objective")},
    }


def _change(found: Change) -> dict[str, float | None]:
    return {"change": found.change, "low": found.low, "high": found.high}


def seal(store: Generations, night: Night, *, verdict: str, at: float, command: str) -> Generation:
    """The winner as a generation, which nothing follows yet.

    Raises:
        ModelError: it cannot be written, or what was written cannot be used.
        ValueError: no candidate has passed.
    """
    won = night.taken
    if won is None:
        raise ValueError("no candidate has passed")
    family = won.family
    with tempfile.TemporaryDirectory(prefix="rltuned-tune-") as work:
        parts: dict[str, Path] = {}
        if family.bundle is not None:
            parts[MODEL] = family.bundle
        if family.site_predictor and night.fitted is not None:
            parts[PREDICTOR] = Path(work, "site")
            export_predictor(
                parts[PREDICTOR],
                night.fitted,
                command=command,
                seed=1,
                data=f"{night.fitted.examples} jobs of this site",
                licence="the site's own",
            )
        order = TunedOrder(
            policy=MODEL if family.bundle is not None else won.policy.name,
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
