"""The grounds of `make check-learning`: which order is best, and what the check calls passed."""

from dataclasses import replace

import numpy as np
import pytest

from rltuned.lab.replay.prepared import net_of
from rltuned.lab.train.network import TorchActor, network_of
from rltuned.lab.train.ppo import Report
from rltuned.lab.train.rollout import Recorder, play_sampled
from scripts.studies import learning
from scripts.studies.learning import GROUNDS, LONGEST, Run, ground_of, held_out_of, passed, play


@pytest.mark.parametrize("name", GROUNDS)
def test_the_best_order_is_the_best_of_those_that_are_known(name: str) -> None:
    kind = GROUNDS[name]
    held_out = held_out_of(name)
    best = held_out.costs(kind.best).mean()
    for order in ("fcfs", "sjf", "delay", LONGEST):
        assert best <= held_out.costs(order).mean() * (1 + 1e-9), order


def test_a_class_is_priced() -> None:
    ground = ground_of("priced", 1)
    assert set(zip(ground.duration_s.tolist(), ground.price.tolist(), strict=True)) == {
        (600.0, 1.0),
        (3_600.0, 20.0),
    }
    assert set(ground_of("shortest", 1).price.tolist()) == {1.0}


def test_the_load_is_what_it_says() -> None:
    for name in GROUNDS:
        ground = ground_of(name, 3)
        load = ground.duration_s.sum() / ground.submit_s[-1]
        assert load == pytest.approx(learning.LOAD, rel=0.03)


def test_one_gpu_that_is_freed_asks_for_one_choice() -> None:
    net = net_of(network_of(TorchActor("paper", (4, 4))))
    _, kept = play_sampled(ground_of("shortest", 1).cut(0, 300), net, 1, Recorder())
    assert len(kept) == len(kept.now_s) > 100
    waiting = np.diff(kept.first)
    np.testing.assert_array_equal(np.diff(kept.candidate_first), waiting)


def test_a_training_is_judged_against_the_best_order(monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(learning.DEFAULT, epochs=2, batches=10)
    monkeypatch.setattr(learning, "RECIPES", {"short": (short, ("shortest",))})
    seen: list[Report] = []
    row = play(Run("shortest", "short", 2), seen.append)
    held_out = held_out_of("shortest")
    curve = learning._curve(row)
    assert curve[0] == pytest.approx(
        held_out.costs("fcfs").mean() / held_out.costs("sjf").mean(), abs=1e-4
    )
    assert len(curve) == 3
    assert len(seen) == 2
    assert row["low"] <= row["ratio"] == curve[-1] <= row["high"]
    assert row["ratio"] < curve[0]


@pytest.mark.parametrize(("high", "code"), [(1.0, 0), (2.0, 1)])
def test_judge_plays_every_problem_with_one_seed(
    monkeypatch: pytest.MonkeyPatch, high: float, code: int
) -> None:
    """`make check-learning`, but for the trainings, which take ten minutes."""
    asked: list[tuple[str, int]] = []

    def played(run: Run, _told: object) -> dict[str, object]:
        asked.append((run.ground, run.seed))
        figures = {"ratio": 1.0, "low": 1.0, "high": high, "curve": [1.5, 1.0], "cpu_s": 1.0}
        return {"ground": run.ground, **figures}

    monkeypatch.setattr(learning, "play", played)
    monkeypatch.setattr("sys.argv", ["learning", "judge", "--train-seed", "3"])
    with pytest.raises(SystemExit) as ended:
        learning.main()
    assert ended.value.code == code
    assert asked == [(name, 3) for name in GROUNDS]


def test_the_whole_interval_must_be_within_the_target() -> None:
    row = {"ground": "shortest", "low": 1.0, "ratio": 1.05, "high": 1.10}
    assert passed(row)  # type: ignore[arg-type]
    assert not passed(row | {"high": 1.11})  # type: ignore[arg-type]
