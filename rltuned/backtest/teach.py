"""Learn from the earlier part, so as to judge on the later one: predictor, or predictor and order.

Only jobs that had ended when rltuned is switched on teach; who still ran then has no run time yet.
"""

from pathlib import Path
from typing import Literal

from rltuned.backtest.lesson import Report, Taught
from rltuned.backtest.past import Past
from rltuned.train.predictor import FEWEST_JOBS

Lesson = Literal["none", "predictor", "full"]


def teach(
    lesson: Lesson,
    past: Past,
    model: Path,
    out: Path,
    *,
    minutes: float,
    seed: int,
    report: Report = lambda _part: None,
) -> Taught:
    """Write a bundle for this site.

    Args:
        lesson: nothing; the run-time predictor; or the order as well, by PPO from the model's.
        past: its earlier part is learned from.
        model: the bundle to begin from; its network must read predictions.
        out: folder of the new one; must not exist.
        minutes: the longest that PPO may take (`full`); an epoch that began is finished.
        seed: of weights, windows and noise.
        report: see Report.

    Raises:
        ModelError: a bundle cannot be used or written.
    """
    jobs = past.known()
    if lesson == "none":
        return Taught(None, "nothing was learned from the earlier part (--train none)")
    if len(jobs) < FEWEST_JOBS:
        return Taught(
            None,
            f"nothing was learned: {len(jobs)} jobs had ended before the switch, {FEWEST_JOBS} are "
            "needed",
        )
    if lesson == "full":
        from rltuned.backtest.order import learn_order  # noqa: PLC0415 - brings numba

        return learn_order(jobs, past, model, out, minutes=minutes, seed=seed, report=report)
    from rltuned.train.run import refit  # noqa: PLC0415 - brings numba

    fitted = refit(model, out, jobs, "the earlier part", seed)
    return Taught(
        out,
        f"run-time predictor of {model.name} fitted to {fitted.examples} jobs of the earlier part; "
        f"loss {fitted.pinball:.4f} on its last fifth, {fitted.plain:.4f} without looking at the "
        "job. The order itself is the shipped one",
    )
