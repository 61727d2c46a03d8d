"""The environment with Gymnasium's interface: one scheduling decision per step.

Observation: a window of the queue in submit order, `jobs` (256, 8) as the paper's actor sees it,
`all` (256, 13) every feature, `mask` (256,) True on the jobs that may be chosen.
Action: the place of the job to be looked at next in this scheduling pass. What happens then is the
simulated Slurm's: it starts, or it becomes its partition's blocked head, or nothing changes.
Reward: see train/reward; `gap` gives all at the end, `dense` gives each step its part of it. Both
compare with a base policy on the same jobs (the paper's two pipelines).
Termination: all jobs have started; never truncated. A queue beyond 256 jobs is shown from its
oldest job on; the compiled rollouts that training uses see all of it.
"""

from typing import Any, Final, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rltuned.core.features import NUM_FEATURES
from rltuned.core.observation import MAX_QUEUE_SIZE, OBSERVED
from rltuned.sim.engine.arrays import FloatArray
from rltuned.train.episodes import play_rule, tables
from rltuned.train.ground import Ground, cut
from rltuned.train.reward import FLOOR, Objective, cost_at
from rltuned.train.rollout.play import advance, choose, observe8, see
from rltuned.train.rollout.state import QUEUED

Observation = dict[str, NDArray[Any]]
RewardForm = Literal["gap", "dense"]
WAITING: Final = 1_000_000.0


class SchedulingEnv(gymnasium.Env[Observation, np.int64]):
    """One window of a trace on a cluster, in competition with a base policy.

    Args:
        ground: trace and cluster.
        base: the rule to be compared with.
        objective: the metric.
        form: all of the reward at the end, or spread over the steps.
        size: jobs per window; the first submit of the window is chosen by reset's seed.
        load: GPU demand to which submit times are stretched; None = as in the trace.
        last_first: windows begin at this job or before (hold back the end of a trace for tests).
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(
        self,
        ground: Ground,
        *,
        base: str = "fcfs",
        objective: Objective = "wait",
        form: RewardForm = "gap",
        size: int = 256,
        load: float | None = None,
        last_first: int | None = None,
    ) -> None:
        rows = MAX_QUEUE_SIZE
        self.observation_space: spaces.Dict = spaces.Dict(  # type: ignore[assignment]
            {
                "jobs": spaces.Box(0.0, 1.0, (rows, OBSERVED), np.float32),
                "all": spaces.Box(0.0, 1.0, (rows, NUM_FEATURES), np.float32),
                "mask": spaces.MultiBinary(rows),
            }
        )
        self.action_space = spaces.Discrete(rows)
        self._ground, self._base, self._objective, self._form = ground, base, objective, form
        self._size, self._load = size, load
        self._last_first = len(ground) - size if last_first is None else last_first

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a window; options {"first": place} chooses it, otherwise the seed does."""
        super().reset(seed=seed)
        first = (options or {}).get("first")
        if first is None:
            first = int(self.np_random.integers(0, self._last_first + 1))
        self.window = cut(self._ground, first, self._size, load=self._load)
        self.base_start_s = play_rule(self.window, self._base)
        self._work = self.window.work.measured_by(self.base_start_s)
        self._tables = tables(self.window, 0)
        self._flags = np.zeros(2, dtype=np.int64)
        self._total = self._cost(self.base_start_s, np.array([np.inf]))[0]
        setup, state, desk, _ = self._tables
        self._left = advance(setup, state, desk)
        self._before_s = float(desk.clock[0])
        self._seen = -1.0
        return self._observe(), {"first": first}

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Look at one job.

        Raises:
            ValueError: the action is masked.
        """
        setup, state, desk, _ = self._tables
        at = int(action)
        if at >= desk.marks[QUEUED] or desk.gone[at]:
            raise ValueError(f"action {at}: no job that may be chosen stands there")
        self._left = choose(setup, state, desk, at)
        while not self._left:
            self._left = advance(setup, state, desk)
            if self._done():
                break
        done = self._done()
        reward = self._reward(done)
        info = {"start_s": state.start_s.copy()} if done else {}
        return self._observe(), reward, done, False, info

    def _done(self) -> bool:
        return not np.isnan(self._tables[1].start_s).any()

    def _reward(self, done: bool) -> float:
        """The base's cost of the time that passed, less our own; the gap's parts or its whole."""
        now_s = np.inf if done else float(self._tables[2].clock[0])
        if self._form == "gap" and not done:
            return 0.0
        since_s = -np.inf if self._form == "gap" else self._before_s
        self._before_s = now_s
        times = np.array([since_s, now_s])
        own = np.diff(self._cost(self._started(), times))[0]
        base = np.diff(self._cost(self.base_start_s, times))[0]
        bigger = max(self._total, FLOOR[self._objective])
        if self._form == "gap":
            bigger = max(bigger, own)
        return float((base - own) / bigger)

    def _started(self) -> FloatArray:
        """Start times, those still waiting later than any time that is asked about."""
        start_s = self._tables[1].start_s
        late = self._tables[2].clock[0] + WAITING
        return np.where(np.isnan(start_s), np.maximum(late, self.window.submit_s), start_s)

    def _cost(self, start_s: FloatArray, times: FloatArray) -> FloatArray:
        return cost_at(self._objective, times, start_s, self._work)

    def _observe(self) -> Observation:
        setup, state, desk, sight = self._tables
        rows = MAX_QUEUE_SIZE
        jobs = np.zeros((rows, OBSERVED), dtype=np.float32)
        every = np.zeros((rows, NUM_FEATURES), dtype=np.float32)
        mask = np.zeros(rows, dtype=np.int8)
        shown = min(rows, int(desk.marks[QUEUED]))
        if self._left and shown:
            if self._seen != desk.clock[0]:
                self._seen = float(desk.clock[0])
                see(setup, state, desk, sight, self._flags)
            every[:shown] = desk.features.rows[:shown]
            observe8(every[:shown], self._flags, jobs)
            mask[:shown] = ~desk.gone[:shown]
        return {"jobs": jobs, "all": every, "mask": mask}
