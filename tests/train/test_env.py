"""The Gymnasium environment."""

import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv

from rltuned.policies.baselines import BASELINES
from rltuned.sim.engine.orders import at_events
from rltuned.train.env import RewardForm, SchedulingEnv
from rltuned.train.episodes import play_rule
from rltuned.train.reward import OBJECTIVES, Objective
from tests.train.worlds import random_ground

GROUND = random_ground("testbed", 1, 160)


class Forgiving(SchedulingEnv):
    """Takes the nearest legal action: the checker samples actions without a mask."""

    def step(self, action):  # type: ignore[no-untyped-def]
        legal = np.flatnonzero(self._observe()["mask"])
        return super().step(legal[int(action) % len(legal)] if len(legal) else 0)


def test_gymnasium_s_checker_is_content() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(Forgiving(GROUND, size=60, load=1.2), skip_render_check=True)


@pytest.mark.parametrize("form", ["gap", "dense"])
def test_identity_law_the_base_order_gives_the_base_result_and_no_reward(form: RewardForm) -> None:
    for base in ("fcfs", "saf"):
        env = SchedulingEnv(GROUND, base=base, form=form, size=100, load=1.5)
        _, info = env.reset(seed=3)
        key = at_events(base, env.window.stage(), None)[0].key
        total, done = 0.0, False
        while not done:
            desk = env._tables[2]
            legal = np.flatnonzero(env._observe()["mask"])
            best = min(legal, key=lambda at: key[desk.queue[at]])
            _, reward, done, _, info = env.step(best)
            total += reward
        np.testing.assert_array_equal(info["start_s"], env.base_start_s)
        assert abs(total) < 1e-9


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_dense_rewards_sum_to_the_difference(objective: Objective) -> None:
    dense = SchedulingEnv(GROUND, base="saf", objective=objective, form="dense", size=80, load=1.3)
    dense.reset(options={"first": 20})
    draw, total, done = np.random.default_rng(2), 0.0, False
    while not done:
        legal = np.flatnonzero(dense._observe()["mask"])
        obs, reward, done, cut_short, info = dense.step(int(draw.choice(legal)))
        total += reward
        assert dense.observation_space.contains(obs)
        assert not cut_short
    base = dense._cost(dense.base_start_s, np.array([np.inf]))[0]
    own = dense._cost(info["start_s"], np.array([np.inf]))[0]
    first = (base - own) / max(base, 0.01 if objective == "bsld" else 1.0)
    assert total == pytest.approx(first, abs=1e-9)


def test_a_masked_action_is_refused() -> None:
    env = SchedulingEnv(GROUND, size=50)
    obs, _ = env.reset(seed=1)
    with pytest.raises(ValueError, match="no job"):
        env.step(int(np.flatnonzero(obs["mask"] == 0)[0]))


def test_several_run_side_by_side() -> None:
    envs = SyncVectorEnv([lambda: Forgiving(GROUND, size=40, load=1.0) for _ in range(3)])
    observation, _ = envs.reset(seed=1)
    assert observation["jobs"].shape == (3, 256, 8)
    _, rewards, _, _, _ = envs.step(np.zeros(3, dtype=np.int64))
    assert rewards.shape == (3,)


def test_the_base_of_the_env_is_the_rule() -> None:
    env = SchedulingEnv(GROUND, base="wfp3", size=50)
    env.reset(options={"first": 5})
    np.testing.assert_array_equal(env.base_start_s, play_rule(env.window, "wfp3"))
    assert "wfp3" in BASELINES
