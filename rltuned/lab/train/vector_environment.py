"""Many of train/environment.QueueEnv at once, in the compiled simulator.

    name = "rltuned.lab.train.environment:rltuned/Queue-v0"
    gymnasium.make_vec(name, num_envs=64, jobs=64, slots=16)

What is seen, done and rewarded is the same, step by step; tests hold the two equal. A window that
has come to its end is followed by the first observation of another one in the same step. Each
environment draws its windows by a generator of its own; without a trace, the jobs are those of the
first environment's seed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rltuned.errors import TraceError
from rltuned.lab.kernel import loop
from rltuned.lab.kernel.compiler import BoolArray, Float32Array, FloatArray
from rltuned.lab.kernel.network import AGENT
from rltuned.lab.kernel.queue import empty_queue
from rltuned.lab.kernel.ranking import FIXED, NET, NO_EYES
from rltuned.lab.kernel.state import empty_state
from rltuned.lab.replay.orders import in_cycles
from rltuned.lab.replay.play import faults_of, setup_of
from rltuned.lab.replay.prepared import eyes_on
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.environment import (
    REACH,
    TRIES,
    Windows,
    checked,
    nobody_waits,
    spaces_of,
)
from rltuned.policies.baselines import BASELINES
from rltuned.sim.trace import Trace
from rltuned.sim.world import Rules

_NET: Final = NO_EYES.net._replace(kind=AGENT, reach=math.log(REACH))
_HOUR_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class _Episode:
    """A window in play. stops: advances to the next decision. start_s: (n,) is filled by it."""

    stops: Iterator[float]
    start_s: FloatArray
    submit_s: FloatArray

    @property
    def waited_s(self) -> float:
        """What all jobs together have waited at the end. Raises TraceError: one never starts."""
        if np.isnan(self.start_s).any():
            raise TraceError("a job never starts: the nodes it needs are down to the end")
        return float((self.start_s - self.submit_s).sum())


class QueueVectorEnv(VectorEnv[Float32Array, Float32Array, Any]):
    """num_envs of train/environment.QueueEnv, with its other arguments. Raises TraceError: as
    there, or the protocol has joint placement or is not the daemon's cycles.
    """

    def __init__(
        self,
        num_envs: int = 1,
        trace: Trace | None = None,
        *,
        cluster: str = "testbed",
        jobs: int = 256,
        slots: int = 64,
        load: float = 0.9,
        protocol: Protocol | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.num_envs, self._jobs = num_envs, jobs
        self._windows = Windows(trace, cluster, jobs, load, rules)
        self._protocol = protocol or Protocol(mode="cycle")
        if self._protocol.mode != "cycle" or self._protocol.is_joint:
            raise TraceError("many environments at once play cycles without joint placement alone")
        self.single_observation_space, self.single_action_space = spaces_of(slots)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rows = np.zeros((num_envs, *self.single_observation_space.shape), dtype=np.float32)
        self._actions = np.zeros((num_envs, slots), dtype=np.float32)
        self._waited_s, self._counted_s = np.zeros((num_envs, 1)), np.zeros(num_envs)
        self._episodes: list[_Episode] = []
        self._draws: dict[int, np.random.Generator] = {}

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Float32Array, dict[str, Any]]:
        """Submit windows to empty clusters. seed: of all; an int s is s, s + 1, ... options:
        `reset_mask` (num_envs,) bool = only those begin again. Raises ValueError: a list or a mask
        of another length, or a mask of nothing.
        """
        count = self.num_envs
        mask = np.asarray((options or {}).get("reset_mask", np.ones(count, dtype=bool)))
        if mask.shape != (count,) or mask.dtype != np.bool_ or not mask.any():
            raise ValueError(f"reset_mask must be ({count},) of bool with a True in it")
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + number for number in range(count)]
        elif len(seed) == count:
            seeds = list(seed)
        else:
            raise ValueError(f"{len(seed)} seeds for {count} environments")
        if not self._episodes and not mask.all():
            raise ValueError("the first reset must begin all environments")
        for number in np.flatnonzero(mask):
            if seeds[number] is not None or len(self._draws) <= number:
                self._draws[int(number)] = seeding.np_random(seeds[number])[0]
                if number == 0:
                    self._windows.seeded(self._draws[0])
        begun = {int(number): self._begun(int(number)) for number in np.flatnonzero(mask)}
        self._episodes = [begun.get(n) or self._episodes[n] for n in range(count)]
        return self._rows.copy(), {}

    def step(
        self, actions: Float32Array
    ) -> tuple[Float32Array, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Decide in each of them, and let time pass until the next decision there."""
        self._actions[:] = checked(actions, self._actions.shape)
        infos: dict[str, Any] = {}
        ended = [n for n, one in enumerate(self._episodes) if next(one.stops, None) is None]
        waited_s, done = self._waited_s[:, 0] - self._counted_s, np.zeros(self.num_envs, dtype=bool)
        self._counted_s[:] = self._waited_s[:, 0]
        for number in ended:
            whole_s, done[number] = self._episodes[number].waited_s, True
            waited_s[number] += whole_s - self._counted_s[number]
            last = np.zeros(self._rows.shape[1:], dtype=np.float32)
            info = {"final_obs": last, "final_info": {"mean_wait_s": whole_s / self._jobs}}
            infos = self._add_info(infos, info, number)
            self._episodes[number] = self._begun(number)
        rewards = -waited_s / self._jobs / _HOUR_S
        return self._rows.copy(), rewards, done, np.zeros(self.num_envs, dtype=bool), infos

    def _begun(self, number: int) -> _Episode:
        """Another window, at its first decision."""
        for _ in range(TRIES):
            episode = self._episode(number, self._windows.drawn(self._draws[number]))
            if next(episode.stops, None) is not None:
                self._counted_s[number] = 0.0
                return episode
        raise nobody_waits()

    def _episode(self, number: int, window: Scenario) -> _Episode:
        protocol, prepared, submit_s = self._protocol, window.prepared, window.submit_s
        ranking, cycles, _ = in_cycles(
            BASELINES["delay"], window, protocol.knobs, protocol.interval_s
        )
        setup, faults = setup_of(window), faults_of(window)
        state = empty_state(setup.hardware, prepared.shapes, prepared.jobs)
        queue = empty_queue(setup, ranking.key, submit_s, fixed=ranking.rule == FIXED)
        eyes = eyes_on(window.sight, prepared, _NET)
        agent = loop.Agent(self._rows[number], self._actions[number], self._waited_s[number])
        cycles = cycles._replace(rule=NET)
        stops = loop.stops(setup, state, ranking, queue, cycles, eyes, faults, agent)
        return _Episode(stops, state.start_s, submit_s)
