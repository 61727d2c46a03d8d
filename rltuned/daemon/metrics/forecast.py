"""Metrics of the forecast of starts."""

from collections.abc import Callable
from typing import Any, Final

from rltuned.daemon.forecast_status import ForecastStatus
from rltuned.daemon.metrics.table import Read, Row, gauge
from rltuned.daemon.report import CycleReport


def _of(value: Callable[[ForecastStatus], Any]) -> Read:
    """A value of the status; None while it is not known."""

    def read(report: CycleReport) -> Any:
        return None if report.forecast is None else value(report.forecast)

    return read


FORECAST: Final[tuple[Row, ...]] = (
    gauge(
        "rltuned_forecast_timestamp_seconds",
        "Unix time of the poll of which the last forecast was made.",
        _of(lambda status: status.at),
    ),
    gauge(
        "rltuned_forecast_jobs",
        "Waiting jobs with an expected start in the last forecast.",
        _of(lambda status: status.jobs),
    ),
    gauge(
        "rltuned_forecast_duration_seconds",
        "Wall time of the process that made the last forecast, at idle priority.",
        _of(lambda status: status.seconds),
    ),
    gauge(
        "rltuned_forecast_coverage_ratio",
        "Share of the last 500 real starts that lay within the interval that was shown; 0.8 is "
        "meant.",
        _of(lambda status: status.coverage),
    ),
    gauge(
        "rltuned_forecast_error_seconds",
        "Median distance of the last 500 real starts from the median that was expected.",
        _of(lambda status: status.error_s),
    ),
)
