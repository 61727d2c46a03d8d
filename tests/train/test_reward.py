"""Rewards, alone."""

from typing import get_args

import numpy as np
import pytest

from rltuned.train.reward import Objective, Work, cost_at

SUBMIT = np.array([0.0, 10.0, 20.0])
START = np.array([0.0, 100.0, 25.0])
DURATION = np.array([50.0, 200.0, 2.0])


def at(objective: Objective, *times: float) -> list[float]:
    found: list[float] = cost_at(
        objective, np.array(times), START, Work(SUBMIT, DURATION, DURATION)
    ).tolist()
    return found


def test_totals_are_the_metrics() -> None:
    wait = START - SUBMIT
    slowdown = np.maximum(1.0, (wait + DURATION) / np.maximum(DURATION, 10.0))
    assert at("wait", np.inf) == pytest.approx([wait.mean()])
    assert at("bsld", np.inf) == pytest.approx([slowdown.mean() - 1.0])
    assert at("jct", np.inf) == pytest.approx([(wait + DURATION).mean()])
    assert at("utilisation", np.inf) == [300.0]


def test_costs_grow_while_somebody_waits() -> None:
    assert at("wait", 0.0, 10.0, 20.0, 25.0, 100.0) == pytest.approx(
        [0.0, 0.0, 10 / 3, 20 / 3, 95 / 3]
    )


@pytest.mark.parametrize("objective", get_args(Objective))
def test_dense_rewards_sum_to_the_metric(objective: Objective) -> None:
    times = np.sort(np.random.default_rng(1).uniform(0, 300, 20))
    costs = np.array(at(objective, *times, np.inf))
    assert (np.diff(costs) >= -1e-12).all()
    assert costs[0] + np.diff(costs).sum() == pytest.approx(costs[-1])
