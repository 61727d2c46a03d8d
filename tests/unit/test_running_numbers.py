"""The numbers of a kind of job, event by event, worked out by hand."""

import math

import numpy as np
import pytest

from rltuned.core import run_times
from rltuned.core.features import LIMIT_FULL_S
from rltuned.core.run_times import FIELDS, KEYS, KIN, LOG_FULL

OWN = np.full(len(KEYS), -1, dtype=np.int64)
OWN[0], OWN[5] = 0, 2
"""A job of two kinds, in rows 0 and 2 of the table; row 1 is of others."""


def table() -> np.ndarray:
    return np.zeros((3, FIELDS))


def test_jobs_that_run_are_counted_from_start_to_stop() -> None:
    stats = table()
    run_times.note_start(stats, OWN, 100.0)
    run_times.note_start(stats, OWN, 160.0)
    for row in (0, 2):
        assert stats[row, run_times.RUNNING] == 2
        assert stats[row, run_times.STARTED] == 260.0
    run_times.note_stop(stats, OWN, 100.0)
    for row in (0, 2):
        assert stats[row, run_times.RUNNING] == 1
        assert stats[row, run_times.STARTED] == 160.0
    assert not stats[1].any()
    assert not stats[:, run_times.COUNT].any()


def test_an_end_teaches_every_kind_of_the_job() -> None:
    stats = table()
    run_times.note_end(stats, OWN, 3_600.0, LIMIT_FULL_S, 0.5)
    run_times.note_end(stats, OWN, 5 * 3_600.0, 6 * 3_600.0, -0.25)
    first, second = (math.log1p(ran_s) / LOG_FULL for ran_s in (3_600.0, 5 * 3_600.0))
    unused = math.log1p(6 * 3_600.0) / LOG_FULL - second
    wanted = {
        run_times.COUNT: 2.0,
        run_times.WEIGHT: 1.95,
        run_times.TOTAL: 0.95 * first + second,
        run_times.SQUARES: 0.95 * first**2 + second**2,
        run_times.LONG: 1.0,
        run_times.RECENT: 1.7,
        run_times.RECENT_TOTAL: 0.7 * first + second,
        run_times.LAST: second,
        run_times.USED_WEIGHT: 1.0,
        run_times.USED: unused,
        run_times.USED_SQUARES: unused**2,
        run_times.ERRORS: 0.25,
        run_times.ERROR_COUNT: 2.0,
    }
    for row in (0, 2):
        assert dict(enumerate(stats[row])) == pytest.approx(
            dict.fromkeys(range(FIELDS), 0.0) | wanted
        )
    assert not stats[1].any()


def test_what_is_reported_of_a_kind() -> None:
    stats, out = table(), np.zeros(run_times.INPUTS, dtype=np.float32)
    run_times.note_submit(stats, OWN, 1_000.0)
    run_times.note_start(stats, OWN, 1_000.0)
    run_times.note_end(stats, OWN, 600.0, 1_200.0, 0.0)
    run_times.describe(stats, OWN, 4_600.0, LIMIT_FULL_S, 3.0, out)
    request, signs = out[: run_times.REQUEST_SIGNS], out[run_times.REQUEST_SIGNS :]
    assert request == pytest.approx([1.0, 0.0, 0.2, 1.0])
    x, full = math.log1p(600.0) / LOG_FULL, math.log1p(1_200.0) / LOG_FULL
    wanted = [math.log1p(1) / 10, x, x, 0.0, 0.0, x, math.log1p(1) / 10,
              math.log1p(3_600.0) / LOG_FULL, 0.5, full - x, 0.1]  # fmt: skip
    shown = signs.reshape(len(KEYS), run_times.SIGNS)
    assert shown[0] == pytest.approx(wanted, abs=1e-6)
    assert shown[5] == pytest.approx(wanted, abs=1e-6)
    assert not np.delete(shown, [0, 5], axis=0).any()


def test_kin_that_ended_since_the_submission_shift_a_prediction() -> None:
    stats, before = table(), np.zeros((len(KIN), 2))
    run_times.note_end(stats, OWN, 60.0, LIMIT_FULL_S, 3.0)  # before the submission
    run_times.errors_of(stats, OWN, before)
    assert run_times.kin_shift(stats, OWN, before) == 0.0
    for error in (1.0, 2.0):
        run_times.note_end(stats, OWN, 60.0, LIMIT_FULL_S, error)
    assert run_times.kin_shift(stats, OWN, before) == pytest.approx(3.0 / 3.0)
