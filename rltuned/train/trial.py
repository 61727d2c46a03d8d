"""Held-out windows with what the rules make of them: the measure during training, and after."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rltuned.policies.network import ContextActor, PaperActor
from rltuned.sim.engine.arrays import FloatArray
from rltuned.sim.engine.sight import net_of
from rltuned.train.episodes import play_greedy, play_rule
from rltuned.train.ground import EpisodeWindow, Ground, cut
from rltuned.train.reward import FLOOR, MIXED, Objective, cost_at

_END = np.array([np.inf])


def windows_between(
    ground: Ground,
    part: tuple[float, float],
    *,
    count: int,
    size: int,
    loads: Sequence[float],
) -> list[EpisodeWindow]:
    """Windows spread evenly over a part of a ground, disjoint where there is room.

    Fewer when the part is shorter than one window each; none when it is shorter than one.
    """
    first, last = int(len(ground) * part[0]), int(len(ground) * part[1]) - size
    if last < first:
        return []
    starts = np.linspace(first, last, count).astype(int)
    return [cut(ground, int(at), size, load=loads[i % len(loads)]) for i, at in enumerate(starts)]


@dataclass(frozen=True, slots=True)
class Trial:
    """Windows, and the totals of a rule on each of them (k,)."""

    windows: tuple[EpisodeWindow, ...]
    objective: Objective
    rules: dict[str, FloatArray]

    @classmethod
    def of(
        cls, windows: Sequence[EpisodeWindow], objective: Objective, rules: Sequence[str]
    ) -> "Trial":
        """Play the rules once."""
        found = {
            rule: np.array([total(objective, w, play_rule(w, rule)) for w in windows])
            for rule in rules
        }
        return cls(tuple(windows), objective, found)

    def totals(self, actor: PaperActor | ContextActor) -> FloatArray:
        """(k,) what a network reaches, greedy."""
        net = net_of(actor)
        return np.array([total(self.objective, w, play_greedy(w, net)) for w in self.windows])

    def ratio(self, actor: PaperActor | ContextActor, rule: str) -> float:
        """Mean log of (network / rule); below zero: the network is better."""
        return float(np.mean(np.log(self.totals(actor) / self.rules[rule])))


def total(objective: Objective, window: EpisodeWindow, start_s: FloatArray) -> float:
    """A schedule's cost, not below the floor that rewards use too; a mix: geometric mean."""
    if objective == "mix":
        return math.sqrt(math.prod(total(o, window, start_s) for o in MIXED))
    return max(float(cost_at(objective, _END, start_s, window.work)[0]), FLOOR[objective])
