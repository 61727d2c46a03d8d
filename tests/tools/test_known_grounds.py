"""The problems of `make check-learning`: which order is best, and what the check calls passed."""

from dataclasses import replace

import numpy as np
import pytest

from rltuned.lab.replay.prepared import net_of
from rltuned.lab.train.network import TorchActor, network_of
from rltuned.lab.train.rollout import Recorder, play_sampled
from scripts.studies import learning
from scripts.studies.learning import LONGEST, PROBLEMS, Judged, costs, passed, play, trace_of


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_best_order_is_the_best_of_those_that_are_known(name: str) -> None:
    best = costs(name, PROBLEMS[name].best).mean()
    for order in ("fcfs", "sjf", "delay", LONGEST):
        assert best <= costs(name, order).mean() * (1 + 1e-9), order


def test_a_class_is_priced() -> None:
    trace = trace_of("priced", 1)
    assert set(zip(trace.duration_s.tolist(), trace.price.tolist(), strict=True)) == {
        (600.0, 1.0),
        (3_600.0, 20.0),
    }
    assert set(trace_of("shortest", 1).price.tolist()) == {1.0}


def test_the_load_is_what_it_says() -> None:
    for name in PROBLEMS:
        trace = trace_of(name, 3)
        load = trace.duration_s.sum() / trace.submit_s[-1]
        assert load == pytest.approx(learning.LOAD, rel=0.03)


def test_one_gpu_that_is_freed_asks_for_one_choice() -> None:
    net = net_of(network_of(TorchActor("paper", (4, 4))))
    _, kept = play_sampled(trace_of("shortest", 1).cut(0, 300), net, 1, Recorder())
    assert len(kept) == len(kept.now_s) > 100
    waiting = np.diff(kept.first)
    np.testing.assert_array_equal(np.diff(kept.candidate_first), waiting)


def test_a_training_is_judged_against_the_best_order() -> None:
    found = play("shortest", 2, replace(learning.SETTINGS, epochs=2, batches=10))
    fcfs, sjf = (costs("shortest", rule).mean() for rule in ("fcfs", "sjf"))
    assert found.curve[0] == pytest.approx(fcfs / sjf, abs=1e-4)
    assert len(found.curve) == 3
    assert found.low <= found.ratio == found.curve[-1] <= found.high
    assert found.ratio < found.curve[0]


@pytest.mark.parametrize(("high", "code"), [(1.0, 0), (2.0, 1)])
def test_judge_plays_every_problem_with_one_seed(
    monkeypatch: pytest.MonkeyPatch, high: float, code: int
) -> None:
    """`make check-learning`, but for the trainings, which take ten minutes."""
    asked: list[tuple[str, int]] = []

    def played(name: str, seed: int) -> Judged:
        asked.append((name, seed))
        return Judged(1.0, 1.0, high, [1.5, 1.0], 1.0)

    monkeypatch.setattr(learning, "play", played)
    monkeypatch.setattr("sys.argv", ["learning", "--seed", "3"])
    assert learning.main() == code
    assert asked == [(name, 3) for name in PROBLEMS]


def test_the_whole_interval_must_be_within_the_target() -> None:
    found = Judged(1.05, 1.0, 1.10, [], 1.0)
    assert passed("shortest", found)
    assert not passed("shortest", replace(found, high=1.11))
