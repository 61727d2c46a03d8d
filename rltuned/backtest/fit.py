"""Fit predictor, or predictor and order, to the earlier part, so as to judge on the later one.

Only jobs that had ended when rltuned is switched on count: one that still ran has no run time yet.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rltuned.backtest.past import Past
from rltuned.train.predictor import FEWEST_JOBS

Report = Callable[[float], None]
"""Called with how much of the time is used, 0..1."""
Lesson = Literal["none", "predictor", "full"]


@dataclass(frozen=True, slots=True)
class FitResult:
    """The bundle that was written (None = none), and a sentence for the report."""

    bundle: Path | None
    text: str


def fit_site(
    lesson: Lesson,
    past: Past,
    model: Path,
    out: Path,
    *,
    minutes: float,
    seed: int,
    report: Report = lambda _part: None,
) -> FitResult:
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
        return FitResult(None, "nothing was learned from the earlier part (--train none)")
    if len(jobs) < FEWEST_JOBS:
        return FitResult(
            None,
            f"nothing was learned: {len(jobs)} jobs had ended before the switch, {FEWEST_JOBS} are "
            "needed",
        )
    if lesson == "full":
        from rltuned.backtest.fit_order import fit_order  # noqa: PLC0415 - brings numba

        return fit_order(jobs, past, model, out, minutes=minutes, seed=seed, report=report)
    from rltuned.train.run import refit  # noqa: PLC0415 - brings numba

    fitted = refit(model, out, jobs, "the earlier part", seed)
    return FitResult(
        out,
        f"run-time predictor of {model.name} fitted to {fitted.examples} jobs of the earlier part; "
        f"loss {fitted.pinball:.4f} on its last fifth, {fitted.plain:.4f} without looking at the "
        "job. The order itself is the shipped one",
    )
