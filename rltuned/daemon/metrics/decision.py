"""What a decision looked like, as Prometheus metrics: delays, features, moves, placement.

A value that is not known is NaN, never 0: no job was ranked, or the model's card has no ranges.
"""

import math
from collections import Counter as Tally
from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np

from rltuned.core.decide import Decision
from rltuned.core.features import COLUMNS, StateMatrix
from rltuned.core.joint import SolveStatus
from rltuned.core.milp import KINDS
from rltuned.daemon.metrics.table import Row, counter, gauge, histogram, of

Ranges = Mapping[str, tuple[float, float]]
"""Smallest and largest value of a feature that a model was trained on, by its name in COLUMNS."""

PLACES_BUCKETS: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
SOLVE_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
DELAY_AT: Final = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
FEATURE_AT: Final = {"min": 0.0, "median": 0.5, "max": 1.0}
SHARE, WAIT = "share", "wait"
"""Verdicts on a job that is to share its nodes, and on one that does not start now."""
_ROUNDING: Final = 1e-6
"""Features are float32, ranges went through JSON."""


_of: Final = partial(of, "decision")


def _moves(decision: Decision) -> Mapping[str, list[int]]:
    places = [entry.rank_before - entry.rank_after for entry in decision.entries]
    return {"up": [p for p in places if p > 0], "down": [-p for p in places if p < 0]}


def _features(decision: Decision) -> Mapping[tuple[str, str], float]:
    return {
        (feature, at): _quantile(decision.matrix.column(feature), share)
        for feature in COLUMNS
        for at, share in FEATURE_AT.items()
    }


def outside(matrix: StateMatrix, ranges: Ranges) -> Mapping[str, float] | None:
    """Share of the ranked jobs outside the range, by feature; None = none was ranked."""
    if not len(matrix.jobs):
        return None
    found = {}
    for feature, (low, high) in ranges.items():
        values = matrix.column(feature)
        beyond = (values < low - _ROUNDING) | (values > high + _ROUNDING)
        found[feature] = float(beyond.mean())
    return found


def _verdicts(decision: Decision) -> Mapping[str, int] | None:
    if decision.joint is None:
        return None
    return Tally(SHARE if v.shared else v.kind or WAIT for v in decision.joint.verdicts)


def _quantile(values: np.ndarray, share: float) -> float:
    """NaN of nothing."""
    return float(np.quantile(values, share)) if len(values) else math.nan


DECISION: Final[tuple[Row, ...]] = (
    histogram(
        "rltuned_rank_displacement_places",
        "Places between Slurm's order and the new one, of the jobs of each decision that "
        "stand elsewhere, by direction.",
        _of(_moves),
        buckets=PLACES_BUCKETS,
        labels={"direction": ("up", "down")},
    ),
    gauge(
        "rltuned_delay_seconds",
        "Delays of the ranked jobs in the last decision: smallest, quartiles, largest; NaN = "
        "none was ranked.",
        _of(lambda d: {at: _quantile(d.delays.delay_s, q) for at, q in DELAY_AT.items()}),
        start=math.nan,
        labels={"at": DELAY_AT},
    ),
    gauge(
        "rltuned_neutral_delay_seconds",
        "The delay that a job without a number of rltuned's stands for.",
        _of(lambda decision: decision.neutral and decision.neutral.delay_s),
    ),
    gauge(
        "rltuned_max_delay_seconds",
        "The longest delay that the settings allow.",
        _of(lambda decision: decision.order.max_delay_s),
    ),
    gauge(
        "rltuned_bounded_jobs",
        "Jobs of the last decision whose delay a bound keeps below what the policy wished.",
        _of(lambda decision: decision.delays.clipped),
    ),
    gauge(
        "rltuned_feature_ratio",
        "Features of the ranked jobs in the last decision, on their scale of 0 to 1; NaN = "
        "none was ranked.",
        _of(_features),
        start=math.nan,
        labels={"feature": COLUMNS, "at": FEATURE_AT},
    ),
    gauge(
        "rltuned_feature_outside_training_ratio",
        "Share of the ranked jobs whose feature lies outside the range on the model's card; "
        "NaN = no range is known, or no job was ranked.",
        start=math.nan,
        labels={"feature": COLUMNS},
    ),
    gauge(
        "rltuned_jobs_placed",
        "Jobs at the head of the new order that would fit on free nodes now.",
        _of(lambda decision: len(decision.placements)),
    ),
    counter(
        "rltuned_joint_placements",
        "Joint placements by how they came about; fell_back = the greedy one stands.",
        _of(lambda decision: decision.joint and {decision.joint.how: 1}),
        labels={"how": SolveStatus},
    ),
    histogram(
        "rltuned_milp_solve_duration_seconds",
        "Wall time of the solver, its failures included.",
        buckets=SOLVE_BUCKETS_S,
    ),
    gauge(
        "rltuned_placement_verdicts",
        "Jobs of the last joint placement by what it says; share = to share its nodes, wait = no "
        "start now.",
        _of(_verdicts),
        labels={"verdict": (*KINDS, SHARE, WAIT)},
    ),
)
