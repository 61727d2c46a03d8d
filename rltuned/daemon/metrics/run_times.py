"""Metrics of what is learned of run times."""

import math
from collections.abc import Callable
from typing import Any, Final

from rltuned.daemon.metrics.table import Read, Row, gauge
from rltuned.daemon.report import CycleReport
from rltuned.daemon.run_times import RunTimesStatus, Source


def _of(value: Callable[[RunTimesStatus], Any]) -> Read:
    """A value of the status; None while nothing is learned."""

    def read(report: CycleReport) -> Any:
        return None if report.run_times is None else value(report.run_times)

    return read


RUN_TIMES: Final[tuple[Row, ...]] = (
    gauge(
        "rltuned_run_times_source",
        "1 for where the memory of run times began: file (of the last daemon), sacct, looks "
        "(empty), loading (not there yet) or off (after errors).",
        _of(lambda status: {status.source: 1}),
        labels={"source": Source},
    ),
    gauge(
        "rltuned_run_times_ends",
        "Ended jobs that the memory of run times has learned from, over all restarts.",
        _of(lambda status: status.ends),
    ),
    gauge(
        "rltuned_run_times_kinds",
        "Kinds of jobs that the memory of run times knows.",
        _of(lambda status: status.kinds),
    ),
    gauge(
        "rltuned_run_times_error",
        "Mean |ln(run time / prediction)| of the last ended jobs; NaN = nothing was predicted.",
        _of(lambda status: math.nan if status.error is None else status.error),
        start=math.nan,
    ),
    gauge(
        "rltuned_run_times_faults",
        "Errors of this process that cost the memory of run times.",
        _of(lambda status: status.faults),
    ),
)
