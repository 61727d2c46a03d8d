"""The Gymnasium environment, and the example of docs/write-a-policy.md that learns in it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import seeding
from gymnasium.utils.env_checker import check_env

from rltuned.core.features import NUM_FEATURES, Float32Array, FloatArray, StateMatrix, encode
from rltuned.core.order import Wish
from rltuned.core.select import select
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import TraceError
from rltuned.lab.replay.decided import DecidedWorld
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.environment import NAME, REACH, QueueEnv, QueueVectorEnv
from rltuned.policies.baselines import BASELINES
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace
from tests import needs

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "write-a-policy.md"
AGENT = ROOT / "scripts" / "stable_baselines_agent.py"
TRACE = synthesize("testbed-1024", jobs=40, seed=6)


def test_it_is_what_gymnasium_expects() -> None:
    check_env(gymnasium.make(f"rltuned.lab.train.environment:{NAME}", jobs=24, slots=8).unwrapped)


@dataclass(frozen=True)
class Corrected:
    """The rule `delay`, whose first jobs are corrected by (slots,) actions."""

    actions: Float32Array
    name: str = "agent"
    trust: float | None = None

    def score(self, matrix: StateMatrix) -> FloatArray:
        return -self.wish(matrix).own_s

    def wish(self, matrix: StateMatrix) -> Wish:
        rule, factor = BASELINES["delay"].wish(matrix), np.ones(len(matrix))
        count = min(len(matrix), len(self.actions))
        factor[:count] = REACH ** -np.clip(self.actions[:count], -1.0, 1.0)
        return Wish(rule.own_s * factor, rule.place * factor)


class Daemon:
    """A window under the daemon's own decision (core/decide), step by step."""

    def __init__(self, window: Scenario, slots: int) -> None:
        self._decided = DecidedWorld(window.world(), Protocol(mode="cycle"))
        self._jobs, self._slots, self._counted_s = len(window), slots, 0.0
        self.rows = self._seen()

    def step(self, action: Float32Array) -> float:
        """The reward; no due decision any more: the window has come to its end."""
        assert self.due is not None
        self._decided.decide(self.due, Corrected(action))
        self.rows = self._seen()
        waited_s, self._counted_s = self.waited_s - self._counted_s, self.waited_s
        return -waited_s / self._jobs / 3_600.0

    def _seen(self) -> Float32Array:
        world, due = self._decided.world, self._decided.due()
        while due is not None and not self._chosen(due):  # all have only just come
            self._decided.decide(due, BASELINES["delay"])
            due = self._decided.due()
        self.due = due
        running = sum(r.started_at - r.pending.job.submit_s for r in world.running.values())
        ended = sum(f.started_at - f.job.submit_s for f in world.finished.values())
        self.waited_s = running + ended + sum(
            world.now - p.job.submit_s for p in world.pending.values()
        )  # fmt: skip
        seen = np.zeros((self._slots, NUM_FEATURES + 1), dtype=np.float32)
        if due is not None:
            rows = encode(self._chosen(due), due, self._decided.context).values[: self._slots]
            seen[: len(rows), :-1], seen[: len(rows), -1] = rows, 1.0
        return seen

    def _chosen(self, due: Snapshot) -> tuple[PendingJob, ...]:
        return select(due, self._decided.knobs.rules).chosen


def test_it_is_the_daemon_step_by_step() -> None:
    """Wild actions, several windows in a row, more jobs waiting than an agent sees."""
    env = QueueEnv(TRACE, jobs=30, slots=6, load=1.4)
    ground = Scenario.of(preset("testbed"), TRACE.jobs, name="windows").for_networks()
    drawn, draw = seeding.np_random(3)[0], np.random.default_rng(5)
    rows, _ = env.reset(seed=3)
    most = 0
    for _ in range(3):
        window = ground.cut(int(drawn.integers(len(ground) - 30 + 1)), 30, load=1.4)
        daemon = Daemon(window, 6)
        while daemon.due is not None:
            np.testing.assert_array_equal(rows, daemon.rows)
            most = max(most, int(rows[:, -1].sum()))
            action = draw.uniform(-1.2, 1.2, 6).astype(np.float32).round(1)
            rows, reward, done, _, info = env.step(action)
            assert reward == pytest.approx(daemon.step(action), abs=1e-9)
            assert done == (daemon.due is None)
        np.testing.assert_array_equal(rows, daemon.rows)
        assert info["mean_wait_s"] == pytest.approx(daemon.waited_s / 30)
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(action)
        rows, _ = env.reset()
    assert most == 6


def test_many_at_once_are_windows_of_their_own() -> None:
    name = f"rltuned.lab.train.environment:{NAME}"
    envs = gymnasium.make_vec(name, num_envs=3, jobs=24, slots=4)
    assert isinstance(envs, QueueVectorEnv)
    rows, _ = envs.reset(seed=1)
    assert envs.observation_space.contains(rows)
    again, _ = envs.reset(seed=1)
    np.testing.assert_array_equal(again, rows)
    zeros, ended, waits = np.zeros((3, 4), dtype=np.float32), np.zeros(3), []
    while ended.min() < 2:
        rows, _, dones, _, infos = envs.step(zeros)
        assert envs.observation_space.contains(rows)
        ended += dones
        if dones.any():
            waits += infos["final_info"]["mean_wait_s"][dones].tolist()
    assert len(set(waits)) > 3
    with pytest.raises(TraceError, match="in 100 windows no job waits"):
        QueueVectorEnv(1, TRACE, jobs=2, load=1e-6).reset(seed=1)
    with pytest.raises(TraceError, match="cycles without joint placement"):
        QueueVectorEnv(1, protocol=Protocol(mode="event"))


def test_each_environment_has_a_seed_and_can_begin_alone() -> None:
    """As gymnasium.vector.SyncVectorEnv does it: seeds in a list, a mask of those that begin."""
    envs, one = QueueVectorEnv(2, TRACE, jobs=24, slots=4), QueueEnv(TRACE, jobs=24, slots=4)
    rows, _ = envs.reset(seed=[3, 8])
    for number, seed in enumerate((3, 8)):
        np.testing.assert_array_equal(rows[number], one.reset(seed=seed)[0])
    np.testing.assert_array_equal(envs.reset(seed=7)[0][1], rows[1])
    zeros = np.zeros((2, 4), dtype=np.float32)
    later, *_ = envs.step(zeros)
    mask = np.array([False, True])
    masked, _ = envs.reset(seed=[None, 8], options={"reset_mask": mask})
    np.testing.assert_array_equal(masked, np.stack([later[0], rows[1]]))
    one.reset(seed=7)
    for _ in range(2):
        expected, *_ = one.step(zeros[0])
    np.testing.assert_array_equal(envs.step(zeros)[0][0], expected)


@pytest.mark.parametrize(
    ("seed", "mask", "why"),
    [
        ([1], None, "1 seeds for 2"),
        (1, np.zeros(2, dtype=bool), "with a True"),
        (1, np.array([1, 0]), "of bool"),
        (1, np.array([True]), "reset_mask must be"),
        (1, np.array([True, False]), "must begin all"),
    ],
)
def test_a_reset_that_means_nothing_is_refused(seed: Any, mask: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        QueueVectorEnv(2, TRACE, jobs=24, slots=4).reset(
            seed=seed, options=None if mask is None else {"reset_mask": mask}
        )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_no_number_is_no_action(bad: float) -> None:
    one, many = QueueEnv(TRACE, jobs=24, slots=4), QueueVectorEnv(2, TRACE, jobs=24, slots=4)
    one.reset(seed=1)
    rows, _ = many.reset(seed=1)
    actions = np.zeros((2, 4), dtype=np.float32)
    actions[1, 2] = bad
    with pytest.raises(gymnasium.error.InvalidAction, match=r"action \[1, 2\]"):
        many.step(actions)
    with pytest.raises(gymnasium.error.InvalidAction, match=r"action \[2\]"):
        one.step(actions[1])
    with pytest.raises(gymnasium.error.InvalidAction, match=r"shape \(3,\)"):
        one.step(np.zeros(3, dtype=np.float32))
    np.testing.assert_array_equal(many.reset(seed=1)[0], rows)


def test_a_trace_with_fewer_jobs_than_a_window_is_refused() -> None:
    with pytest.raises(TraceError, match="40 jobs of the trace can run: fewer than 41"):
        QueueEnv(Trace(TRACE.jobs, TRACE.notes), jobs=41)


def example(first: str) -> str:
    """The page's example that begins with a line."""
    (code,) = re.findall(rf"```python\n({first}.*?)```", PAGE.read_text(), re.DOTALL)
    return str(code)


def test_the_example_of_the_documentation_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = example("import gymnasium")
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    small = code.replace("= 15, 12, 20", "= 1, 4, 1").replace("jobs=64", "jobs=16")
    assert small.count("1, 4, 1") == small.count("jobs=16") == 1
    monkeypatch.chdir(tmp_path)
    exec(compile(small, str(PAGE), "exec"), {})  # noqa: S102
    weights = np.load(tmp_path / "weights.npy")
    assert np.isfinite(weights).all()
    assert np.any(weights != 0)


def test_the_example_with_stable_baselines_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.module("stable_baselines3")
    code = AGENT.read_text()
    small = code.replace("400_000", "1_024").replace("QueueVectorEnv(64,", "QueueVectorEnv(4,")
    small = small.replace("batch_size=2_048", "batch_size=256")
    assert small.count("1_024") == small.count("Env(4,") == small.count("size=256") == 1
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(small, str(AGENT), "exec"), names)  # noqa: S102
    model, envs = names["model"], names["model"].get_env()
    policy = {"policy_class": names["JobPolicy"]}
    again = type(model).load(tmp_path / "agent", custom_objects=policy)
    envs.seed(1)
    rows = envs.reset()
    assert rows.shape == (4, 16 * 14)
    action, _ = again.predict(rows, deterministic=True)
    np.testing.assert_allclose(action, model.predict(rows, deterministic=True)[0])
    assert np.any(action != 0)
    assert not np.any(action.reshape(4, 16)[rows.reshape(4, 16, 14)[..., -1] == 0])
