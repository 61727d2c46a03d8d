"""On blocks against off blocks: the figures by hand, the interval by pairs, and silence."""

from collections.abc import Iterable

import numpy as np
import pytest
from rltuned.daemon.breaker import FEWEST, Effect

from tests.builders import sure


def effect(pairs: Iterable[tuple[float, float]]) -> Effect:
    return sum((Effect.of(*pair) for pair in pairs), Effect())


def test_figures_by_hand() -> None:
    found = effect([(100.0, 130.0)] * 5) + effect([(100.0, 110.0)] * 5)
    assert found.interval_s == pytest.approx((-20.0, -27.54, -12.46), abs=0.02)
    assert found.verdict == (
        "it helps: mean wait 100 s in on blocks, 120 s in off blocks of 10 pairs, -20 s, "
        "95 % interval -28 to -12 s"
    )
    assert found.document()["low_s"] == pytest.approx(-27.54, abs=0.02)
    few = effect([(1.0, 2.0)] * (FEWEST - 1))
    assert few.interval_s is None
    assert few.verdict == f"{FEWEST - 1} of {FEWEST} pairs of blocks are measured"
    assert Effect().document()["on_s"] is None


@pytest.mark.parametrize(
    ("factor", "says"), [(0.3, "it helps"), (1.0, "chance can explain"), (3.0, "it harms")]
)
def test_the_verdict_follows_the_interval(factor: float, says: str) -> None:
    rng = np.random.default_rng(1)
    on, off = rng.lognormal(6.0, 1.0, (2, 100))
    assert says in effect(zip(on * factor, off, strict=True)).verdict


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Neighbouring blocks wait alike; delays do nothing."""
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(400):
        level = np.cumsum(rng.normal(0.0, 0.2, 120)) / 3
        waits = rng.lognormal(5.0 + level, 0.7).reshape(-1, 2)
        pairs = [tuple(pair) if rng.random() < 0.5 else tuple(pair[::-1]) for pair in waits]
        found = sure(effect(pairs).interval_s)
        missed += not found[1] <= 0 <= found[2]
    assert missed / 400 < 0.08
