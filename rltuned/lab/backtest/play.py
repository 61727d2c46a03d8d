"""The history played under Slurm's own order, and with the daemon switched on at a moment.

Both plays are the compiled world's from the beginning of the record on: same jobs, same placement,
same backfill, the same moments at which Slurm looks at its queue, and up to the switch the same
order. From there the daemon's decision is made at its own interval, within its bounds, with memory
of what it wrote; between two cycles Slurm's order stands.
"""

from dataclasses import replace

import numpy as np

from rltuned.core.decide import Policy
from rltuned.lab.backtest.past import Past
from rltuned.lab.replay.orders import in_cycles
from rltuned.lab.replay.play import Played, run
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run_times import layers_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.baselines import BASELINES
from rltuned.settings import Settings
from rltuned.sim.world import Rules


def as_daemon(settings: Settings) -> Protocol:
    """As the daemon runs at stage full; where jobs go is Slurm's business here."""
    knobs = settings.knobs()
    rules = replace(knobs.rules, switchback=None)
    knobs = replace(knobs, rules=rules, top_k=0, placement="pack")
    return Protocol("cycle", settings.daemon.interval_s, knobs)


def scenario_of(past: Past) -> Scenario:
    """A history ready to be played under any number of orders."""
    site = past.site
    rules = Rules(site.backfill, natural=site.natural, parameters=site.parameters)
    return Scenario.of(site.cluster, past.jobs, rules, name=site.cluster.name)


def play_natural(past: Past, scenario: Scenario, interval_s: float) -> Played:
    """Slurm's own order throughout; it looks at its queue at every event and every interval."""
    protocol = Protocol("cycle", interval_s)
    return replace(play_ours(past, scenario, BASELINES["fcfs"], protocol), cycles=[])


def play_ours(past: Past, scenario: Scenario, policy: Policy, protocol: Protocol) -> Played:
    """The policy's order from the split on; cycles for which no scored job waits are left out.

    Raises KeyError: the compiled world does not know the policy.
    """
    if protocol.predictor is not None:
        scenario = replace(scenario, predictor=layers_of(protocol.predictor))
    ranking, cycles, eyes = in_cycles(
        policy,
        scenario,
        protocol.knobs,
        protocol.interval_s,
        first_s=past.split_s,
        compares=True,
    )
    # what waited at the beginning of the record may start, and not before it
    arrive_s = scenario.submit_s.copy()
    waiting = np.array(sorted(past.waiting), dtype=np.int64) - 1
    arrive_s[waiting] = np.maximum(arrive_s[waiting], 0.0)
    played = run(scenario, ranking, cycles=cycles, eyes=eyes, arrive_s=arrive_s)
    last_s = float(played.start_s[past.scored].max())
    return replace(played, cycles=[row for row in played.cycles if row[0] <= last_s])
