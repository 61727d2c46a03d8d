"""The switchback's statistic: seldom wrong whatever the queue does, and it does find harm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.ladder import LIMIT, MAX_MARGIN, STAKE, Evidence, difference
from tests.switchback_world import MARGIN, World, alarm_day, values

WAITS = st.floats(0, 1e5).map(lambda wait_s: round(wait_s, 3))  # Slurm has whole seconds
MEANS = st.dictionaries(st.sampled_from("abcdef"), WAITS, max_size=6)


def test_delays_that_do_nothing_are_blamed_no_more_often_than_promised() -> None:
    """Looked at after every pair; by Ville's inequality 1 in L runs ever reaches L."""
    rng = np.random.default_rng(20261122)
    runs = 200
    peaks = np.array([max(values(rng, World(users=20, jobs=4.0), 90)) for _ in range(runs)])
    for limit in (4, 10, 100):
        assert np.mean(peaks >= limit) <= 1 / limit
    assert peaks.max() < LIMIT


def test_delays_that_triple_the_waits_are_found() -> None:
    rng = np.random.default_rng(7)
    found = [alarm_day(rng, World(3.0), 365.0) for _ in range(5)]
    assert all(day is not None and day < 120 for day in found)


def test_a_long_good_time_does_not_hide_a_bad_one() -> None:
    evidence = Evidence()
    for _ in range(1_000):
        evidence = evidence.after(-0.3, MARGIN)
    pairs = 0
    while not evidence.is_enough:
        evidence = evidence.after(0.6, MARGIN)
        pairs += 1
    assert pairs <= 90


def test_the_difference_is_relative_and_changes_sign_with_on_and_off() -> None:
    on = {"a": 30.0, "b": 30.0, "c": 30.0}
    off = {"a": 10.0, "b": 10.0, "d": 10.0}
    assert difference(on, off) == pytest.approx(0.5)
    assert difference(off, on) == pytest.approx(-0.5)
    assert difference(on, {}) is None
    assert difference({}, {}) is None
    assert difference({"a": 1.0}, off) is None, "one user is no evidence"
    assert difference({"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 0.0}) == 0.0


@given(MEANS, MEANS)
def test_it_is_bounded_and_fair(on: dict[str, float], off: dict[str, float]) -> None:
    found, turned = difference(on, off), difference(off, on)
    if found is None or turned is None:
        assert found is turned
    else:
        assert -1.0 <= found <= 1.0
        assert found == pytest.approx(-turned)


@given(MEANS, MEANS, st.none() | WAITS, st.none() | WAITS)
def test_one_user_makes_it_no_larger_than_the_others_do(
    on: dict[str, float], off: dict[str, float], ours: float | None, theirs: float | None
) -> None:
    """Mallory has any jobs with any waits in either block, or none."""
    steered_on = on if ours is None else {**on, "mallory": ours}
    steered_off = off if theirs is None else {**off, "mallory": theirs}
    steered = difference(steered_on, steered_off)
    if steered is None or (ours is None and theirs is None):
        return
    total, rest = sum(on.values()) / len(on), sum(off.values()) / len(off)
    honest = (total - rest) / (total + rest) if total + rest else 0.0
    assert steered <= max(honest, 0.0) + 1e-6
    assert steered >= min(honest, 0.0) - 1e-6


@given(st.lists(st.floats(-1, 1), max_size=30), st.floats(0, 1), st.floats(0, MAX_MARGIN))
def test_evidence_cannot_grow_on_average_while_on_and_off_are_alike(
    found: list[float], apart: float, margin: float
) -> None:
    evidence = Evidence()
    for one in found:
        evidence = evidence.after(one, margin)
    heads, tails = evidence.after(apart, margin), evidence.after(-apart, margin)
    assert (heads.value + tails.value) / 2 <= evidence.value * (1 + 1e-9)
    assert 1 + STAKE * (-1 - MAX_MARGIN / (2 + MAX_MARGIN)) > 0


def test_impossible_evidence_is_refused() -> None:
    assert Evidence().value == 1.0
    with pytest.raises(ValueError, match="impossible"):
        Evidence(-0.5)
