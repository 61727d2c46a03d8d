"""The numbers of a kind of job, event by event, worked out by hand."""

import math

import numpy as np
import pytest

from rltuned.core import run_times
from rltuned.core.features import LIMIT_FULL_S
from rltuned.core.limits import LIMIT_SUMS, limit_share, note_limit
from rltuned.core.run_times import FIELDS, KEYS, KIN, LOG_FULL, SLOTS

OWN = np.full(SLOTS, -1, dtype=np.int64)
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
    assert dict(enumerate(stats[2][: run_times.BURST])) == pytest.approx(
        dict.fromkeys(range(run_times.BURST), 0.0) | wanted
    )
    assert not stats[1].any()


def test_in_a_shared_kind_a_user_is_one_job_of_its_own_average() -> None:
    stats = table()
    other = np.where(OWN == 2, 1, OWN)
    run_times.note_end(stats, other, 60.0, LIMIT_FULL_S, 0.0)
    for _ in range(500):
        run_times.note_end(stats, OWN, 36_000.0, LIMIT_FULL_S, 0.0)
    short, long = (math.log1p(ran_s) / LOG_FULL for ran_s in (60.0, 36_000.0))
    everyone = stats[0]
    assert everyone[run_times.COUNT] == 501.0
    assert everyone[run_times.WEIGHT] == pytest.approx(1.95, abs=1e-3)
    mean = everyone[run_times.TOTAL] / everyone[run_times.WEIGHT]
    assert mean == pytest.approx((short * 0.95 + long) / 1.95, abs=1e-3)
    run_times.note_end(stats, other, 60.0, LIMIT_FULL_S, 0.0)
    mean = everyone[run_times.TOTAL] / everyone[run_times.WEIGHT]
    assert mean == pytest.approx((short + long) / 2.0, abs=0.01)


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


def sums_of(limit_s: np.ndarray, run_s: np.ndarray) -> np.ndarray:
    sums = np.zeros((1, LIMIT_SUMS))
    for limit, run in zip(limit_s.tolist(), run_s.tolist(), strict=True):
        note_limit(sums, 0, run, limit)
    return sums


@pytest.mark.parametrize(
    ("noise", "jobs", "lowest", "highest"),
    [
        (0.3, 400, 1.0, 1.0),
        (1.35, 4_000, 0.55, 0.95),
        (3.0, 400, 0.5, 0.5),
        (0.3, 99, 0.5, 0.5),
    ],
)
def test_a_limit_counts_more_where_limits_tell_run_times(
    noise: float, jobs: int, lowest: float, highest: float
) -> None:
    draw = np.random.default_rng(3)
    run = draw.normal(7.0, 1.0, jobs)
    limit = run + 1.0 + noise * 0.9 * draw.standard_normal(jobs)
    sums = sums_of(np.exp(limit), np.exp(run))
    assert lowest <= limit_share(sums) <= highest


def test_limits_of_one_value_or_none_say_nothing() -> None:
    run_s = np.random.default_rng(3).lognormal(7.0, 1.0, 400)
    same = sums_of(np.full(400, 86_400.0), run_s)
    assert limit_share(same) == 0.5
    assert not sums_of(np.full(400, LIMIT_FULL_S), run_s).any()


def test_the_limits_of_long_ago_count_no_more() -> None:
    draw = np.random.default_rng(3)
    run_s = draw.lognormal(7.0, 1.0, 8_000)
    limit_s = 2.0 * run_s
    limit_s[3_000:] = draw.lognormal(8.0, 1.0, 5_000)
    assert limit_share(sums_of(limit_s[:3_000], run_s[:3_000])) == 1.0
    assert limit_share(sums_of(limit_s, run_s)) == 0.5


def test_the_plan_lies_between_the_limit_and_what_is_expected() -> None:
    predicted = np.zeros(run_times.SUMMARY)
    predicted[run_times.MEAN], predicted[run_times.HIGH] = math.log(400.0), math.log(900.0)
    for share, wanted_s, unlimited_s in (
        (0.5, 3 * math.sqrt(400 * 3_600), 9_000.0),
        (0.75, 3_600.0, math.sqrt(9_000 * LIMIT_FULL_S)),
        (1.0, 3_600.0, LIMIT_FULL_S),
    ):
        predicted[run_times.LIMIT_SHARE] = share
        assert run_times.plan_s(predicted, 0.0, 3_600.0) == pytest.approx(wanted_s)
        assert run_times.plan_s(predicted, 0.0, LIMIT_FULL_S) == pytest.approx(unlimited_s)


def test_what_a_right_prediction_errs_is_nothing_on_average() -> None:
    draw, predicted = np.random.default_rng(5), np.zeros(run_times.SUMMARY)
    logits = draw.normal(size=run_times.BINS)
    run_times.summarize(logits, LIMIT_FULL_S, predicted)
    share = np.exp(logits) / np.exp(logits).sum()
    bins = draw.choice(run_times.BINS, 20_000, p=share)
    x = draw.uniform(run_times.EDGES[bins], run_times.EDGES[bins + 1])
    errors = [run_times.error_of(math.expm1(one * LOG_FULL), predicted) for one in x.tolist()]
    assert np.mean(errors) == pytest.approx(0.0, abs=0.1)
    assert np.std(errors) > 1.0
