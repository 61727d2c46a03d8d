"""What a decision looked like, as Prometheus metrics: delays, features, moves, placement.

A value that is not known is NaN, never 0: no job was ranked, or the model's card has no ranges.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np

from rltuned.core.decide import Decision
from rltuned.core.features import COLUMNS, StateMatrix
from rltuned.core.joint import SolveStatus
from rltuned.daemon.metrics.table import Row, counter, gauge, histogram, of

Ranges = Mapping[str, tuple[float, float]]
"""Smallest and largest value of a feature that a model was trained on, by its name in COLUMNS."""

PLACES_BUCKETS: Final = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)
DELAY_AT: Final = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "max": 1.0}
_ROUNDING: Final = 1e-6
"""Features are float32, ranges went through JSON."""


_of: Final = partial(of, "decision")


def _moves(decision: Decision) -> Mapping[str, list[int]]:
    places = [entry.rank_before - entry.rank_after for entry in decision.entries]
    return {"up": [p for p in places if p > 0], "down": [-p for p in places if p < 0]}


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
        "rltuned_feature_outside_training_ratio",
        "Share of the ranked jobs whose feature lies outside the range on the model's card; "
        "NaN = no range is known, or no job was ranked.",
        start=math.nan,
        labels={"feature": COLUMNS},
    ),
    counter(
        "rltuned_joint_placements",
        "Joint placements by how they came about; fell_back = the greedy one stands.",
        _of(lambda decision: decision.joint and {decision.joint.how: 1}),
        labels={"how": SolveStatus},
    ),
)
