"""Trust in a network, as it is played: the kernel and the decision have one formula."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from rltuned.cli import app
from rltuned.core.decide import Knobs
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.lab.replay.protocol import DAEMON, Protocol, policy_of
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import write_trace
from rltuned.lab.train.rollout import play_policy
from rltuned.policies.actor import Actor
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.world import Rules
from tests.sim import worlds
from tests.sim.reference import as_schedule, play_decided

NETWORK = "model:rltune"


def window() -> Scenario:
    jobs = synthesize("testbed-1024", jobs=300, seed=4, free_share=0.4).jobs
    return Scenario.of(preset("testbed"), jobs)


@pytest.mark.parametrize("protocol", [Protocol(), Protocol(bounded=False), DAEMON])
def test_without_trust_the_same_jobs_start_as_under_the_rule(protocol: Protocol) -> None:
    played = window()
    rule = simulate(played, "delay", protocol)
    nothing = simulate(played, NETWORK, protocol, trust=0.0)
    assert nothing.start_s.tobytes() == rule.start_s.tobytes()
    assert (nothing.nodes, nothing.writes) == (rule.nodes, rule.writes)
    whole = simulate(played, NETWORK, protocol, trust=1.0)
    assert whole.start_s.tobytes() == simulate(played, NETWORK, protocol).start_s.tobytes()
    assert whole.start_s.tobytes() != rule.start_s.tobytes()


def test_half_of_the_trust_is_half_of_the_reach() -> None:
    half = policy_of(NETWORK, 0.5)
    assert isinstance(half, Actor)
    net = half.network
    short = Actor(half.card, half.digest, replace(net, trust=1.0, reach=0.5 * net.reach))
    ours, theirs = (play_policy(window(), one, DAEMON) for one in (half, short))
    assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("trust", [0.0, 0.25, 0.7])
def test_the_kernel_trusts_as_the_decision_does(trust: float) -> None:
    knobs = Knobs(Scope(min_age_s=0.0), Order(own=1.0, share=2.0), top_k=0)
    played, protocol = worlds.crowd(120, 11, Rules()), Protocol("cycle", 600.0, knobs=knobs)
    policy = policy_of(NETWORK, trust)
    assert not isinstance(policy, str)
    plain = as_schedule(play_decided(played, policy, protocol), played)
    fast = simulate(played, NETWORK, protocol, trust)
    assert fast.writes > 0
    assert np.mean(plain.start_s == fast.start_s) > 0.98


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


def test_the_commands_take_it(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    write_trace(synthesize("testbed-1024", jobs=120, seed=4, free_share=0.4), trace)
    words = ("--trace", trace, "--cluster", "testbed")

    def waits(*more: object) -> Any:
        found = json.loads(
            run("simulate", *words, "-p", "delay", "-p", NETWORK, *more, "--json").stdout
        )
        waited = {name: one["wait_s"] for name, one in found["policies"].items()}
        return found.get("trust"), waited["delay"], waited[NETWORK]

    trust, rule, network = waits("--trust", "0")
    assert (trust, network) == (0.0, rule)
    trust, again, whole = waits("--trust", "1")
    assert (trust, again) == (1.0, rule)
    assert waits() == (None, rule, whole)
    assert not math.isclose(whole, rule)

    windows = ("--windows", 1, "--window-jobs", 60, "--part", 0, 1, "--rule", "delay", "--json")
    found = json.loads(run("evaluate", *words, "-m", NETWORK, "--trust", 0, *windows).stdout)
    assert found["models"][NETWORK]["trust"] == 0.0
    assert found["comparisons"][0]["paired"][NETWORK]["delay"]["wait_s"]["change"] in {0.0, None}

    for policy in ("delay", "default", "clairvoyant:sjf"):
        refused = run("simulate", *words, "-p", policy, "--trust", "0.5")
        assert refused.exit_code == 2
        assert "none of these policies corrects" in " ".join(refused.output.split())
    refused = run("simulate", *words, "-p", NETWORK, "--trust", "1.5")
    assert refused.exit_code == 2
    assert "--trust" in refused.output
