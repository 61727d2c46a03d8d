"""The history played under Slurm's own order, and with the daemon switched on at a moment.

Both plays are the compiled world's from the beginning of the record on: same jobs, same placement,
same backfill, the same moments at which Slurm looks at its queue, and up to the switch the same
order. From there the daemon's decision is made at its own interval, within its bounds, with memory
of what it wrote; between two cycles Slurm's order stands.
"""

from dataclasses import replace

import numpy as np

from rltuned.core.decide import Knobs, Policy
from rltuned.lab.backtest.past import Past
from rltuned.lab.replay.orders import in_cycles
from rltuned.lab.replay.play import Played, run
from rltuned.lab.replay.prepared import prepare
from rltuned.lab.replay.stage import Stage
from rltuned.policies.baselines import BASELINES
from rltuned.settings import Settings
from rltuned.sim.world import Rules


def daemon_knobs(settings: Settings) -> Knobs:
    """As the daemon runs at stage full; where jobs go is Slurm's business here."""
    knobs = settings.knobs()
    return replace(knobs, rules=replace(knobs.rules, switchback=None), top_k=0, placement="pack")


def stage_of(past: Past) -> Stage:
    """A history ready to be played under any number of orders."""
    site = past.site
    return Stage(site.cluster, past.jobs, prepare(site.cluster, past.jobs), site.natural)


def play_natural(past: Past, stage: Stage, interval_s: float) -> Played:
    """Slurm's own order throughout; it looks at its queue at every event and every interval."""
    return replace(play_ours(past, stage, BASELINES["fcfs"], interval_s, Knobs(top_k=0)), cycles=[])


def play_ours(past: Past, stage: Stage, policy: Policy, interval_s: float, knobs: Knobs) -> Played:
    """The policy's order from the split on; cycles for which no scored job waits are left out.

    Raises KeyError: the compiled world does not know the policy.
    """
    ranking, cycles, eyes = in_cycles(
        policy, stage, knobs, interval_s, first_s=past.split_s, compares=True
    )
    # what waited at the beginning of the record may start, and not before it
    arrive_s = stage.prepared.jobs.submit_s.copy()
    waiting = np.array(sorted(past.waiting), dtype=np.int64) - 1
    arrive_s[waiting] = np.maximum(arrive_s[waiting], 0.0)
    rules = Rules(backfill=past.site.backfill, natural=past.site.natural)
    played = run(stage.prepared, ranking, rules, cycles=cycles, eyes=eyes, arrive_s=arrive_s)
    last_s = float(played.start_s[past.scored].max())
    return replace(played, cycles=[row for row in played.cycles if row[0] <= last_s])
