"""One comparison for all: its words, its t, and that its ways to one answer agree."""

import numpy as np
import pytest

from rltuned.lab.compare import Change, Stretches, change_of_mean, geometric, paired
from rltuned.stats import STUDENT, t95, word_of


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (-0.2, -0.1, "better"),
        (0.1, 0.2, "worse"),
        (-0.1, 0.1, "no proven difference"),
        (-0.1, 0.0, "no proven difference"),
        (None, None, "no proven difference"),
    ],
)
def test_an_interval_that_leaves_out_0_is_the_proof(
    low: float | None, high: float | None, word: str
) -> None:
    assert word_of(low, high) == word
    assert Change(1.0, 1.0, 0.0, low, high).word == word


def test_a_change_in_words() -> None:
    assert str(Change(2.0, 1.0, -0.5, -0.6, -0.4)) == "-50.0% [-60.0%, -40.0%]"
    assert str(Change(2.0, 1.0, -0.5)) == "-50.0%"
    assert str(Change(0.0, 1.0, None)) == "as before: no job waited"
    with pytest.raises(ValueError, match=r"no interval is known: -50\.0%"):
        _ = Change(2.0, 1.0, -0.5).known


def test_the_mean_of_ratios_of_repeats_is_that_of_windows() -> None:
    own, base = np.array([50.0, 90.0, 20.0]), np.array([100.0, 100.0, 10.0])
    assert geometric(own, base) == paired(own, base, "bsld").geometric


def test_students_t_beyond_the_table_goes_on_where_it_ends() -> None:
    assert t95(1) == STUDENT[0] == 12.706
    assert t95(9) == 2.262
    assert t95(10) == pytest.approx(2.228, abs=0.005)
    assert t95(30) == pytest.approx(2.042, abs=0.005)
    with pytest.raises(ValueError, match="two repeats"):
        t95(0)


def test_stretches_that_all_change_by_a_tenth_leave_no_doubt() -> None:
    waits = np.random.default_rng(1).exponential(600.0, 100)
    days = Stretches(np.repeat(np.arange(10), 10), 10, 86_400.0)
    assert change_of_mean(waits, 0.9 * waits, days).known == pytest.approx((-0.1, -0.1, -0.1))
    few = Stretches(np.repeat(np.arange(5), 20), 5, 86_400.0)
    assert change_of_mean(waits, 0.9 * waits, few).low is None
