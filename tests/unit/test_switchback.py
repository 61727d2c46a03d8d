"""When delays are on, by a coin that nobody can foresee, and what waits in both blocks prove."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.ladder import LIMIT, MAX_MARGIN, STAKE, Evidence, Switchback, difference
from rltuned.core.numbers import WriteMode, Writing
from rltuned.core.refusals import Refusal
from rltuned.core.select import Scope
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import PRIORITY, RELEASE, SITE_FACTOR
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.snapshot import Context
from tests.builders import NOW, basic, job, snapshot, sure
from tests.fakes import ConstantOrder
from tests.switchback_world import MARGIN, World, alarm_day, switchback_at, values

HOUR_S = 3_600.0
AGING = PrioritySystem("multifactor", ages=True, age_weight=100_000, max_age_s=14 * 86_400.0)
UNAGED = PrioritySystem("multifactor")
NEUTRAL = NeutralDelay(600.0, NOW - HOUR_S, 600.0, NOW - HOUR_S)
ORDER = ConstantOrder((2, 1))


def test_a_pair_has_one_block_on_and_one_off_and_a_washout_in_each() -> None:
    switchback = Switchback("salt", block_s=4 * HOUR_S, washout_s=HOUR_S)
    first = switchback.block("gpu", NOW)
    start = first.pair_begins_at
    early, late = (switchback.block("gpu", start + hours * HOUR_S) for hours in (0.0, 4.0))
    assert early.on is not late.on
    assert early.pair == late.pair == first.pair
    assert early.counts_from == start + HOUR_S
    assert early.ends_at == start + 4 * HOUR_S
    assert (late.counts_from, late.ends_at) == (start + 5 * HOUR_S, early.pair_ends_at)
    assert switchback.block("gpu", start - 1).pair == first.pair - 1
    assert switchback.block("gpu", start + 4 * HOUR_S - 1) == early


def test_the_coin_is_fair_and_pairs_partitions_and_salts_have_their_own() -> None:
    pairs = np.arange(4_000) * 8 * HOUR_S + NOW

    def drawn(salt: str, partition: str) -> np.ndarray:
        found = [Switchback(salt).block(partition, at) for at in pairs]
        assert all(block.measured for block in found)
        begins = [block.pair_begins_at for block in found]
        return np.array([Switchback(salt).block(partition, at).on for at in begins])

    one, two, other = drawn("a", "gpu"), drawn("a", "long"), drawn("b", "gpu")
    for coins in (one, two, other):
        assert coins.mean() == pytest.approx(0.5, abs=0.03)
        assert (coins[1:] == coins[:-1]).mean() == pytest.approx(0.5, abs=0.03)
    assert (one == two).mean() == pytest.approx(0.5, abs=0.03)
    assert (one == other).mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_as_much_of_the_time_is_off_as_was_reported(share: float) -> None:
    switchback = Switchback("salt", off_share=share)
    found = [switchback.block("gpu", NOW + 2 * HOUR_S * n) for n in range(16_000)]
    assert np.mean([not b.on for b in found]) == pytest.approx(share, abs=0.01)
    assert all(b.measured for b in found if not b.on)


def test_a_job_of_several_partitions_is_left_alone_while_one_of_them_is_off() -> None:
    switchback = switchback_at(NOW, on=False)
    on = next(n for n in map(str, range(100)) if switchback.block(n, NOW).on)
    assert switchback.off((on, "gpu"), NOW) == "gpu"
    assert switchback.off((on,), NOW) is None


@pytest.mark.parametrize(
    ("block_s", "washout_s", "share"), [(60, 60, 0.5), (60, -1, 0.5), (9, 1, 1)]
)
def test_blocks_that_make_no_sense_are_refused(
    block_s: float, washout_s: float, share: float
) -> None:
    with pytest.raises(ValueError, match="of"):
        Switchback("", block_s, washout_s, share)


def decided(
    system: PrioritySystem, *jobs: PendingJob, on: bool, mode: WriteMode = "site_factor"
) -> Decision:
    seen = snapshot(*jobs, priorities=system)
    rules = Scope(switchback=switchback_at(NOW, on=on))
    knobs, context = Knobs(rules, writing=Writing(mode=mode)), Context(neutral=NEUTRAL)
    return decide(seen, ORDER, knobs, context=context)


def test_in_an_off_block_every_job_gets_its_own_number_back() -> None:
    factor = job(
        1, priority=9_000, site_factor=-40, owned=Ownership("site_factor", -40, original=3)
    )
    frozen = job(
        2, priority=77, fixed=True, nice=0, owned=Ownership("priority", 77, nice=5, original=80)
    )
    found = decided(AGING, factor, job(3, priority=9_000), on=False)
    assert dict(found.refused) == {1: Refusal.OFF_BLOCK, 3: Refusal.OFF_BLOCK}
    (action,) = found.plan.actions
    assert action.field is SITE_FACTOR
    assert (action.target.job_id, action.new) == (1, 3)
    found = decided(AGING, frozen, on=False, mode="priority")
    assert [action.field for action in found.plan.actions] == [RELEASE]


def test_under_basic_jobs_of_an_off_block_stand_by_their_waiting_alone() -> None:
    """A job without a number of ours would stand behind all that have one."""
    jobs = [job(n, submitted_at=NOW - 600.0 * (4 - n)) for n in (1, 2, 3)]
    found = decided(PrioritySystem(), *jobs, on=False, mode="priority")
    assert found.refused == ()
    assert {int(a.target.job_id): a.new for a in found.plan.actions if a.field is PRIORITY} == {
        int(j.job_id): basic(0.0, eligible_at=j.submitted_at) for j in jobs
    }
    assert [entry.job.job_id for entry in found.entries] == [1, 2, 3]
    assert found.delays.bound_on(0) is None, "no bound keeps a delay that nobody wishes"
    assert sure(found.neutral).delay_s == NEUTRAL.delay_s, "what was withdrawn moves no median"


def test_without_slurms_own_age_an_off_block_is_by_waiting_too() -> None:
    jobs = [job(n, submitted_at=NOW - 600.0 * (4 - n), priority=2_000) for n in (1, 2, 3)]
    found = decided(UNAGED, *jobs, on=False)
    assert found.refused == ()
    assert [entry.job.job_id for entry in found.entries] == [1, 2, 3]
    assert {entry.delay_s for entry in found.entries} == {0.0}


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
