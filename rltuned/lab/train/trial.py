"""Held-out windows with what the rules make of them: the measure during training, and after."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rltuned.lab.kernel.compiler import FloatArray
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.stats import mean_with_ends
from rltuned.lab.train.episodes import play_policy
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.options import Objective
from rltuned.lab.train.reward import FLOOR, MIXED, Work, cost_at

_END = np.array([np.inf])
DIGITS: Final = 4
RULE: Final = "delay"
"""What a network is measured against: what it corrects."""
CYCLES: Final = Protocol(mode="cycle")
"""The daemon's own decision every minute, with its bounds and its memory."""


def windows_between(
    scenario: Scenario, part: tuple[float, float], *, count: int, size: int, loads: Sequence[float]
) -> list[Scenario]:
    """Windows spread evenly over a part of a scenario, disjoint if possible; fewer if short, none
    twice.
    """
    first, last = int(len(scenario) * part[0]), int(len(scenario) * part[1]) - size
    if last < first:
        return []
    starts = np.linspace(first, last, count).astype(int)
    wanted = dict.fromkeys((int(at), loads[i % len(loads)]) for i, at in enumerate(starts))
    return [scenario.cut(at, size, load=load) for at, load in wanted]


@dataclass(frozen=True, slots=True)
class Trial:
    """Windows, and the totals of a rule on each of them (k,)."""

    windows: tuple[Scenario, ...]
    objective: Objective
    rules: dict[str, FloatArray]

    @classmethod
    def of(cls, windows: Sequence[Scenario], objective: Objective, rules: Sequence[str]) -> "Trial":
        """Play the rules once."""
        found = {
            rule: np.array([total(objective, w, play_policy(w, rule, CYCLES)) for w in windows])
            for rule in rules
        }
        return cls(tuple(windows), objective, found)

    def totals(self, actor: TorchActor) -> FloatArray:
        """(k,) what a network reaches, its best choice taken."""
        policy = policy_of(actor)
        return np.array(
            [total(self.objective, w, play_policy(w, policy, CYCLES)) for w in self.windows]
        )

    def ratio(self, actor: TorchActor, rule: str) -> tuple[float, float | None, float | None]:
        """Mean log of (network / rule) with its 95% interval; below zero: the network is better."""
        return mean_with_ends(np.log(self.totals(actor) / self.rules[rule]))


def total(objective: Objective, window: Scenario, start_s: FloatArray) -> float:
    """A schedule's cost, not below the floor that rewards use too; a mix: geometric mean."""
    if objective == "mix":
        return math.prod(total(o, window, start_s) for o in MIXED) ** (1 / len(MIXED))
    return max(float(cost_at(objective, _END, start_s, Work.of(window))[0]), FLOOR[objective])
