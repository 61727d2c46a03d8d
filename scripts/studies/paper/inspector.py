# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""SchedInspector (Zhang et al., HPDC'22): a network accepts or rejects what a rule would start.

The picks of a pass are judged in the base's order as the pass begins, until one is rejected or does
not fit; what is behind one that does not fit is backfill, which nobody inspects. After a rejection
the pick and all behind it wait until something happens, at the latest for INTERVAL_S; after
MOST_REJECTIONS a job is let through without a question. Here the base is first come, first served.

It reads of the pick its wait, limit and GPUs, how often it was rejected, the slowdown that another
interval adds to the queue, the share of free nodes, whether it fits, and how many others fit.
"""

import math
from typing import Final

import numpy as np
from torch import Tensor, nn

from rltuned.core.features import COLUMN, LIMIT_FULL_S
from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.lab.kernel.choices import (
    NOW,
    QUEUED,
    WAKE,
    Desk,
    choose_job,
    clear,
    list_candidates,
    walk_past,
)
from rltuned.lab.kernel.compiler import Float32Array, FloatArray, IntArray, compiled, entry
from rltuned.lab.kernel.episode import _advance
from rltuned.lab.kernel.features import StaticFeatures, look
from rltuned.lab.kernel.network import Net, forward
from rltuned.lab.kernel.state import Setup, State
from rltuned.lab.replay.prepared import net_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.network import TorchActor, network_of, perceptron
from rltuned.lab.train.rollout import Decisions, tables

INSPECTED, MOST_REJECTIONS, INTERVAL_S = 8, 72, 600.0
HIDDEN: Final = (32, 16)
ROOM: Final = 1 << 16
"""Questions of one episode that are kept."""
_WAIT, _LIMIT, _GPUS = COLUMN["submit_time"], COLUMN["requested_time"], COLUMN["requested_gpus"]
_FREE, _CAN = COLUMN["free_nodes"], COLUMN["can_schedule_now"]
_LOG_LIMIT_FULL = math.log1p(LIMIT_FULL_S)
_LOG_DELAY_FULL = math.log1p(MAX_QUEUE_SIZE)


class InspectorActor(TorchActor):
    """Scores of a pick, and of nothing, which is a row of zeros."""

    def __init__(self) -> None:
        super().__init__("queue", HIDDEN)
        self.layers = perceptron(INSPECTED, HIDDEN)


class InspectorCritic(nn.Module):
    """What a moment is worth, by its pick alone: the first row of each."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron(INSPECTED, HIDDEN)

    def forward(self, rows: Tensor, begins: IntArray) -> Tensor:
        """(Q,) values; as train/network.PaperCritic."""
        values: Tensor = self.layers(rows[begins[:-1]]).squeeze(-1)
        return values


class SchedInspector:
    """Reward at the end: (base - own) / base, as published. With a floor of -1, and over the larger
    of both, a training on Philly learned to reject everything: a blank inspector rejects half, all
    its episodes are at the floor, and none shows that fewer rejections are better.
    """

    def networks(self) -> tuple[TorchActor, nn.Module]:
        return InspectorActor(), InspectorCritic()

    def play(
        self, window: Scenario, actor: TorchActor, draw: np.random.Generator | None = None
    ) -> tuple[FloatArray, Decisions]:
        """(n,) start times, and the questions; draw: None = the better answer to each."""
        setup, state, desk, sight = tables(window, 0)
        net = net_of(network_of(actor))
        noise = np.zeros(ROOM) if draw is None else draw.logistic(size=ROOM)
        picks, answers = np.zeros((ROOM, INSPECTED), np.float32), np.zeros(ROOM, np.int64)
        now_s, rejected = np.zeros(ROOM), np.zeros(len(window), np.int64)
        asked = _play(setup, state, desk, sight, net, noise, picks, answers, now_s, rejected)
        if asked >= ROOM:
            raise RuntimeError(f"more than {ROOM} questions in {len(window)} jobs")
        return state.start_s, _decisions(picks[:asked], answers[:asked], now_s[:asked])

    def reward(self, own: float, base: float) -> float:
        return (base - own) / max(base, 1.0)


def _decisions(picks: Float32Array, answers: IntArray, now_s: FloatArray) -> Decisions:
    """Every question is a moment of two rows: the pick, and nothing."""
    count = len(picks)
    rows = np.zeros((2 * count, INSPECTED), dtype=np.float32)
    rows[::2] = picks
    bounds = np.arange(0, 2 * count + 1, 2)
    return Decisions(
        rows=rows,
        asked=np.zeros((2 * count, 4), dtype=np.float32),
        first=bounds,
        flags=np.zeros((count, 2), dtype=np.int64),
        now_s=now_s.copy(),
        of_pass=np.arange(count),
        choice=2 * np.arange(count) + answers,
        candidates=np.arange(2 * count),
        candidate_first=bounds,
    )


@entry
def _play(
    setup: Setup,
    state: State,
    desk: Desk,
    sight: StaticFeatures,
    net: Net,
    noise: FloatArray,
    picks: Float32Array,
    answers: IntArray,
    now_s: FloatArray,
    rejected: IntArray,
) -> int:
    """A window to its end; how many questions were asked. answers: 1 = rejected."""
    asked, flags = 0, np.zeros(2, dtype=np.int64)
    pair, scores = np.zeros((2, INSPECTED), dtype=np.float32), np.empty((2, 2))
    while asked < len(noise) and _advance(setup, state, desk):
        count, now = desk.marks[QUEUED], desk.clock[NOW]
        look(setup, state, sight, desk.features, desk.queue[:count], now, flags)
        rows = desk.features.rows
        delay, can = _queue(rows, count)
        for at in range(count):
            job = desk.queue[at]
            if rejected[job] < MOST_REJECTIONS and asked < len(noise):
                _describe(pair[0], rows[at], rejected[job], delay, can, count)
                forward(net, pair, 2, flags, scores)
                reject = scores[0, 0] + noise[asked] < scores[1, 0]
                picks[asked], answers[asked], now_s[asked] = pair[0], reject, now
                asked += 1
                if reject:
                    rejected[job] += 1
                    desk.gone[at:count] = True
                    desk.clock[WAKE] = now + INTERVAL_S
                    break
            if rows[at, _CAN] == 0.0:
                break
        _start(setup, state, desk)
    return asked


@compiled
def _start(setup: Setup, state: State, desk: Desk) -> None:
    """The rest of the pass: who is left, first come, first served."""
    count = desk.marks[QUEUED]
    for at in range(count):
        desk.scores[at] = -at
    while list_candidates(setup, state, desk) > 0:
        first = desk.effective[0]  # candidates are listed in the order of the queue
        walk_past(desk, first)
        choose_job(setup, state, desk, first)
    clear(state, desk)


@compiled
def _queue(rows: Float32Array, count: int) -> tuple[float, float]:
    """Slowdown that another interval adds, by limits, and how many fit now."""
    delay, can = 0.0, 0.0
    for at in range(count):
        limit_s = math.expm1(np.float64(rows[at, _LIMIT]) * _LOG_LIMIT_FULL)
        delay += INTERVAL_S / max(limit_s, INTERVAL_S)
        can += rows[at, _CAN]
    return delay, can


@compiled
def _describe(
    out: Float32Array, row: Float32Array, rejections: int, delay: float, can: float, count: int
) -> None:
    out[0], out[1], out[2] = row[_WAIT], row[_LIMIT], row[_GPUS]
    out[3] = rejections / MOST_REJECTIONS
    out[4] = min(math.log1p(delay) / _LOG_DELAY_FULL, 1.0)
    out[5], out[6] = row[_FREE], row[_CAN]
    out[7] = (can - row[_CAN]) / max(count - 1, 1)
