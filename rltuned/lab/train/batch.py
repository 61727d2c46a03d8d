"""Collect episodes: windows, the base pipeline's result on them, and the learner's choices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rltuned.core.order import DEFAULT
from rltuned.lab.kernel.compiler import FloatArray, IntArray
from rltuned.lab.kernel.network import Net
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.episodes import Decisions, Recorder, play_rule, play_sampled
from rltuned.lab.train.options import Form, Objective, Reference
from rltuned.lab.train.reward import FLOOR, Work, cost_at

_END: Final = np.array([np.inf])


@dataclass(frozen=True, slots=True)
class Contest:
    """How episodes are drawn and rewarded. base: the rule of the other pipeline, without bounds
    where the network corrects no rule. form: `gap`, the paper's reward at the end; `dense`, the
    same sum over the choices.

    reference: what each stretch of time is compared with: the base's cost, or the mean of the
    learner's own rollouts of the same jobs. rollouts: per window. loads: bounds of the GPU demand
    that windows are stretched to. part: share of each scenario, from its beginning, for windows.
    """

    base: str = "fcfs"
    objective: Objective = "wait"
    form: Form = "dense"
    reference: Reference = "base"
    window_jobs: int = 256
    rollouts: int = 1
    loads: tuple[float, float] = (0.7, 1.3)
    part: float = 0.8


@dataclass(frozen=True, slots=True)
class Episode:
    """One rollout. rewards: (Q,) from each kept moment to the next; own, base: total costs."""

    kept: Decisions
    rewards: FloatArray
    own: float
    base: float


def draw_window(
    scenarios: Sequence[Scenario], contest: Contest, draw: np.random.Generator
) -> Scenario:
    """A random window of a random scenario at a random load."""
    scenario = scenarios[int(draw.integers(len(scenarios)))]
    last = max(0, int(len(scenario) * contest.part) - contest.window_jobs)
    first = int(draw.integers(0, last + 1))
    return scenario.cut(first, contest.window_jobs, load=float(draw.uniform(*contest.loads)))


def compete(
    window: Scenario, net: Net, contest: Contest, seed: int, recorder: Recorder
) -> list[Episode]:
    """Play a window by the base rule and, `rollouts` times, by the network."""
    base_s = play_rule(window, contest.base, DEFAULT if net.reach else None)
    work = Work.of(window).measured_by(base_s)
    played = [
        play_sampled(window, net, seed + number, recorder) for number in range(contest.rollouts)
    ]
    starts = [start_s for start_s, _ in played]
    found = []
    for number, (start_s, kept) in enumerate(played):
        others = [s for i, s in enumerate(starts) if i != number]
        group = contest.reference == "group" and others
        found.append(
            _episode(
                kept, start_s, base_s, others if group else [base_s], work=work, contest=contest
            )
        )
    return found


def _episode(
    kept: Decisions,
    start_s: FloatArray,
    base_s: FloatArray,
    references: Sequence[FloatArray],
    *,
    work: Work,
    contest: Contest,
) -> Episode:
    def cost(times: FloatArray, starts: FloatArray) -> FloatArray:
        return cost_at(contest.objective, times, starts, work)

    own, base = float(cost(_END, start_s)[0]), float(cost(_END, base_s)[0])
    unit = max(own, base, FLOOR[contest.objective])
    times = np.append(kept.now_s, np.inf)
    rewards = np.zeros(len(kept.now_s))
    if contest.form == "gap":
        rewards[-1:] = (np.mean([cost(_END, r)[0] for r in references]) - own) / unit
    else:
        beside = np.mean([np.diff(cost(times, r)) for r in references], axis=0)
        rewards = (beside - np.diff(cost(times, start_s))) / unit
    return Episode(kept, rewards, own, base)


@dataclass(frozen=True, slots=True)
class Batch(Decisions):
    """Many episodes as one ragged table. sizes: (E,) moments each; rewards: (Q,); choice_first:
    (Q+1,) where the choices of a moment begin.
    """

    sizes: IntArray
    rewards: FloatArray
    choice_first: IntArray


def join(episodes: Sequence[Episode]) -> Batch:
    """Put episodes end to end, shifting what points into the tables."""
    kept = [e.kept for e in episodes]
    rows = np.cumsum([0, *(len(k.rows) for k in kept)])
    passes = np.cumsum([0, *(len(k.now_s) for k in kept)])
    among = np.cumsum([0, *(len(k.candidates) for k in kept)])
    ends = [k.first[1:] + r for k, r in zip(kept, rows, strict=False)]
    lists = [k.candidate_first[1:] + a for k, a in zip(kept, among, strict=False)]
    of_pass = np.concatenate([k.of_pass + p for k, p in zip(kept, passes, strict=False)])
    return Batch(
        rows=np.concatenate([k.rows for k in kept]),
        asked=np.concatenate([k.asked for k in kept]),
        first=np.concatenate([[0], *ends]).astype(np.int64),
        flags=np.concatenate([k.flags for k in kept]),
        now_s=np.concatenate([k.now_s for k in kept]),
        of_pass=of_pass,
        choice=np.concatenate([k.choice + r for k, r in zip(kept, rows, strict=False)]),
        candidates=np.concatenate([k.candidates + r for k, r in zip(kept, rows, strict=False)]),
        candidate_first=np.concatenate([[0], *lists]).astype(np.int64),
        sizes=np.array([len(k.now_s) for k in kept]),
        rewards=np.concatenate([e.rewards for e in episodes]),
        choice_first=of_pass.searchsorted(np.arange(passes[-1] + 1)),
    )
