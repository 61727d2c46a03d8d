"""The test period's arithmetic: chance, power, and what lets an order pass."""

import math
import re

import numpy as np
import pytest

from rltuned.lab.compare import DAY_S, JobScores, Stretches, compared, pooled
from rltuned.lab.tune.night import power_of, verdict
from rltuned.lab.tune.search import Candidate
from rltuned.policies.baselines import BASELINES
from tests.builders import sure

DAYS, A_DAY = 14, 40
DRAW = np.random.default_rng(7)
OF = np.repeat(np.arange(DAYS), A_DAY)
BLOCKS = Stretches(OF, DAYS, DAY_S)


def scores(factor: float, *, noise: float = 0.0, seed: int = 1) -> JobScores:
    """Waits of about an hour times a factor, with noise that is common to a day."""
    draw = np.random.default_rng(seed)
    waits = np.random.default_rng(3).exponential(3_600.0, DAYS * A_DAY)
    waits = waits * factor * np.exp(noise * draw.standard_normal(DAYS))[OF]
    return JobScores(waits, 1.0 + waits / 600.0)


RULE = Candidate(BASELINES["delay"], 0.1, 0.75, DAY_S, None)


def test_equal_orders_differ_by_nothing() -> None:
    one = scores(1.0)
    found = compared(one, one, BLOCKS)
    assert found.objective.known == (0.0, 0.0, 0.0)
    assert not found.is_better
    assert not found.leads


def test_a_tenth_less_wait_on_every_day_is_seen() -> None:
    found = compared(scores(1.0), scores(0.9), BLOCKS)
    assert found.wait.change == pytest.approx(-0.1, abs=1e-3)
    assert found.bsld.change == pytest.approx(-0.0857, abs=2e-3)
    both = 0.9 * (1 + found.bsld.known[0])
    assert found.objective.change == pytest.approx(math.sqrt(both) - 1, abs=1e-3)
    assert found.is_better
    assert verdict(found, RULE, "") == []


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
    assert alike.objective.change == pytest.approx(one.objective.change)
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


def test_of_few_days_there_is_no_interval_and_nothing_passes() -> None:
    few = Stretches(OF // 3, 5, DAY_S)
    found = compared(scores(1.0), scores(0.5), few)
    assert found.objective.low is None
    assert not found.is_better
    assert "an interval needs 6" in verdict(found, RULE, "")[0]


def test_what_may_be_chance_is_kept_and_says_so() -> None:
    found = compared(scores(1.0), scores(0.97, noise=0.3), BLOCKS)
    assert "may be chance" in (why := verdict(found, RULE, "a price"))[0] or "no better" in why[0]
    assert why[1:] == ["a price"]


def test_power_says_how_many_days_and_more_noise_needs_more() -> None:
    calm, wild = (
        sure(power_of(compared(scores(1.0), scores(0.9, noise=n), BLOCKS), 14, 560))
        for n in (0.1, 0.3)
    )
    assert calm.startswith("40 jobs a day; ")
    (five, ten, smallest), (_, more, larger) = (
        [int(n) for n in re.findall(r"(\d+)(?= days to see|%$)", words)] for words in (calm, wild)
    )
    assert five > ten
    assert more > 4 * ten
    assert larger > smallest
    assert power_of(compared(scores(1.0), scores(1.0), BLOCKS), 14, 560) is None
