"""The daemon's decision as a Gymnasium environment: one step is one cycle with a waiting queue.

    name = "rltuned.lab.train.environment:rltuned/Queue-v0"
    gymnasium.make(name, cluster="testbed", load=0.9)
    gymnasium.make_vec(name, num_envs=64, jobs=64, slots=16)

An agent learns here as it would act in production: what it sees is what the daemon sees, and what
it asks is bounded, compared with what was written, and written, as the daemon's own decision does
it (core/decide); the simulator is the compiled one. Needs gymnasium (`rltuned[gym]`).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rltuned.core.features import NUM_FEATURES
from rltuned.errors import TraceError
from rltuned.lab.kernel import loop
from rltuned.lab.kernel.compiler import BoolArray, Float32Array, FloatArray
from rltuned.lab.kernel.features import AGENT
from rltuned.lab.kernel.ranking import FIXED, NET, NO_EYES
from rltuned.lab.kernel.state import empty_queue, empty_state
from rltuned.lab.replay.orders import in_cycles
from rltuned.lab.replay.play import faults_of, setup_of
from rltuned.lab.replay.prepared import eyes_on
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import possible
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.baselines import BASELINES
from rltuned.sim.cluster import cluster_named
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace
from rltuned.sim.world import Rules

NAME: Final = "rltuned/Queue-v0"
REACH: Final = 8.0
"""An action of 1 divides a job's delay by so much, one of -1 multiplies it."""
MADE_WINDOWS, MADE_JOBS = 16, 4_096
"""Without a trace, so many windows' jobs are made for a seed, and at least so many jobs."""
TRIES: Final = 100
"""So many windows in a row in which no job waits are no task."""
_NET: Final = NO_EYES.net._replace(kind=AGENT, reach=math.log(REACH))
_HOUR_S: Final = 3_600.0


class QueueVectorEnv(VectorEnv[Float32Array, Float32Array, Any]):
    """Windows of a trace on simulated clusters, each from the first submission to the last start.

    Observation: (num_envs, slots, NUM_FEATURES + 1) float32 in [0, 1]: a row of features
    (core/features) for each of the first waiting jobs, oldest first, with 1 in the last column;
    rows of zeros after them. Action: (num_envs, slots) float32 in [-1, 1], higher = sooner,
    corrects the rule `delay` for those jobs; the others keep the rule's delay. Reward: minus the
    time waited since the last step, as a part of the window's jobs and in hours, so that an
    episode's return is minus its mean wait in hours. The last info has `mean_wait_s`.

    A window that has come to its end is followed by the first observation of another one in the
    same step. Each environment draws its windows by a generator of its own; without a trace, the
    jobs are those of the first environment's seed.

    num_envs: windows at once. trace: whose windows are played; None = jobs like those of RLTune's
    testbed, made for each seed. cluster: a preset's name or a cluster file. jobs: of a window.
    slots: how many waiting jobs an agent sees. load: GPU demand as a part of the cluster's GPUs.
    protocol: interval and the daemon's settings. rules: backfill, placement and priorities of the
    simulated Slurm.

    Raises TraceError: the cluster cannot be used, the trace is shorter than a window, no job ever
    waits, or the protocol has joint placement or is not the daemon's cycles.
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
        self.num_envs, self._jobs, self._load = num_envs, jobs, load
        self._protocol = protocol or Protocol(mode="cycle")
        if self._protocol.mode != "cycle" or self._protocol.is_joint:
            raise TraceError("an environment plays cycles without joint placement alone")
        self._cluster, self._rules = cluster_named(cluster), rules
        # what windows are cut from; without a trace there is none before the first reset
        self._ground = None if trace is None else self._prepared(trace)
        self._made = trace is None
        shape = (slots, NUM_FEATURES + 1)
        self.single_observation_space = spaces.Box(0.0, 1.0, shape, np.float32)
        self.single_action_space = spaces.Box(-1.0, 1.0, (slots,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rows = np.zeros((num_envs, *shape), dtype=np.float32)
        self._actions = np.zeros((num_envs, slots), dtype=np.float32)
        self._waited_s, self._counted_s = np.zeros((num_envs, 1)), np.zeros(num_envs)
        # of each window: what advances to its next decision, its starts (n,) so far, its submits
        self._episodes: dict[int, tuple[Iterator[float], FloatArray, FloatArray]] = {}
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
        if not self._episodes and not mask.all():
            raise ValueError("the first reset must begin all environments")
        seeds = _each(seed, count)
        if len(seeds) != count:
            raise ValueError(f"{len(seeds)} seeds for {count} environments")
        for number in np.flatnonzero(mask).tolist():
            if seeds[number] is not None or number not in self._draws:
                draw = self._draws[number] = seeding.np_random(seeds[number])[0]
                if number == 0 and self._made:
                    jobs = max(MADE_WINDOWS * self._jobs, MADE_JOBS)
                    drawn = int(draw.integers(2**31))
                    made = synthesize("testbed-1024", jobs=jobs, seed=drawn)
                    self._ground = self._prepared(made)
            self._begin(number)
        return self._rows.copy(), {}

    def step(
        self, actions: Float32Array
    ) -> tuple[Float32Array, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Decide in each of them, and let time pass until the next decision there."""
        self._actions[:] = _checked(actions, self._actions.shape)
        infos: dict[str, Any] = {}
        done = np.array([next(self._episodes[n][0], None) is None for n in range(self.num_envs)])
        waited_s = self._waited_s[:, 0] - self._counted_s
        self._counted_s[:] = self._waited_s[:, 0]
        for number in np.flatnonzero(done).tolist():
            _, start_s, submit_s = self._episodes[number]
            whole_s = float((start_s - submit_s).sum())
            if math.isnan(whole_s):
                raise TraceError("a job never starts: the nodes it needs are down to the end")
            waited_s[number] += whole_s - self._counted_s[number]
            last = np.zeros(self._rows.shape[1:], dtype=np.float32)
            info = {"final_obs": last, "final_info": {"mean_wait_s": whole_s / self._jobs}}
            infos = self._add_info(infos, info, number)
            self._begin(number)
        rewards = -waited_s / self._jobs / _HOUR_S
        return self._rows.copy(), rewards, done, np.zeros(self.num_envs, dtype=bool), infos

    def _begin(self, number: int) -> None:
        """Another window, at its first decision."""
        draw, ground, protocol = self._draws[number], self._ground, self._protocol
        assert ground is not None, "the first reset prepares it"  # noqa: S101
        for _ in range(TRIES):
            first = int(draw.integers(len(ground) - self._jobs + 1))
            window = ground.cut(first, self._jobs, load=self._load)
            prepared, setup = window.prepared, setup_of(window)
            ranking, cycles, _ = in_cycles(
                BASELINES["delay"], window, protocol.knobs, protocol.interval_s
            )
            state = empty_state(setup.hardware, prepared.shapes, prepared.jobs)
            fixed = ranking.rule == FIXED
            queue = empty_queue(setup, ranking.key, window.submit_s, fixed=fixed)
            eyes = eyes_on(window.sight, prepared, _NET)
            agent = loop.Agent(self._rows[number], self._actions[number], self._waited_s[number])
            cycles = cycles._replace(rule=NET)
            faults = faults_of(window)
            stops = loop.stops(setup, state, ranking, queue, cycles, eyes, faults, agent)
            if next(stops, None) is not None:
                self._counted_s[number] = 0.0
                self._episodes[number] = stops, state.start_s, window.submit_s
                return
        raise TraceError(f"in {TRIES} windows no job waits: raise the load")

    def _prepared(self, trace: Trace) -> Scenario:
        kept, _ = possible(trace.jobs, self._cluster, skip=True)
        if len(kept) < self._jobs:
            raise TraceError(f"{len(kept)} jobs of the trace can run: fewer than {self._jobs}")
        return Scenario.of(self._cluster, kept, self._rules, name="windows").for_networks()


class QueueEnv(gymnasium.Env[Float32Array, Float32Array]):
    """One queue of QueueVectorEnv, with its other arguments: (slots, NUM_FEATURES + 1) is seen, an
    action is (slots,). Raises TraceError: as there.
    """

    def __init__(self, trace: Trace | None = None, **options: Any) -> None:
        self._one = QueueVectorEnv(1, trace, **options)
        self.observation_space = self._one.single_observation_space
        self.action_space = self._one.single_action_space
        self._next: Float32Array | None = None
        self._done = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32Array, dict[str, Any]]:
        """Submit another window to an empty cluster."""
        super().reset(seed=seed, options=options)
        rows = self._next
        if seed is not None or rows is None:
            rows = self._one.reset(seed=seed)[0][0]
        self._next, self._done = None, False
        return rows, {}

    def step(self, action: Float32Array) -> tuple[Float32Array, float, bool, bool, dict[str, Any]]:
        """Decide, and let time pass until the next decision."""
        if self._done:
            raise gymnasium.error.ResetNeeded("the last window has come to its end")
        checked = _checked(action, self.action_space.shape or ())
        rows, rewards, done, _, infos = self._one.step(checked[None])
        if not done[0]:
            return rows[0], float(rewards[0]), False, False, {}
        self._next, self._done = rows[0], True  # the window after has begun already
        info = {"mean_wait_s": float(infos["final_info"]["mean_wait_s"][0])}
        return infos["final_obs"][0], float(rewards[0]), True, False, info


def _each(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """As many seeds as environments."""
    if seed is None:
        return [None] * count
    return list(range(seed, seed + count)) if isinstance(seed, int) else list(seed)


def _checked(actions: object, shape: tuple[int, ...]) -> Float32Array:
    """Actions as they are taken. Raises InvalidAction: of another shape, or not finite."""
    found = np.asarray(actions, dtype=np.float32)
    if found.shape != shape:
        raise gymnasium.error.InvalidAction(f"actions of shape {found.shape}: {shape} is needed")
    if not np.isfinite(found).all():
        where = ", ".join(map(str, np.argwhere(~np.isfinite(found))[0]))
        raise gymnasium.error.InvalidAction(f"action [{where}] is not a finite number")
    return found


if NAME not in gymnasium.registry:
    gymnasium.register(
        NAME,
        entry_point=f"{__name__}:QueueEnv",
        vector_entry_point=f"{__name__}:QueueVectorEnv",
    )
