"""RLScheduler and SchedInspector, to be learned by the same PPO in the same environment as ours.

What is theirs: the networks (policies/rivals, train/critic), what they see, the reward, which
windows they learn from, and the inspector's power to make everybody wait. What is the same for
all: jobs, cluster, placement, backfill, budget, PPO, and the choice of the best epoch on held-out
windows.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from rltuned.policies.rivals import INSPECTOR_HIDDEN, KERNEL_HIDDEN
from rltuned.train.batch import SIEVE_RULE, Contest, cost_of, draw_window
from rltuned.train.ground import Ground
from rltuned.train.learner import Settings
from rltuned.train.reward import FLOOR

Rival = Literal["rlscheduler", "schedinspector"]
SURVEYED: Final = 200
"""Windows from which RLScheduler's filter is made."""
SIEVED: Final = 50
"""Epochs with that filter: half of the paper's budget."""
SUMMARIES: Final = {
    "rlscheduler": "RLScheduler's design (Zhang et al., SC'20), learned in our simulator.",
    "schedinspector": "SchedInspector's design (Zhang et al., HPDC'22) over {base}, learned in our "
    "simulator.",
}


def settings_of(rival: Rival, common: Settings, grounds: Sequence[Ground]) -> Settings:
    """The rival's own choices put into settings whose budget, rates and seed stay as they are.

    One rollout per window, compared with nothing (RLScheduler) or with the base policy. The filter:
    the first SIEVED epochs draw windows whose cost under SJF lies between the median and twice the
    mean of SURVEYED random ones.
    """
    contest = replace(common.contest, reference="base", rollouts=1)
    if rival == "schedinspector":
        return replace(
            common,
            network="inspector",
            hidden=INSPECTOR_HIDDEN,
            contest=replace(contest, form="percent"),
        )
    median, mean = surveyed(grounds, contest, common.seed)
    contest = replace(contest, form="metric", sieve=(median, 2 * mean), unit=mean)
    return replace(
        common,
        network="kernel",
        hidden=KERNEL_HIDDEN,
        contest=contest,
        sieved=SIEVED,
    )


def surveyed(grounds: Sequence[Ground], contest: Contest, seed: int) -> tuple[float, float]:
    """Median and mean cost of random windows under SJF."""
    draw = np.random.default_rng([seed, SURVEYED])
    costs = [
        cost_of(draw_window(grounds, contest, draw), contest.objective, SIEVE_RULE)
        for _ in range(SURVEYED)
    ]
    return float(np.median(costs)), max(float(np.mean(costs)), FLOOR[contest.objective])
