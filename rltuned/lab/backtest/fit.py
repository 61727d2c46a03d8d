"""Fit predictor, or predictor and order, to the earlier part, so as to judge on the later one.

Only jobs that had ended when rltuned is switched on count: one that still ran has no run time yet.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rltuned.lab.backtest.past import Past
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.export import Run
from rltuned.lab.train.ppo import Report as Epoch
from rltuned.lab.train.ppo import beginning_from, perform
from rltuned.lab.train.predictor import FEWEST_JOBS, Fitted, fit, foreseen
from rltuned.lab.train.settings import Learned, PpoSettings
from rltuned.lab.train.sources import DatasetSource
from rltuned.policies.predictor import Predictor

# Train the shipped order on, on a site's own earlier part, within a stated time.


Report = Callable[[float], None]
"""Called with how much of the time is used, 0..1."""

WINDOW_JOBS: Final = 256
SMALLEST_WINDOW: Final = 32
PARTS: Final = 12
"""A window is at most such a part of what there is to learn from."""
EPOCHS: Final = 60
BATCHES: Final = 20
ROLLOUTS: Final = 5
LOADS: Final = (0.6, 1.3)
MINUTE_S: Final = 60.0


class _TimeIsUpError(Exception):
    """Raised by rltuned's own hook; what there is then is exported."""


def fit_order(
    past: Past,
    model: Path,
    predictor: Predictor,
    out: Path,
    *,
    minutes: float,
    seed: int,
    report: Report,
) -> tuple[Path | None, str]:
    """PPO from the model's order; see `fit_site`. The new bundle, and a sentence."""
    jobs, start_s = past.known()
    size = min(WINDOW_JOBS, len(jobs) // PARTS)
    if size < SMALLEST_WINDOW:
        return None, (
            f"no order was learned: {len(jobs)} jobs had ended before the switch, --train full "
            f"needs {SMALLEST_WINDOW * PARTS}"
        )
    scenario = Scenario.of(past.site.cluster, jobs, name="the earlier part").foreseeing(
        foreseen(predictor, jobs, start_s=start_s)
    )
    settings = PpoSettings(
        epochs=EPOCHS, batches=BATCHES, entropy=0.0, seed=seed, objective="mix", window_jobs=size,
        rollouts=ROLLOUTS, loads=LOADS, learning_rate=1e-3, reference="base", eval_windows=6,
        eval_jobs=size,
    )  # fmt: skip
    settings = beginning_from(model, settings)
    with TemporaryDirectory() as folder:
        run = Run(
            sources=(
                DatasetSource(scenario, f"{len(jobs)} jobs of the site's own", "the site's own"),
            ),
            folder=Path(folder, "work"),
            out=out,
            command=f"rltuned backtest --train full --train-minutes {minutes:g} --seed {seed}",
            start=model,
            predictor=predictor,
            force=True,  # the backtest has a later part of its own
        )
        epochs = _perform(settings, run, minutes, report)
    return out, (
        f"order of {model.name} trained on by PPO for {epochs} epochs (at most {minutes:g} minutes)"
        f" in windows of {size} of the {len(jobs)} jobs that had ended before the "
        "switch"
    )


def _perform(settings: PpoSettings, run: Run, minutes: float, report: Report) -> int:
    """Train until the time is up and export the best epoch; how many there were."""
    began, done = time.perf_counter(), 0

    def after(_folder: Path, done_now: Epoch) -> None:
        nonlocal done
        done = done_now.epoch + 1
        used = (time.perf_counter() - began) / (minutes * MINUTE_S)
        report(min(1.0, used))
        if used >= 1:
            raise _TimeIsUpError

    try:
        perform(settings, run, on_epoch=after)
    except _TimeIsUpError:
        # the last epoch's checkpoint is whole: as if that were all that was wanted, it is exported
        perform(replace(settings, epochs=done), replace(run, resume=True))
    return done


def fit_site(
    learned: Learned,
    past: Past,
    model: Path,
    begin: Predictor,
    out: Path,
    *,
    minutes: float,
    seed: int,
    report: Report = lambda _part: None,
) -> tuple[Path | None, Fitted | None, str]:
    """Learn from a site's earlier part: the bundle of the order (None = the shipped ones), the
    predictor (None = nothing was learned), and a sentence for the report.

    model: the bundle to begin from; its network must read predictions. out: folder of a new bundle;
    must not exist. minutes: the longest that PPO may take (`full`); an epoch that began is
    finished.

    Raises ModelError: a bundle cannot be used or written.
    """
    jobs, start_s = past.known()
    if learned == "none":
        return None, None, "nothing was learned from the earlier part (--train none)"
    if len(jobs) < FEWEST_JOBS:
        few = f"{len(jobs)} jobs had ended before the switch, {FEWEST_JOBS} are needed"
        return None, None, f"nothing was learned: {few}"
    fitted = fit(jobs, start_s=start_s, begin=begin, seed=seed)
    text = (
        f"run-time predictor fitted to {fitted.examples} jobs of the earlier part; loss "
        f"{fitted.pinball:.3f} on its last fifth, {fitted.plain:.3f} without looking at the job"
    )
    if learned == "predictor":
        return None, fitted, f"{text}. The orders themselves are the shipped ones"

    bundle, order = fit_order(
        past, model, fitted.predictor, out, minutes=minutes, seed=seed, report=report
    )
    return bundle, fitted, f"{order}; {text}"
