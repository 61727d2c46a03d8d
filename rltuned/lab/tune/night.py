"""What a night is asked, what comes of it, and how a record is split by time."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.errors import TooLittleError
from rltuned.lab.backtest.calibration import Calibration
from rltuned.lab.backtest.past import FEWEST, Past
from rltuned.lab.compare import Comparison
from rltuned.lab.replay.play import Played
from rltuned.lab.stats import DAY_S
from rltuned.lab.train.predictor import Fitted
from rltuned.lab.train.ranks import ALONE, Ranks
from rltuned.lab.tune.candidates import Choice, Entrant
from rltuned.lab.tune.promise import Power, Promise
from rltuned.policies.predictor import Predictor

FEWEST_ENDED: Final = 1_000
LONGEST_GAP_S: Final = 2 * DAY_S
TRAINING_SPLIT: Final = 0.5
"""Part of the training period that predictors and networks learn from, while stretches are chosen
on the rest. The predictor that is tested is fitted to the whole training period."""
Figures = tuple[float, float, float]
"""Mean, 99% and longest wait, seconds."""


@dataclass(frozen=True, slots=True)
class NightPlan:
    """How the night is to be spent.

    test_days, minutes: of its test period, and its time. networks: bundles to begin from, the
    incumbent's own or the shipped one. shipped: predictor. learn: whether run times are predicted
    at all. work: a folder for what is trained. seed: of the training. imitate: PPO begins from a
    network that imitates the site's own Slurm. ranks: those of the training, of which this is the
    first. default: the order without a generation, which may take the place of the one in force;
    None = it is in force.
    """

    test_days: float
    minutes: float
    shipped: Predictor
    networks: tuple[Path, ...]
    work: Path
    promise: Promise = field(default_factory=Promise)
    learn: bool = True
    seed: int = 1
    imitate: bool = False
    ranks: Ranks = ALONE
    default: Entrant | None = None


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """A family's best on the training period and on the test period.

    test: against the incumbent; None = it was not played. why: it is not taken; empty = it is.
    """

    choice: Choice
    test: Comparison | None = None
    figures: Figures | None = None
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Night:
    """What came of it; figures are of the test period.

    taken: the candidate that passed; None = the incumbent is kept. plain: what to know of rules
    and networks, in words. left_out: families that were not played, and why.
    """

    past: Past
    calibration: Calibration
    periods_s: tuple[float, float, float]
    natural: Played
    natural_figures: Figures
    incumbent: Entrant
    incumbent_figures: Figures
    tested: tuple[FamilyResult, ...]
    picked: FamilyResult | None
    taken: Entrant | None
    why: tuple[str, ...]
    power: Power | None
    plain: tuple[str, ...]
    fitted: Fitted | None
    left_out: dict[str, str]
    plays: int


def split_of(past: Past, test_days: float) -> tuple[float, float, float]:
    """When the training period's second part, the gap and the test period begin, seconds since the
    record's begin.

    Raises TooLittleError: the record is too short, or has too few jobs.
    """
    ended = int(np.isfinite(past.ended_s).sum())
    if ended < FEWEST_ENDED:
        raise TooLittleError(f"{ended} jobs have ended; at least {FEWEST_ENDED} are needed")
    # a saved record may go on, with jobs that end, long after the last one came
    test_s = float(past.arrived_s[past.scored].max()) - test_days * DAY_S
    first_s, switch_s, end_s = training_before(past, test_s)
    if end_s - first_s < test_days * DAY_S / 2:
        raise TooLittleError(
            f"the record has {max(end_s - first_s, 0.0) / DAY_S:.1f} days before the test period "
            f"of {test_days:g} days and its gap; at least half as many are needed"
        )
    check_part(past, switch_s, end_s, "training period")
    check_part(past, test_s, math.inf, "test period")
    return switch_s, end_s, test_s


def training_before(past: Past, test_s: float) -> tuple[float, float, float]:
    """When a test period's training period, its second part and the gap begin, seconds since the
    record's begin.

    The gap is as long as the longest run, so that no run time of the training period comes from the
    test period.
    """
    end_s = test_s - min(LONGEST_GAP_S, max(job.duration_s for job in past.jobs))
    first_s = float(past.arrived_s[past.scored].min())
    return first_s, first_s + TRAINING_SPLIT * (end_s - first_s), end_s


def check_part(past: Past, begin_s: float, end_s: float, name: str) -> None:
    """Raises TooLittleError: nothing can be concluded from so few jobs."""
    part = past.scored & (past.arrived_s >= begin_s) & (past.arrived_s < end_s)
    if part.sum() < FEWEST:
        raise TooLittleError(f"{int(part.sum())} jobs in the {name}; at least {FEWEST} are needed")
