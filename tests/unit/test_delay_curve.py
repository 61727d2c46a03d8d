"""Scores of networks become delays by a curve that belongs to the bundle."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.features import encode
from rltuned.core.order import Order, bounded
from rltuned.policies.actor import load_actor
from rltuned.policies.delay_curve import DelayCurve, curve_of
from tests.builders import job, node, snapshot

MODELS = Path(__file__).resolve().parents[2] / "models"
BUNDLES = sorted(path.parent.name for path in MODELS.glob("*/card.json"))
CURVE = DelayCurve(np.array([-1.0, 0.0, 2.0]), np.log([8_000.0, 600.0, 60.0]))


def test_a_higher_score_never_has_a_longer_delay() -> None:
    scores = np.linspace(-5, 5, 201)
    delays = CURVE.delay_s(scores)
    assert (np.diff(delays) <= 0).all()
    assert delays[0] == pytest.approx(8_000)  # beyond the ends the curve stays level
    assert delays[-1] == pytest.approx(60)
    assert CURVE.delay_s(np.array([0.0])).tolist() == [pytest.approx(600)]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_a_delay_depends_on_the_jobs_own_score_alone(scores: list[float]) -> None:
    together = CURVE.delay_s(np.array(scores))
    alone = [float(CURVE.delay_s(np.array([s]))[0]) for s in scores]
    assert together.tolist() == alone


@given(st.integers(1, 80), st.integers(0, 1_000))
def test_every_curve_is_monotone_finite_and_the_same_again(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.random((count, 64)).astype(np.float32)
    scores = rng.choice(rng.normal(size=max(1, count // 2)), size=count)  # with ties
    one, again = curve_of("attention", rows, scores), curve_of("attention", rows, scores)
    assert one.table.tolist() == again.table.tolist()
    assert np.isfinite(one.table).all()
    assert (np.diff(one.score) > 0).all()
    assert (np.diff(one.log_delay) <= 0).all()


@pytest.mark.parametrize("name", BUNDLES)
def test_shipped_bundles_give_bounded_delays_by_a_fixed_curve(name: str) -> None:
    actor, again = load_actor(MODELS / name), load_actor(MODELS / name)
    assert actor.curve.table.tolist() == again.curve.table.tolist()
    assert len(actor.curve.score) > 1, "it tells jobs apart"
    assert (np.diff(actor.curve.log_delay) <= 0).all()
    queue = [job(i, gpus=1 + i % 4, time_limit_s=600.0 * 3**i) for i in range(1, 7)]
    world = snapshot(*queue, nodes=[node(gpus=8)])
    matrix = encode(world.pending, world)
    delays = bounded(actor, matrix, Order())
    assert (np.isfinite(delays.delay_s) & (delays.delay_s >= 0)).all()
    assert (delays.delay_s <= delays.upper_s).all()
    by_score = np.argsort(-actor.score(matrix), kind="stable")
    assert (np.diff(actor.delay_s(matrix)[by_score]) >= 0).all()
