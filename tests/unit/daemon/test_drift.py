"""Drift with a shipped model: every feature that its card gives a range for is judged."""

import math
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from rltuned.core.decide import Knobs, decide
from rltuned.daemon.metrics import Metrics
from rltuned.policies.actor import load_actor
from tests.builders import decided, job, snapshot

MODELS = Path(__file__).resolve().parents[3] / "models"


@pytest.mark.parametrize("model", ["rltune", "rltune-paper", "warmstart-saf"])
def test_a_shipped_card_with_ranges_makes_drift_known(model: str) -> None:
    actor = load_actor(MODELS / model)
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.loaded(actor.name, at=0.0, ranges=actor.ranges)
    metrics.update(decided(decide(snapshot(job(1), job(2), job(3)), actor, Knobs())))
    assert actor.ranges
    for feature in actor.ranges:
        name = "rltuned_feature_outside_training_ratio"
        share = registry.get_sample_value(name, {"feature": feature})
        assert share is not None, feature
        assert math.isfinite(share), feature
        assert 0 <= share <= 1, feature
