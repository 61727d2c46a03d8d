"""Policies as they are played: the settings' own, a network trusted in part, a package's."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from rltuned.cli import app
from rltuned.core import memory
from rltuned.core.decide import Knobs
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.errors import TraceError
from rltuned.lab.replay.protocol import DAEMON, Protocol, by_default, policy_of
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import write_trace
from rltuned.policies.actor import Actor
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.settings import Settings
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.world import Rules
from tests.packages import install
from tests.sim import worlds
from tests.sim.reference import as_schedule, play_decided
from tests.sim.worlds import assert_alike, crowd


def test_its_numbers_are_those_of_the_settings() -> None:
    settings = Settings()
    knobs = settings.knobs()
    theirs = replace(knobs, top_k=0, placement=DAEMON.knobs.placement, tuning=DAEMON.knobs.tuning)
    # stage observe writes nothing; the order is that of stage full
    assert replace(theirs, rules=replace(theirs.rules, switchback=None)) == DAEMON.knobs
    assert settings.daemon.interval_s == DAEMON.interval_s
    policy = policy_of("default")
    assert isinstance(policy, Actor)
    assert (policy.name, policy.trust) == (settings.policy.name, settings.policy.trust)
    assert policy.name == "model:rltune"
    assert settings.predictor.enabled
    assert settings.predictor.model == shipped_predictor().name


def test_it_is_played_as_the_daemon_would_whatever_is_asked_of_others() -> None:
    window = crowd(120, seed=3)
    asked = Protocol("event", 7.0)
    as_daemon = replace(DAEMON, predictor=load_predictor(shipped_predictor()))
    found = simulate(window, "default", asked)
    keys = Settings().policy
    assert_alike(simulate(window, keys.name, as_daemon, keys.trust), found)
    assert found.writes > 0
    again = by_default(asked)
    assert (again.mode, again.interval_s, again.knobs) == ("cycle", 60.0, DAEMON.knobs)


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

    few = [
        "--windows",
        "1",
        "--window-jobs",
        "60",
        "--set",
        "part=0,1",
        "--set",
        "rules=delay",
        "--json",
    ]
    found = json.loads(run("evaluate", *words, "-m", NETWORK, "--trust", 0, *few).stdout)
    assert found["models"][NETWORK]["trust"] == 0.0
    assert found["comparisons"][0]["paired"][NETWORK]["delay"]["wait_s"]["change"] in {0.0, None}

    for policy in ("delay", "default", "clairvoyant:sjf"):
        refused = run("simulate", *words, "-p", policy, "--trust", "0.5")
        assert refused.exit_code == 2
        assert "none of these policies corrects" in " ".join(refused.output.split())
    refused = run("simulate", *words, "-p", NETWORK, "--trust", "1.5")
    assert refused.exit_code == 2
    assert "--trust" in refused.output


CLUSTER = preset("testbed")
WINDOW = Scenario.of(CLUSTER, synthesize("testbed-1024", jobs=80, seed=5).jobs)
PREDICTOR = load_predictor(shipped_predictor())
DELAY = (
    "from rltuned.policies.baselines import BASELINES\n\n\n"
    "def delay(matrix):\n    wish = BASELINES['delay'].wish(matrix)\n"
    "    return wish.own_s, wish.place"
)
AREA = "def area(matrix):\n    return matrix.limit_s * matrix.size"


def test_a_rule_written_elsewhere_gives_the_rule_s_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, AREA, "area")
    theirs = simulate(WINDOW, "plugin:area", Protocol(mode="cycle"))
    ours = simulate(WINDOW, "saf", Protocol(mode="cycle"))
    assert (theirs.start_s == ours.start_s).all()
    assert (theirs.start_s > theirs.submit_s).any()


def test_it_sees_the_run_times_that_the_kernel_predicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon's memory shows whole seconds, which the kernel does not; so they are left as is."""
    monkeypatch.setattr(memory, "_whole", lambda seconds: seconds)
    install(tmp_path, monkeypatch, DELAY, "delay")
    protocol = Protocol(mode="cycle", predictor=PREDICTOR)
    theirs = simulate(WINDOW, "plugin:delay", protocol)
    ours = simulate(WINDOW, "delay", protocol)
    assert (theirs.start_s == ours.start_s).all()
    blind = simulate(WINDOW, "plugin:delay", Protocol(mode="cycle"))
    assert (theirs.start_s != blind.start_s).any()


@pytest.mark.parametrize("protocol", [Protocol(), Protocol(bounded=False)])
def test_what_it_cannot_play_is_refused(
    protocol: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, AREA, "area")
    with pytest.raises(TraceError, match="plays with --mode cycle only"):
        simulate(WINDOW, "plugin:area", protocol)
