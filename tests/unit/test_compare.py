"""One comparison for all: its words, its t, and that its ways to one answer agree."""

import math

import numpy as np
import pytest

from rltuned.lab.compare import (
    DAY_S,
    Change,
    JobScores,
    Stretches,
    change_of_mean,
    compared,
    geometric,
    paired,
    pooled,
)
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


DAYS, A_DAY = 14, 40
OF = np.repeat(np.arange(DAYS), A_DAY)
BLOCKS = Stretches(OF, DAYS, DAY_S)


def scores(factor: float, *, noise: float = 0.0, seed: int = 1) -> JobScores:
    """Waits of about an hour times a factor, with noise that is common to a day."""
    draw = np.random.default_rng(seed)
    waits = np.random.default_rng(3).exponential(3_600.0, DAYS * A_DAY)
    waits = waits * factor * np.exp(noise * draw.standard_normal(DAYS))[OF]
    return JobScores(waits, 1.0 + waits / 600.0)


def test_a_tenth_less_wait_on_every_day_is_seen() -> None:
    found = compared(scores(1.0), scores(0.9), BLOCKS)
    assert found.wait.change == pytest.approx(-0.1, abs=1e-3)
    assert found.bsld.change == pytest.approx(-0.0857, abs=2e-3)
    both = 0.9 * (1 + found.bsld.known[0])
    assert found.objective.change == pytest.approx(math.sqrt(both) - 1, abs=1e-3)
    assert found.is_better


def test_chance_alone_passes_no_more_often_than_the_interval_says() -> None:
    """Both orders are the same but for noise that a day has in common."""
    passed = sum(
        compared(scores(1.0, noise=0.2, seed=2 * n), scores(1.0, noise=0.2, seed=2 * n + 1),
                   BLOCKS).is_better
        for n in range(400)
    )  # fmt: skip
    assert 0 < passed <= 400 * 0.06  # 2.5% if days were many; the bootstrap of 14 is a bit narrow


def test_copies_that_disagree_widen_the_interval_and_those_that_agree_do_not() -> None:
    base = scores(1.0)
    one = compared(base, scores(0.9), BLOCKS)
    alike = pooled([one] * 5)
    assert alike.objective.known == pytest.approx(one.objective.known, abs=1e-3)
    assert alike.is_better
    apart = pooled([compared(base, scores(f), BLOCKS) for f in (0.6, 0.8, 0.9, 1.1, 1.2)])
    _, low, high = apart.objective.known
    assert low < -0.2
    assert high > 0.0
    assert not apart.is_better
    assert pooled([one]) == one


def test_a_world_in_which_one_late_end_moves_everything_passes_seldom() -> None:
    """Copies of the same two orders differ by a fifth, whole fortnights at a time."""
    draw = np.random.default_rng(5)
    passed = alone = 0
    for _ in range(100):
        copies = [
            compared(scores(1.0), scores(math.exp(0.2 * draw.standard_normal())), BLOCKS)
            for _ in range(5)
        ]
        passed += pooled(copies).is_better
        alone += copies[0].is_better
    assert alone > 30
    assert passed <= 6
