"""What a decision leaves in the registry: moves, scores, features, drift, placement."""

import math
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from rltuned.core.decide import Knobs, decide
from rltuned.core.features import COLUMNS
from rltuned.core.milp import JointPlacement, SolveStatus
from rltuned.core.select import Scope
from rltuned.daemon.metrics import Metrics
from tests.builders import decided, job, snapshot
from tests.fakes import ConstantOrder


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(name, labels)
    assert found is not None, name
    return found


def update(metrics: Metrics, *ids: int) -> None:
    """Jobs of falling priority, of which the policy wants the order given."""
    jobs = [job(number, priority=1_000 - number) for number in sorted(ids)]
    metrics.update(decided(decide(snapshot(*jobs), ConstantOrder(ids), Knobs(Scope()))))


def test_moves_by_direction(metrics: Metrics) -> None:
    update(metrics, 4, 1, 2, 3)
    assert value(metrics, "rltuned_rank_displacement_places_count", direction="up") == 1
    assert value(metrics, "rltuned_rank_displacement_places_sum", direction="up") == 3
    assert value(metrics, "rltuned_rank_displacement_places_count", direction="down") == 3


def test_what_is_not_known_is_no_number(metrics: Metrics) -> None:
    metrics.loaded("model:a", at=0.0, ranges={"requested_gpus": (0.0, 1.0)})
    update(metrics)
    assert math.isnan(value(metrics, "rltuned_delay_seconds", at="median"))
    for feature in COLUMNS:
        outside = value(metrics, "rltuned_feature_outside_training_ratio", feature=feature)
        assert math.isnan(outside)


def test_delays(metrics: Metrics) -> None:
    update(metrics, 1, 2, 3)
    lowest, highest = (value(metrics, "rltuned_delay_seconds", at=at) for at in ("min", "max"))
    assert lowest < value(metrics, "rltuned_delay_seconds", at="median") < highest


def test_drift_against_the_ranges_of_the_card(metrics: Metrics) -> None:
    metrics.loaded("model:a", at=0.0, ranges={"requested_gpus": (0.0, 1.0), "req_cpu": (0.99, 1.0)})
    update(metrics, 1, 2)
    name = "rltuned_feature_outside_training_ratio"
    assert value(metrics, name, feature="requested_gpus") == 0
    assert value(metrics, name, feature="req_cpu") == 1
    assert math.isnan(value(metrics, name, feature="req_mem"))
    metrics.loaded("model:a", at=0.0, ranges={})
    assert math.isnan(value(metrics, name, feature="req_cpu"))


def test_joint_placements_by_how(metrics: Metrics) -> None:
    decision = decide(snapshot(job(1)), ConstantOrder((1,)), Knobs(Scope()))
    for how in (SolveStatus.SOLVED, SolveStatus.FELL_BACK):
        metrics.update(decided(replace(decision, joint=JointPlacement(how, "why"))))
        metrics.update(decided(replace(decision, joint=None)))
        assert value(metrics, "rltuned_joint_placements_total", how=how) == 1
