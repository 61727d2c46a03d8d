"""The canary's statistic: seldom wrong whatever the queue does, and it does find harm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.evidence import LIMIT, MAX_MARGIN, STAKE, Evidence, block_jobs, worse_share
from scripts.canary_study import MARGIN, alarm_at


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_a_treatment_that_does_nothing_is_hardly_ever_blamed(fraction: float) -> None:
    rng = np.random.default_rng(20261121)
    trials, blocks = 200, 100
    alarms = sum(
        alarm_at(rng, blocks, fraction=fraction, harm=1.0) is not None for _ in range(trials)
    )
    # looked at after every block; the bound is blocks / LIMIT = 10 % of the trials
    assert alarms / trials <= blocks / LIMIT / 2


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_a_treatment_that_triples_the_waits_is_found(fraction: float) -> None:
    rng = np.random.default_rng(7)
    found = [alarm_at(rng, 200, fraction=fraction, harm=3.0) for _ in range(20)]
    assert all(block is not None for block in found)


def test_a_long_good_time_does_not_hide_a_bad_one() -> None:
    evidence = Evidence()
    for _ in range(10_000):
        evidence = evidence.after(0.2, MARGIN)
    blocks = 0
    while not evidence.is_enough:
        evidence = evidence.after(0.9, MARGIN)
        blocks += 1
    assert blocks <= 25


@given(
    st.lists(st.floats(0, 1e6), max_size=8),
    st.lists(st.floats(0, 1e6), max_size=8),
)
def test_the_share_is_that_of_the_pairs(treated: list[float], control: list[float]) -> None:
    pairs = [1.0 if t > c else 0.5 if t == c else 0.0 for t in treated for c in control]
    share = worse_share(treated, control)
    assert share is None if not pairs else share == pytest.approx(sum(pairs) / len(pairs))


@given(st.lists(st.sampled_from((0.0, 0.25, 0.5, 0.75, 1.0)), max_size=6))
def test_evidence_cannot_grow_on_average_while_the_share_is_a_half(shares: list[float]) -> None:
    evidence = Evidence()
    for share in shares:
        evidence = evidence.after(share, MARGIN)
    won = 1 + STAKE * (1.0 - 0.5 - MARGIN)
    lost = 1 + STAKE * (0.0 - 0.5 - MARGIN)
    assert lost > 0
    assert 0.5 * evidence.value * (won + lost) <= evidence.value
    assert 1 + STAKE * (0.0 - 0.5 - MAX_MARGIN) > 0


def test_blocks_hold_some_of_the_smaller_side_and_no_trial_is_one_sided() -> None:
    assert [block_jobs(f) for f in (0.1, 0.5, 0.9)] == [50, 10, 50]
    with pytest.raises(ValueError, match="nobody to compare with"):
        block_jobs(1.0)


def test_evidence_below_one_is_none() -> None:
    with pytest.raises(ValueError, match="below 1"):
        Evidence(0.5)
