"""`--policy default` is what the daemon does with default settings."""

from dataclasses import replace

from rltuned.lab.replay.protocol import DAEMON, Protocol, by_default, policy_of
from rltuned.lab.replay.run import simulate
from rltuned.policies.actor import Actor
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.settings import Settings
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
