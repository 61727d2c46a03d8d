"""What a card says of the held-out windows: the model beside every static rule, with intervals."""

from typing import Final

import numpy as np

from rltuned.policies.baselines import BASELINES
from rltuned.sim.engine.arrays import FloatArray
from rltuned.train.episodes import play_rule
from rltuned.train.paired import paired
from rltuned.train.trial import Trial, total

DIGITS: Final = 4
AS_IT_IS: Final = "bsld"
"""The metric to which `paired` adds nothing: a trial's totals have their floor already."""


def verdict(trial: Trial, own: FloatArray) -> dict[str, float]:
    """Change against each static rule, of the mean and of the geometric mean of the ratios.

    Args:
        trial: its windows; rules that it has not played are played now.
        own: (k,) the model's totals on them.

    Returns:
        `held_out_OBJECTIVE[_geometric]_against_RULE`, the same with `_low` and `_high` (95%
        interval, bootstrap over windows), and how many windows there were. -0.1: ten percent less.
    """
    told = {"held_out_windows": float(len(own))}
    static = [name for name, rule in BASELINES.items() if rule.static]
    for rule in dict.fromkeys((*trial.rules, *static)):
        totals = trial.rules.get(rule)
        if totals is None:
            totals = np.array(
                [total(trial.objective, w, play_rule(w, rule)) for w in trial.windows]
            )
        found = paired(own, totals, AS_IT_IS)
        name = f"held_out_{trial.objective}{{}}_against_{rule}{{}}".format
        told |= {
            name("", ""): found.change,
            name("", "_low"): found.low,
            name("", "_high"): found.high,
            name("_geometric", ""): found.geometric,
            name("_geometric", "_low"): found.geometric_low,
            name("_geometric", "_high"): found.geometric_high,
        }
    return {k: round(v, DIGITS) for k, v in told.items()}
