"""Rewards, alone."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.rollout import cost_at
from rltuned.lab.train.settings import Objective
from rltuned.sim.cluster import preset
from rltuned.sim.trace import TraceJob
from tests.train.worlds import WORKLOAD

SUBMIT = np.array([0.0, 10.0, 20.0])
START = np.array([0.0, 100.0, 25.0])
DURATION = np.array([50.0, 200.0, 2.0])
WINDOW = Scenario.of(
    preset("testbed"),
    [
        TraceJob(str(i), submit_s, run_s, 1, 3_600.0)
        for i, (submit_s, run_s) in enumerate(zip(SUBMIT, DURATION, strict=True))
    ],
)


def at(objective: Objective, *times: float) -> list[float]:
    found: list[float] = cost_at(objective, np.array(times), START, WINDOW).tolist()
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


def test_what_a_second_costs_may_differ_by_job() -> None:
    price = np.array([7.0, 1.0, 20.0])
    window, end = replace(WINDOW, price=price), np.array([np.inf])
    wait_s = START - SUBMIT
    slowdown = np.maximum(1.0, (wait_s + DURATION) / np.maximum(DURATION, 10.0))
    wanted = {
        "wait": price * wait_s,
        "bsld": price * (slowdown - 1.0),
        "jct": price * (wait_s + DURATION),
        "tail": price * wait_s**2,
    }
    for objective, costs in wanted.items():
        found = cost_at(objective, end, START, window)  # type: ignore[arg-type]
        assert found == pytest.approx([costs.mean()]), objective


def test_a_window_has_the_prices_of_its_jobs() -> None:
    priced = replace(WORKLOAD, price=np.arange(float(len(WORKLOAD))))
    assert priced.cut(5, 3).price == pytest.approx([5.0, 6.0, 7.0])
    assert WORKLOAD.cut(5, 3).price == pytest.approx([1.0, 1.0, 1.0])
