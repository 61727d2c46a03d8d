"""train/environment for Stable-Baselines3, whose many environments have another form.

Needs stable-baselines3, which no extra of rltuned brings.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.spaces.utils import flatten_space
from stable_baselines3.common.vec_env import VecEnv

from rltuned.lab.kernel.compiler import BoolArray, Float32Array
from rltuned.lab.train.environment import QueueVectorEnv

Indices = int | Iterable[int] | None


class QueueVecEnv(VecEnv):
    """Many queues. An observation is flat: slots x (NUM_FEATURES + 1) numbers."""

    def __init__(self, queues: QueueVectorEnv) -> None:
        seen, done = queues.single_observation_space, queues.single_action_space
        self._queues = queues  # whose attributes are asked for at once
        super().__init__(queues.num_envs, flatten_space(seen), done)
        self._actions: Float32Array = np.zeros(queues.action_space.shape or (), dtype=np.float32)

    def reset(self) -> Float32Array:
        rows, _ = self._queues.reset(seed=self._seeds[0])
        self._reset_seeds()
        return self._flat(rows)

    def step_async(self, actions: Float32Array) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Float32Array, Float32Array, BoolArray, list[dict[str, Any]]]:
        rows, rewards, done, _, found = self._queues.step(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for number in np.flatnonzero(done).tolist():
            wait_s = float(found["final_info"]["mean_wait_s"][number])
            last = found["final_obs"][number].ravel()
            infos[number] = {"terminal_observation": last, "mean_wait_s": wait_s}
        return self._flat(rows), rewards.astype(np.float32), done, infos

    def close(self) -> None:
        self._queues.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        return [getattr(self._queues, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:  # noqa: ARG002
        raise AttributeError(f"{attr_name}: all queues are one object, made as they are to be")

    def env_method(self, method_name: str, *_: Any, **__: Any) -> list[Any]:
        raise AttributeError(f"{method_name}: all queues are one object, none has methods")

    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:  # noqa: ARG002
        return [False for _ in self._get_indices(indices)]

    @staticmethod
    def _flat(rows: Float32Array) -> Float32Array:
        return rows.reshape(len(rows), -1)
