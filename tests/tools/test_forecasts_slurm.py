"""How forecasts are held against real starts in the study beside `squeue --start`."""

import pytest

from rltuned.core.starts import Expected, Start
from rltuned.domain.units import JobId
from scripts.studies.forecasts_slurm import Seen, figures, points, starts_in

HOUR = 3_600.0


def start(job: int, low: float, median: float, high: float | None) -> tuple[JobId, Start]:
    high_s = None if high is None else high * HOUR
    return JobId(job), Start(JobId(job), job, low * HOUR, median * HOUR, high_s)


def test_columns_of_squeue_and_sacct_are_read() -> None:
    assert starts_in("12 1700000000\n13 N/A\n14\n") == {12: 1_700_000_000.0}
    assert starts_in("12|1700000000\n13|Unknown\n") == {12: 1_700_000_000.0}


def test_late_jobs_count_and_open_ones_do_not() -> None:
    """Of five jobs one starts in time, one too soon; one is late, one open, one has no start."""
    starts = dict([start(1, 1, 2, 3), start(2, 1, 2, 3), start(3, 1, 2, 3), start(4, 1, 2, None)])
    starts[JobId(5)] = Start(JobId(5), 5, why="never")
    seen = Seen([Expected(0.0, starts)], [-1.0, 1.0], [{1: 10 * HOUR}, {2: 10 * HOUR}])
    found, left = points(seen, {1: 2.5 * HOUR, 2: 0.5 * HOUR}, 4 * HOUR)
    assert [(one.within, one.late) for one in found] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    assert left == 1
    row = figures(found, left, 5)
    assert (row["coverage"], row["sooner"], row["late"]) == pytest.approx((1 / 3, 1 / 3, 1))
    assert (row["planned"], row["plan_error_h"], row["both_error_h"]) == (1 / 3, 7.5, 0.5)
    assert row["error_h"] == 1.5
