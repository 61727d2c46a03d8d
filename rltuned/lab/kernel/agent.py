# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""An agent outside compiled code, which corrects the rule `delay` at every cycle."""

import math
from typing import NamedTuple

from rltuned.lab.kernel.compiler import Float32Array, FloatArray, IntArray, in_place
from rltuned.lab.kernel.features import look
from rltuned.lab.kernel.ranking import Eyes
from rltuned.lab.kernel.state import Setup, State


class Agent(NamedTuple):
    """What it sees and does, see train/environment.QueueEnv. rows: (slots, F + 1). action: (slots,)
    in [-1, 1]. waited_s: [what all jobs together have waited].
    """

    rows: Float32Array
    action: Float32Array
    waited_s: FloatArray


@in_place
def show(setup: Setup, state: State, eyes: Eyes, agent: Agent, jobs: IntArray, now: float) -> None:
    """Fill the agent's rows with the features of the first jobs."""
    look(setup, state, eyes.sight, eyes.features, jobs, now, eyes.flags)
    rows, seen, last = agent.rows, eyes.features.rows, agent.rows.shape[1] - 1
    count = min(len(jobs), len(rows))
    rows[:] = 0.0
    for at in range(count):
        for i in range(last):
            rows[at, i] = seen[at, i]
        rows[at, last] = 1.0


@in_place
def hear(eyes: Eyes, agent: Agent, count: int) -> None:
    """Fill the scores of the jobs: a network's factor is exp(-reach tanh(score))."""
    slots = len(agent.action)
    for at in range(count):
        asked = min(max(agent.action[at], -1.0), 1.0) if at < slots else 0.0
        eyes.scores[at, 0] = eyes.scores[at, 1] = math.atanh(asked)
