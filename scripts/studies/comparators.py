"""RLScheduler and SchedInspector, learned and played in rltuned's environment.

Theirs: the network, what it reads, the reward, which windows it learns from, and the inspector's
power to make all jobs wait. Shared: jobs, cluster, placement, backfill, PPO, and the choice of the
best epoch on held-out windows. They exist at every event and in their pure order only.
docs/training.md says where they differ from the papers.

- RLScheduler (Zhang et al., SC'20) picks among the oldest 128 jobs; the others follow by submit
  time. User, group and program numbers are left out: a number says nothing about another trace.
- SchedInspector (Zhang et al., HPDC'22) accepts or rejects what a base rule would start next. The
  picks of a pass are judged as it begins, until one is rejected or does not fit; what is behind
  that one is backfill. After a rejection the pick and all behind it wait until something happens,
  at the latest for INTERVAL_S; after MOST_REJECTIONS a job is let through without a question.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rltuned.core.features import COLUMN, LIMIT_FULL_S, Float32Array
from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.kernel.choices import NOW, QUEUED, WAKE
from rltuned.kernel.compiler import FloatArray
from rltuned.kernel.episode import advance, choose, see
from rltuned.sim.orders import at_events
from rltuned.train.episodes import Decisions, play_rule, tables
from rltuned.train.ground import Ground
from rltuned.train.network import PaperActor, perceptron
from rltuned.train.reward import FLOOR, Objective, cost_at

BUNDLES: Final = Path(__file__).parent / "bundles"
HIDDEN: Final = (32, 16, 8)
VISIBLE: Final = 128
READ: Final = [
    COLUMN[name]
    for name in ("submit_time", "requested_time", "requested_gpus", "req_cpu", "req_mem",
                 "can_schedule_now")
]  # fmt: skip
"""Columns that RLScheduler reads of a job."""
BASES: Final = ("fcfs", "sjf", "saf", "smallest")
"""Rules that an inspector may watch over: their order never changes by itself."""
MOST_REJECTIONS, INTERVAL_S, INSPECTED = 72, 600.0, 8
SURVEYED, SIEVED, TRIES = 200, 50, 50
"""Windows from which RLScheduler's filter is made, epochs with it, draws until one passes."""
_END: Final = np.array([np.inf])
_FREE, _CAN = COLUMN["free_nodes"], COLUMN["can_schedule_now"]
_WAIT, _LIMIT, _GPUS = COLUMN["submit_time"], COLUMN["requested_time"], COLUMN["requested_gpus"]


@dataclass(slots=True)
class Kept:
    """Choices of one episode as they come; `decisions` puts them end to end."""

    rows: list[Float32Array] = field(default_factory=list)
    now_s: list[float] = field(default_factory=list)
    choices: list[tuple[int, np.ndarray, int]] = field(default_factory=list)
    count: int = 0

    def add(
        self, rows: Float32Array, now_s: float, choices: Sequence[tuple[np.ndarray, int]]
    ) -> None:
        """A moment: its rows (k, F), and (candidates, chosen) of its choices, numbers of rows."""
        moment = len(self.rows)
        self.choices += [(moment, among + self.count, at + self.count) for among, at in choices]
        self.rows.append(rows)
        self.now_s.append(now_s)
        self.count += len(rows)

    def decisions(self) -> Decisions:
        """As the compiled rollout keeps them."""
        among = [one for _, one, _ in self.choices]
        return Decisions(
            rows=np.concatenate(self.rows) if self.rows else np.zeros((0, 1), np.float32),
            first=np.cumsum([0, *map(len, self.rows)]),
            flags=np.zeros((len(self.rows), 2), dtype=np.int64),
            now_s=np.array(self.now_s),
            of_pass=np.array([moment for moment, _, _ in self.choices], dtype=np.int64),
            choice=np.array([at for _, _, at in self.choices], dtype=np.int64),
            candidates=np.concatenate(among) if among else np.zeros(0, np.int64),
            candidate_first=np.cumsum([0, *map(len, among)]),
        )


class Step:
    """A window played one scheduling pass at a time, by the compiled world's own steps."""

    def __init__(self, window: Ground) -> None:
        self.window = window
        self.setup, self.state, self.desk, self.sight = tables(window, 0)
        self.flags = np.zeros(2, dtype=np.int64)
        self.left = 0

    def next_pass(self) -> bool:
        """To the next instant at which a job fits; False when all have ended."""
        self.left = advance(self.setup, self.state, self.desk)
        return self.left > 0

    def rows(self) -> Float32Array:
        """(n, F) features of the queue, in submit order."""
        count = see(self.setup, self.state, self.desk, self.sight, self.flags)
        return self.desk.features.rows[:count].copy()

    def walk(self, scores: FloatArray) -> list[tuple[np.ndarray, int]]:
        """The rest of the pass by scores (n,), higher first; what was chosen among which."""
        gone, places, found = self.desk.gone[: len(scores)], np.arange(len(scores)), []
        among = self.desk.effective[: self.left]
        among = among[~gone[among]].copy()
        while len(among):
            best = int(among[scores[among].argmax()])
            found.append((among, best))
            gone |= (scores > scores[best]) | ((scores == scores[best]) & (places < best))
            among = self.desk.effective[: choose(self.setup, self.state, self.desk, best)].copy()
        return found


def noisy(scores: FloatArray, draw: np.random.Generator | None) -> FloatArray:
    """Scores whose order is drawn from their softmax; None: as they are."""
    return scores if draw is None else scores + draw.gumbel(size=len(scores))


def forward(actor: PaperActor, rows: Float32Array) -> FloatArray:
    """(k,) scores of rows (k, features)."""
    with torch.inference_mode():
        found: FloatArray = actor.layers(torch.from_numpy(rows)).squeeze(-1).numpy()
    return found.astype(np.float64)


class Design(Protocol):
    """One of the two. objective: what is made small. base: of an inspector; else what to beat."""

    name: str
    objective: Objective
    base: str

    def networks(self) -> tuple[PaperActor, nn.Module]:
        """Actor and critic, their weights random."""
        ...

    def play(
        self, window: Ground, actor: PaperActor, draw: np.random.Generator | None = None
    ) -> tuple[FloatArray, Decisions]:
        """(n,) start times, and the choices; draw: None = the best at every choice."""
        ...

    def reward(self, own: float, base: float) -> float:
        """At the end of an episode, of both costs."""
        ...

    def admits(self, window: Ground, epoch: int) -> bool:
        """Whether a window is learned from."""
        ...


class KernelCritic(nn.Module):
    """RLScheduler's: a number per job, those of the oldest 128 side by side into one more layer."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.layers = perceptron(len(READ), HIDDEN), perceptron(VISIBLE, (64, 32, 8))
        start_wide(self)

    def forward(self, rows: Tensor, moment: Tensor, place: Tensor, moments: int) -> Tensor:
        """(Q,) values of Q moments; as train/critic."""
        padded = rows.new_zeros(moments, VISIBLE)
        padded[moment, place] = self.kernel(rows).squeeze(-1)
        values: Tensor = self.layers(padded).squeeze(-1)
        return values


class InspectorCritic(nn.Module):
    """SchedInspector's: over the pick alone, the first row of each moment."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron(INSPECTED, HIDDEN)

    def forward(self, rows: Tensor, moment: Tensor, place: Tensor, moments: int) -> Tensor:
        """(Q,) values of Q moments; as train/critic."""
        del moment, moments
        values: Tensor = self.layers(rows[place == 0]).squeeze(-1)
        return values


def start_wide(layers: nn.Module) -> None:
    """Weights by Glorot, biases zero: torch's own start leaves a deep, narrow network almost flat,
    and scores that hardly differ learn nothing from a noisy reward.
    """
    for layer in layers.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


@dataclass(slots=True)
class RLScheduler:
    """The metric itself as reward, in parts of its mean under SJF; a filter for the first epochs.

    sieve: the median and twice the mean of SURVEYED windows' costs under SJF.
    """

    objective: Objective = "wait"
    base: str = "fcfs"
    name: str = "rlscheduler"
    sieve: tuple[float, float] = (0.0, math.inf)
    unit: float = 1.0

    def survey(self, draw_one: Callable[[np.random.Generator], Ground], seed: int) -> None:
        """Make the filter."""
        draw = np.random.default_rng([seed, SURVEYED])
        costs = [self._easiest(draw_one(draw)) for _ in range(SURVEYED)]
        self.unit = max(float(np.mean(costs)), FLOOR[self.objective])
        self.sieve = float(np.median(costs)), 2 * self.unit

    def _easiest(self, window: Ground) -> float:
        return cost(self.objective, window, play_rule(window, "sjf"))

    def networks(self) -> tuple[PaperActor, nn.Module]:
        actor = PaperActor(len(READ), HIDDEN)
        start_wide(actor)
        return actor, KernelCritic()

    def play(
        self, window: Ground, actor: PaperActor, draw: np.random.Generator | None = None
    ) -> tuple[FloatArray, Decisions]:
        step, kept = Step(window), Kept()
        while step.next_pass():
            every = step.rows()
            rows = np.ascontiguousarray(every[:VISIBLE, READ])
            seen = noisy(forward(actor, rows), draw)
            behind = seen.min() - 1.0 - np.arange(len(every) - len(rows))
            now_s = float(step.desk.clock[NOW])
            chosen = [(a[a < VISIBLE], best) for a, best in step.walk(np.append(seen, behind))]
            real = [(among, best) for among, best in chosen if len(among) > 1]
            if real and step.desk.marks[QUEUED]:  # else all of them started, whatever was chosen
                kept.add(rows, now_s, real)
        return step.state.start_s, kept.decisions()

    def reward(self, own: float, base: float) -> float:
        del base
        return -own / self.unit

    def admits(self, window: Ground, epoch: int) -> bool:
        return epoch >= SIEVED or self.sieve[0] <= self._easiest(window) <= self.sieve[1]


def inspector_pair(values: Float32Array, row: int, rejections: int) -> Float32Array:
    """(2, 8) what an inspector chooses between: the pick of a queue (n, F), and nothing (zeros).

    The fifth: slowdown that INTERVAL_S adds to the queue, each job by its time limit and at most
    one, ln(1+d)/ln(1+256). The last: share of the other jobs that could start now.
    """
    limit_s = np.expm1(values[:, _LIMIT].astype(np.float64) * math.log1p(LIMIT_FULL_S))
    delay = float((INTERVAL_S / np.maximum(limit_s, INTERVAL_S)).sum())
    can = values[:, _CAN].astype(np.float64)
    pair = np.zeros((2, INSPECTED), dtype=np.float32)
    pair[0] = (
        values[row, _WAIT],
        values[row, _LIMIT],
        values[row, _GPUS],
        rejections / MOST_REJECTIONS,
        min(math.log1p(delay) / math.log1p(MAX_QUEUE_SIZE), 1.0),
        values[row, _FREE],
        can[row],
        (can.sum() - can[row]) / max(len(values) - 1, 1),
    )
    return pair


@dataclass(slots=True)
class SchedInspector:
    """(base - own) over the base as reward, at least -1: where the base hardly waits, one rejection
    is worth thousands of percent.
    """

    objective: Objective = "wait"
    base: str = "saf"
    name: str = "schedinspector"

    def networks(self) -> tuple[PaperActor, nn.Module]:
        return PaperActor(INSPECTED, HIDDEN), InspectorCritic()

    def play(
        self, window: Ground, actor: PaperActor, draw: np.random.Generator | None = None
    ) -> tuple[FloatArray, Decisions]:
        step, kept = Step(window), Kept()
        key = at_events(self.base, window.stage(), None)[0].key
        rejected = np.zeros(len(window), dtype=np.int64)
        while step.next_pass():
            rows, desk = step.rows(), step.desk
            queue, now_s = desk.queue[: len(rows)].copy(), float(desk.clock[NOW])
            order = np.argsort(key[queue], kind="stable")
            for turn, at in enumerate(order.tolist()):
                if rejected[queue[at]] < MOST_REJECTIONS:
                    pair = inspector_pair(rows, at, int(rejected[queue[at]]))
                    accept, reject = noisy(forward(actor, pair), draw)
                    kept.add(pair, now_s, [(np.arange(2), int(accept < reject))])
                    if accept < reject:
                        rejected[queue[at]] += 1
                        desk.gone[order[turn:]] = True
                        desk.clock[WAKE] = now_s + INTERVAL_S
                        break
                if not rows[at, _CAN]:
                    break
            step.walk(-key[queue])
        return step.state.start_s, kept.decisions()

    def reward(self, own: float, base: float) -> float:
        return max(-1.0, (base - own) / max(base, FLOOR[self.objective]))

    def admits(self, window: Ground, epoch: int) -> bool:
        del window, epoch
        return True


DESIGNS: Final[dict[str, Callable[..., RLScheduler | SchedInspector]]] = {
    "rlscheduler": RLScheduler,
    "schedinspector": SchedInspector,
}


def cost(objective: Objective, window: Ground, start_s: FloatArray) -> float:
    """What a schedule of a window costs."""
    work = window.work.measured_by(start_s)
    return float(cost_at(objective, _END, start_s, work)[0])


def read(name: str) -> tuple[RLScheduler | SchedInspector, PaperActor]:
    """A design and its weights: a folder, or one of BUNDLES."""
    folder = Path(name) if Path(name).is_dir() else BUNDLES / name
    shape = json.loads((folder / "card.json").read_text())["architecture"]
    design = DESIGNS["schedinspector" if shape["base"] else "rlscheduler"]()
    design.base = shape["base"] or design.base
    actor = design.networks()[0]
    actor.load_state_dict(load_file(folder / "actor.safetensors"))
    return design, actor
