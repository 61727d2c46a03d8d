"""The daemon's decision as a Gymnasium environment: one step is one cycle with a waiting queue.

    gymnasium.make("rltuned.lab.train.environment:rltuned/Queue-v0", cluster="testbed", load=0.9)

An agent learns here as it would act in production: what it sees is what the daemon sees, and what
it asks is bounded, compared with what was written, and written, by the daemon's own decision
(core/decide). train/vector_environment has many of them at once in the compiled simulator, with the
same numbers. Needs gymnasium (`rltuned[gym]`).
"""

from dataclasses import dataclass
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from rltuned.core.features import NUM_FEATURES, Float32Array, FloatArray, StateMatrix, encode
from rltuned.core.order import Wish
from rltuned.core.select import select
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import TraceError
from rltuned.lab.replay.decided import DecidedWorld
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import possible
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.baselines import BASELINES
from rltuned.sim.presets import cluster_named
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


class Windows:
    """What episodes play: windows of a trace, or of jobs like those of RLTune's testbed, which are
    made for each seed. Raises TraceError: see QueueEnv.
    """

    def __init__(
        self, trace: Trace | None, cluster: str, jobs: int, load: float, rules: Rules | None
    ) -> None:
        self._cluster, self._rules = cluster_named(cluster), rules
        self._jobs, self._load, self._made = jobs, load, trace is None
        self._ground = None if trace is None else self._prepared(trace)

    def seeded(self, draw: np.random.Generator) -> Scenario:
        """What windows are cut from, with other jobs where there is no trace."""
        if self._ground is None or self._made:
            count, seed = max(MADE_WINDOWS * self._jobs, MADE_JOBS), int(draw.integers(2**31))
            self._ground = self._prepared(synthesize("testbed-1024", jobs=count, seed=seed))
        return self._ground

    def drawn(self, draw: np.random.Generator) -> Scenario:
        """One of them at random, its submits stretched to the load."""
        scenario = self._ground or self.seeded(draw)
        first = int(draw.integers(len(scenario) - self._jobs + 1))
        return scenario.cut(first, self._jobs, load=self._load)

    def _prepared(self, trace: Trace) -> Scenario:
        kept, _ = possible(trace.jobs, self._cluster, skip=True)
        if len(kept) < self._jobs:
            raise TraceError(f"{len(kept)} jobs of the trace can run: fewer than {self._jobs}")
        return Scenario.of(self._cluster, kept, self._rules, name="windows").for_networks()


def spaces_of(slots: int) -> tuple["spaces.Box[np.float32]", "spaces.Box[np.float32]"]:
    """Of observations and actions, see QueueEnv."""
    shape = (slots, NUM_FEATURES + 1)
    return spaces.Box(0.0, 1.0, shape, np.float32), spaces.Box(-1.0, 1.0, (slots,), np.float32)


@dataclass(frozen=True, slots=True)
class CorrectedRule:
    """The rule `delay`, corrected job by job. actions: (slots,) in [-1, 1], higher = sooner, for
    the first jobs of the queue; the others keep the rule's delay.
    """

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


class QueueEnv(gymnasium.Env[Float32Array, Float32Array]):
    """A window of a trace on a simulated cluster, from the first submission to the last start.

    Observation: (slots, NUM_FEATURES + 1) float32 in [0, 1]: a row of features (core/features) for
    each of the first waiting jobs, oldest first, with 1 in the last column; rows of zeros after
    them. Action: (slots,) float32 in [-1, 1], see CorrectedRule. Reward: minus the time waited
    since the last step, as a part of the window's jobs and in hours, so that an episode's return is
    minus its mean wait in hours. The last info has `mean_wait_s`.

    Args:
        trace: whose windows are played; None = jobs like those of RLTune's testbed, made for each
            seed.
        cluster: a preset's name or a cluster file.
        jobs: of a window.
        slots: how many waiting jobs an agent sees.
        load: GPU demand as a part of the cluster's GPUs.
        protocol: interval and the daemon's settings.
        rules: backfill, placement and priorities of the simulated Slurm.

    Raises TraceError: the cluster cannot be used, the trace is shorter than a window, or no job
    ever waits.
    """

    def __init__(
        self,
        trace: Trace | None = None,
        *,
        cluster: str = "testbed",
        jobs: int = 256,
        slots: int = 64,
        load: float = 0.9,
        protocol: Protocol | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._windows = Windows(trace, cluster, jobs, load, rules)
        self._protocol = protocol or Protocol(mode="cycle")
        self.observation_space, self.action_space = spaces_of(slots)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32Array, dict[str, Any]]:
        """Submit another window to an empty cluster."""
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._windows.seeded(self.np_random)
        for _ in range(TRIES):
            window = self._windows.drawn(self.np_random)
            self._decided = DecidedWorld(window.world(), self._protocol)
            self._counted_s, self._jobs = 0.0, len(window)
            seen = self._seen(self._decided.due())
            if self._due is not None:
                return seen, {}
        raise nobody_waits()

    def step(self, action: Float32Array) -> tuple[Float32Array, float, bool, bool, dict[str, Any]]:
        """Decide, and let time pass until the next decision."""
        if self._due is None:
            raise gymnasium.error.ResetNeeded("the last window has come to its end")
        self._decided.decide(
            self._due, CorrectedRule(checked(action, self.action_space.shape or ()))
        )
        seen = self._seen(self._decided.due())
        done = self._due is None
        info = {"mean_wait_s": self._waited_s / self._jobs} if done else {}
        waited_s, self._counted_s = self._waited_s - self._counted_s, self._waited_s
        return seen, -waited_s / self._jobs / 3_600.0, done, False, info

    def _seen(self, due: Snapshot | None) -> Float32Array:
        """What an agent sees of the decision that is due."""
        world = self._decided.world
        while due is not None and not self._chosen(due):  # all have only just come
            self._decided.decide(due, BASELINES["delay"])
            due = self._decided.due()
        self._due = due
        running = sum(r.started_at - r.pending.job.submit_s for r in world.running.values())
        ended = sum(f.started_at - f.job.submit_s for f in world.finished.values())
        waits = sum(world.now - p.job.submit_s for p in world.pending.values())
        self._waited_s = running + ended + waits
        seen = np.zeros(self.observation_space.shape or (), dtype=np.float32)
        if due is not None:
            rows = encode(self._chosen(due), due, self._decided.context).values[: len(seen)]
            seen[: len(rows), :-1], seen[: len(rows), -1] = rows, 1.0
        return seen

    def _chosen(self, due: Snapshot) -> tuple[PendingJob, ...]:
        return select(due, self._decided.knobs.rules).chosen


def checked(actions: object, shape: tuple[int, ...]) -> Float32Array:
    """Actions as they are taken. Raises InvalidAction: of another shape, or not finite."""
    found = np.asarray(actions, dtype=np.float32)
    if found.shape != shape:
        raise gymnasium.error.InvalidAction(f"actions of shape {found.shape}: {shape} is needed")
    if not np.isfinite(found).all():
        where = ", ".join(map(str, np.argwhere(~np.isfinite(found))[0]))
        raise gymnasium.error.InvalidAction(f"action [{where}] is not a finite number")
    return found


def nobody_waits() -> TraceError:
    """Of windows in which there is nothing to decide."""
    return TraceError(f"in {TRIES} windows no job waits: raise the load")


if NAME not in gymnasium.registry:
    gymnasium.register(
        NAME,
        entry_point=f"{__name__}:QueueEnv",
        vector_entry_point="rltuned.lab.train.vector_environment:QueueVectorEnv",
    )
