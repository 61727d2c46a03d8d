"""Fit predictor, or predictor and order, to the earlier part, so as to judge on the later one.

Only jobs that had ended when rltuned is switched on count: one that still ran has no run time yet.
"""

from collections.abc import Callable
from pathlib import Path

from rltuned.lab.backtest.past import Past
from rltuned.lab.train.predictor import FEWEST_JOBS, Fitted, fit
from rltuned.lab.train.settings import Learned
from rltuned.policies.predictor import Predictor

Report = Callable[[float], None]
"""Called with how much of the time is used, 0..1."""


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
    from rltuned.lab.backtest.fit_order import fit_order  # noqa: PLC0415 - brings numba

    bundle, order = fit_order(
        past, model, fitted.predictor, out, minutes=minutes, seed=seed, report=report
    )
    return bundle, fitted, f"{order}; {text}"
