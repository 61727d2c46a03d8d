"""When delays are on: blocks in pairs, by a coin that no user can foresee."""

import numpy as np
import pytest

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.ladder import Switchback
from rltuned.core.numbers import WriteMode, Writing
from rltuned.core.refusals import Refusal
from rltuned.core.select import Scope
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import PRIORITY, RELEASE, SITE_FACTOR
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.snapshot import Context
from tests.builders import NOW, basic, job, snapshot, sure
from tests.fakes import ConstantOrder
from tests.switchback_world import switchback_at

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


def test_in_an_on_block_delays_are_written() -> None:
    found = decided(AGING, job(1, priority=9_000), job(2, priority=9_000), on=True)
    assert {action.field for action in found.plan.actions} == {SITE_FACTOR}
    assert found.refused == ()


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
