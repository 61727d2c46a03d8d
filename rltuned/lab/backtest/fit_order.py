"""Train the shipped order on, on a site's own earlier part, within a stated time."""

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rltuned.lab.backtest.fit import Report
from rltuned.lab.backtest.past import Past
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.ppo import Report as Epoch
from rltuned.lab.train.ppo import beginning_from, perform
from rltuned.lab.train.predictor import foreseen
from rltuned.lab.train.run import Run, Validation
from rltuned.lab.train.settings import PpoSettings
from rltuned.lab.train.sources import DatasetSource
from rltuned.policies.predictor import Predictor

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
        epochs=EPOCHS, batches=BATCHES, entropy=0.0, seed=seed, base="delay", objective="mix",
        window_jobs=size, rollouts=ROLLOUTS, loads=LOADS,
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
            validation=Validation(windows_per_trace=6, window_jobs=size),
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

    def after(done_now: Epoch) -> None:
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
