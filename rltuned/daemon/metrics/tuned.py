"""Metrics of the nightly `rltuned tune`, from what the last night has left."""

import math
from collections.abc import Mapping
from typing import Any, Final

from rltuned.daemon.metrics.table import Row, gauge
from rltuned.policies.tune_state import VERDICTS, TuneState

TUNED: Final[tuple[Row, ...]] = (
    gauge(
        "rltuned_tune_last_verdict_timestamp_seconds",
        "When a night of `rltuned tune` last came to its end, in Unix seconds; 0 = never.",
    ),
    gauge(
        "rltuned_tune_failed_nights",
        "Nights of `rltuned tune` in a row that did not come to their end.",
    ),
    gauge(
        "rltuned_tune_verdict",
        "1 for the verdict of the last night: kept, proposed, promoted, nothing (the record allows "
        "none) or failed.",
        labels={"verdict": VERDICTS},
    ),
    gauge(
        "rltuned_tune_change_ratio",
        "Change of the objective that the last night's winner had in its exam, with its 95% "
        "interval; -0.1 = ten percent less; NaN = there was no winner.",
        labels={"bound": ("low", "mean", "high")},
        start=math.nan,
    ),
)


def values_of(state: TuneState) -> Mapping[str, Any]:
    """By the names of the metrics without their prefix."""
    change = {"low": state.low, "mean": state.change, "high": state.high}
    return {
        "tune_last_verdict_timestamp_seconds": state.ended_at,
        "tune_failed_nights": state.failed,
        "tune_verdict": {state.verdict: 1},
        "tune_change_ratio": {k: math.nan if v is None else v for k, v in change.items()},
    }
