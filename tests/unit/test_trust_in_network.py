"""policy.trust: 0 is the rule to the last byte, 1 the network as trained."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from prometheus_client import CollectorRegistry

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.features import encode
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.wiring import build_rig, find_policy, in_force
from rltuned.errors import SettingsError
from rltuned.policies.actor import correction, load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.generations import Generations, TunedOrder
from rltuned.settings.source import Flag, from_flags, load
from tests.builders import NOW, job, looked_at, snapshot
from tests.bundles import small_network
from tests.configs import settings_file
from tests.examples import examples
from tests.fakes import FakeBackend
from tests.property.sites import Site, sites
from tests.unit.cli.runner import run

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "models" / "rltune"
MODEL = TunedOrder(policy="model", own=0.3, share=0.75, max_delay_s=86_400.0)
WORLD = snapshot(
    *(job(i, gpus=i % 5, time_limit_s=600.0 * (1 + i * 7 % 11)) for i in range(1, 40)),
)


def shown(decision: Decision) -> dict[str, Any]:
    """Everything that `plan --json` shows but the policy."""
    document = looked_at(decision).plan()
    assert {document.pop("policy"), document.pop("trust")}
    return json.loads(json.dumps(document))  # type: ignore[no-any-return]


@examples(60)
@given(sites())
def test_without_trust_the_plan_is_that_of_the_rule(site: Site) -> None:
    seen = site.seen()
    rule = decide(seen, BASELINES["delay"], Knobs())
    network = decide(seen, load_actor(BUNDLE, 0.0), Knobs())
    assert (network.policy, network.trust) == ("model:rltune", 0.0)
    assert network.plan == rule.plan
    assert network.entries == rule.entries
    assert shown(network) == shown(rule)
    matrix = encode(seen.pending, seen)
    mine, theirs = load_actor(BUNDLE, 0.0).wish(matrix), BASELINES["delay"].wish(matrix)
    assert mine.own_s.tobytes() == theirs.own_s.tobytes()
    assert mine.place.tobytes() == theirs.place.tobytes()


def test_with_all_trust_the_network_is_as_trained_and_between_its_logarithms_count() -> None:
    matrix = encode(WORLD.pending, WORLD)
    rule, whole = BASELINES["delay"].wish(matrix), load_actor(BUNDLE).wish(matrix)
    assert load_actor(BUNDLE, 1.0).wish(matrix).own_s.tobytes() == whole.own_s.tobytes()
    half = load_actor(BUNDLE, 0.5).wish(matrix)
    assert not np.allclose(whole.own_s, rule.own_s)
    np.testing.assert_allclose(
        np.log(half.own_s / rule.own_s), 0.5 * np.log(whole.own_s / rule.own_s), atol=1e-12
    )
    scores, reach = np.linspace(-9.0, 9.0, 1001), math.log(8.0)
    trained = np.exp(-reach * np.tanh(scores))
    assert correction(reach, 1.0, scores).tobytes() == trained.tobytes()
    assert correction(reach, 0.0, scores).tolist() == [1.0] * 1001


def test_evidence_of_another_trust_is_evidence_of_another_order(tmp_path: Path) -> None:
    def rig(trust: float) -> Any:
        loaded = from_flags(
            (
                Flag("policy.name", "model:rltune", "--policy"),
                Flag("policy.trust", trust, "--trust"),
                Flag("daemon.state_dir", str(tmp_path), "--state-dir"),
            )
        )
        return build_rig(loaded, FakeBackend(WORLD))

    whole, half = rig(1.0), rig(0.5)
    assert whole.model == whole.digest
    assert half.model == f"{half.digest}, trust 0.5"
    assert half.policy.trust == 0.5


def test_a_generation_has_the_trust_that_it_was_judged_with(tmp_path: Path) -> None:
    store, network = Generations(tmp_path), small_network(tmp_path / "small")
    tuned = (
        Flag("policy.name", "tuned", "-p"),
        Flag("policy.trust", 0.75, "file"),
        Flag("daemon.state_dir", str(tmp_path), "--state-dir"),
    )
    for trust, wanted in ((None, 1.0), (0.25, 0.25)):
        order = MODEL if trust is None else MODEL.model_copy(update={"trust": trust})
        store.promote(store.add(order, {"model": network}).name, at=NOW)
        assert find_policy(in_force(from_flags(tuned), NOW))[0].trust == wanted


def test_the_metric_that_names_the_policy_names_its_trust() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.loaded("model:a", trust=0.5, digest="abc")
    metrics.loaded("model:a", trust=0.25, digest="abc")
    (family,) = [f for f in metrics.registry.collect() if f.name == "rltuned_policy_info"]
    assert [s.labels["trust"] for s in family.samples] == ["0.25"]
    metrics.loaded("delay")
    (family,) = [f for f in metrics.registry.collect() if f.name == "rltuned_policy_info"]
    assert [s.labels["trust"] for s in family.samples] == [""]


def test_plan_and_explain_show_it(tmp_path: Path) -> None:
    config = settings_file(tmp_path, f'[policy]\ntrust = 0.0\n[daemon]\nstate_dir = "{tmp_path}"\n')
    words = ("--backend", "sim", "--config", str(config))

    def plan(policy: str) -> dict[str, Any]:
        found = run("plan", *words, "-p", policy, "--json")
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)  # type: ignore[no-any-return]

    network, rule = plan("model:rltune"), plan("delay")
    assert (network.pop("policy"), network.pop("trust")) == ("model:rltune", 0.0)
    assert (rule.pop("policy"), rule.pop("trust")) == ("delay", None)
    same = ("job_id", "rank_after", "proposed_priority", "planned_priority", "refusal")
    ranked = [[[j[name] for name in same] for j in one["jobs"]] for one in (network, rule)]
    assert ranked[0] == ranked[1]
    text = run("plan", *words, "-p", "model:rltune").stdout
    assert "model:rltune, trust 0 ranks" in " ".join(text.split())
    number = str(network["jobs"][0]["job_id"])
    said = run("explain", number, *words, "-p", "model:rltune").stdout
    assert "model:rltune, trust 0: " in " ".join(said.split())


@pytest.mark.parametrize("value", ["1.5", "-0.1", "nan", '"half"', "true"])
def test_a_trust_that_is_none_is_refused_by_name(tmp_path: Path, value: str) -> None:
    path = settings_file(tmp_path, f"[policy]\ntrust = {value}\n")
    with pytest.raises(SettingsError, match=rf"{path}:\d+: policy.trust: "):
        load(path)
