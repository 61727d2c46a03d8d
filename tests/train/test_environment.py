"""The Gymnasium environment, and the example of docs/write-a-policy.md that learns in it."""

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rltuned.errors import TraceError
from rltuned.lab.replay.decided import play_decided
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.reshape import scale
from rltuned.lab.train.environment import NAME, QueueEnv
from rltuned.policies.baselines import BASELINES
from rltuned.sim.presets import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace

PAGE = Path(__file__).parents[2] / "docs" / "write-a-policy.md"
TRACE = synthesize("testbed-1024", jobs=40, seed=6)


def test_it_is_what_gymnasium_expects() -> None:
    check_env(gymnasium.make(f"rltuned.lab.train.environment:{NAME}", jobs=24, slots=8).unwrapped)


def test_without_corrections_it_is_the_rule_delay_and_the_return_its_mean_wait() -> None:
    env = QueueEnv(TRACE, jobs=len(TRACE.jobs), slots=16)
    rows, _ = env.reset(seed=1)
    total, steps, done = 0.0, 0, False
    while not done:
        assert env.observation_space.contains(rows)
        assert rows[0, -1] == 1.0
        rows, reward, done, _, info = env.step(np.zeros(16, dtype=np.float32))
        total, steps = total + reward, steps + 1
    cluster = preset("testbed")
    window = scale(TRACE, 0.9, cluster.gpus)
    world = play_decided(cluster, window.jobs, BASELINES["delay"], Protocol(mode="cycle")).world
    waits = [f.started_at - f.job.submit_s for f in world.finished.values()]
    assert info["mean_wait_s"] == pytest.approx(np.mean(waits))
    assert total * 3_600 == pytest.approx(-np.mean(waits))
    assert np.mean(waits) > 0
    assert steps > 10
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(16, dtype=np.float32))


def test_an_agent_can_change_the_order() -> None:
    found = []
    for sign in (1.0, -1.0):
        env = QueueEnv(TRACE, jobs=len(TRACE.jobs), slots=16)
        rows, _ = env.reset(seed=1)
        done = False
        while not done:
            # by the time limit, which the second column shows
            action = sign * (1.0 - 2.0 * rows[:, 1])
            rows, _, done, _, info = env.step(action.astype(np.float32))
        found.append(info["mean_wait_s"])
    assert found[0] < found[1]


def test_windows_are_drawn_by_the_seed_and_from_the_trace() -> None:
    env = QueueEnv(TRACE, jobs=20, slots=4)
    first, again, other = (env.reset(seed=s)[0] for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    with pytest.raises(TraceError, match="40 jobs of the trace can run: fewer than 41"):
        QueueEnv(Trace(TRACE.jobs, TRACE.notes), jobs=41)


def test_the_example_of_the_documentation_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = re.findall(r"```python\n(import gymnasium.*?)```", PAGE.read_text(), re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    small = code.replace("= 15, 12, 3", "= 1, 4, 1").replace("jobs=64", "jobs=16")
    assert small.count("1, 4, 1") == small.count("jobs=16") == 1
    monkeypatch.chdir(tmp_path)
    exec(compile(small, str(PAGE), "exec"), {})  # noqa: S102
    weights = np.load(tmp_path / "weights.npy")
    assert np.isfinite(weights).all()
    assert np.any(weights != 0)
