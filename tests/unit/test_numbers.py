"""Delays as Slurm's numbers, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from rltuned.core.numbers import EPOCH_S, Numbers, Writing, numbers_of, settle
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import MAX_PRIORITY, PRIORITY, SITE_FACTOR, Field
from rltuned.domain.priority import HIGHEST_BASIC, PrioritySystem
from rltuned.domain.units import UnixTime
from tests.builders import NOW, job, sure

HOUR, DAY = 3_600.0, 86_400.0
AGED = PrioritySystem("multifactor", ages=True, age_weight=60_480, max_age_s=7 * DAY)
"""A tenth of a point for every second."""
UNAGED = PrioritySystem("multifactor", ages=False, age_weight=60_480, max_age_s=7 * DAY)
BASIC = PrioritySystem("basic")


def numbers(
    *jobs: PendingJob, system: PrioritySystem = AGED, field: Field = SITE_FACTOR, n: float = 0.0
) -> Numbers:
    return sure(numbers_of(jobs, system, field, now=NOW, neutral_s=n, own_slope=0.05))


def waiting(job_id: int = 1, waited_s: float = HOUR, **rest: object) -> PendingJob:
    return job(job_id, submitted_at=NOW - waited_s, **rest)  # type: ignore[arg-type]


def test_site_factor_where_slurmctld_ages() -> None:
    found = numbers(waiting(priority=5_000), n=1_000.0)
    assert found.of(np.array([0.0])).tolist() == [100]
    assert found.of(np.array([1_000.0])).tolist() == [0]
    assert found.of(np.array([3_609.0])).tolist() == [100 - 360]
    assert found.in_force_s().tolist() == [1_000.0]  # factor 0: the neutral delay


def test_a_factor_of_the_site_is_kept_and_ours_is_added() -> None:
    own = Ownership("site_factor", 450, original=500)
    found = numbers(waiting(priority=5_450, site_factor=450, owned=own))
    assert found.of(np.array([500.0])).tolist() == [450]
    assert found.in_force_s().tolist() == [500.0]
    assert numbers(waiting(site_factor=70)).of(np.array([0.0])).tolist() == [70]


def test_beyond_the_maximal_age_the_delay_runs_off() -> None:
    old = waiting(waited_s=9 * DAY)
    found = numbers(old)
    assert found.of(np.array([7 * DAY])).tolist() == [-int(0.1 * 5 * DAY)]
    assert found.of(np.array([DAY])).tolist() == [0]  # never above no delay at all
    # a little ahead, so that it is written once an hour
    odd = numbers(waiting(waited_s=7 * DAY + 100)).of(np.array([7 * DAY]))
    assert odd.tolist() == [-int(0.1 * (7 * DAY - HOUR))]


def test_age_counts_from_the_accrue_time() -> None:
    late = job(1, submitted_at=NOW - 9 * DAY, accrue_at=UnixTime(NOW - HOUR))
    assert numbers(late).of(np.array([7 * DAY])).tolist() == [-int(0.1 * 7 * DAY)]


def test_where_slurmctld_counts_no_age_rltuned_brings_it() -> None:
    found = numbers(waiting(waited_s=2 * HOUR), system=UNAGED, n=600.0)
    assert found.of(np.array([HOUR])).tolist() == [int(0.05 * (HOUR + 600))]
    assert found.drifts
    longest = numbers(waiting(waited_s=30 * DAY), system=UNAGED).of(np.array([0.0]))
    assert longest.tolist() == [int(0.05 * 7 * DAY)]


def test_priority_under_basic_counts_from_an_epoch() -> None:
    found = numbers(waiting(waited_s=0.0), system=BASIC, field=PRIORITY)
    epoch = (NOW // EPOCH_S - 1) * EPOCH_S
    expected = MAX_PRIORITY - int((NOW + 3_000 - epoch) // 60)
    assert found.of(np.array([3_000.0])).tolist() == [expected]
    assert expected > 4_294_901_759  # above all that slurmctld deals
    oldest = numbers(waiting(waited_s=90 * DAY), system=BASIC, field=PRIORITY)
    assert oldest.of(np.array([0.0])).tolist() == [MAX_PRIORITY]


def test_a_frozen_job_keeps_its_base_and_its_age() -> None:
    frozen = Ownership("priority", 4_000, nice=0, original=5_000, rest=4_280)
    ours = waiting(waited_s=3 * HOUR, priority=4_000, owned=frozen)
    found = numbers(ours, field=PRIORITY, n=100.0)
    assert found.of(np.array([0.0])).tolist() == [4_280 + 1_080 + 10]
    assert found.of(np.array([HOUR])).tolist() == [4_280 + 720 + 10]
    requeued = numbers(waiting(waited_s=0.0, priority=4_000, owned=frozen), field=PRIORITY)
    assert requeued.of(np.array([0.0])).tolist() == [4_280]
    new = numbers(waiting(priority=5_000), field=PRIORITY, n=100.0)
    assert new.of(np.array([100.0])).tolist() == [5_000]


def test_a_base_of_nothing_is_a_base() -> None:
    """Age alone counts, and a requeued job beyond MaxJobsAccruePU has none."""
    frozen = Ownership("priority", 4_000, nice=0, original=600, rest=0)
    ours = waiting(waited_s=0.0, priority=4_000, owned=frozen)
    assert numbers(ours, field=PRIORITY, n=100.0).of(np.array([0.0])).tolist() == [10]


def test_a_number_that_basic_never_gives_is_another_users() -> None:
    ours = Ownership("priority", MAX_PRIORITY - 40_000, original=HIGHEST_BASIC - 5)
    for number, known in {
        MAX_PRIORITY - 40_000: True,
        HIGHEST_BASIC - 900: True,  # after a hold and a release
        MAX_PRIORITY - 2: False,
        HIGHEST_BASIC + 1: False,
    }.items():
        assert ours.explains(number) is known
    assert Ownership("priority", 9, original=HIGHEST_BASIC, rest=5).explains(HIGHEST_BASIC + 1)


def test_the_longest_delay_keeps_a_new_job_at_one() -> None:
    found = numbers(waiting(priority=5_000), n=1_000.0)  # 360 of them are age
    assert found.longest_s.tolist() == [pytest.approx((5_000 - 360 + 100 - 1) / 0.1)]
    own = Ownership("site_factor", -9_000, original=0)  # clamped: only sprio tells the base
    known = numbers(waiting(priority=1, base=2_000, site_factor=-9_000, owned=own))
    assert known.longest_s.tolist() == [pytest.approx((2_000 - 360 - 1) / 0.1)]


def test_where_age_is_worth_nothing_nothing_can_be_written() -> None:
    no_weight = PrioritySystem("multifactor", ages=True)
    for field in (SITE_FACTOR, PRIORITY):
        found = numbers_of([job(1)], no_weight, field, now=NOW, neutral_s=0.0, own_slope=0.1)
        assert found is None
    assert numbers_of([job(1)], BASIC, SITE_FACTOR, now=NOW, neutral_s=0, own_slope=0.1) is None


def test_auto_writes_what_the_priority_plugin_reads() -> None:
    assert Writing().field(AGED) is SITE_FACTOR
    assert Writing().field(BASIC) is PRIORITY
    assert Writing(mode="priority").field(AGED) is PRIORITY


def settled(
    found: Numbers, delay_s: list[float], upper_s: float = 1e9, **writing: float
) -> tuple[list[int], list[int]]:
    upper = np.full(len(delay_s), upper_s)
    done = settle(found, np.array(delay_s), upper, Writing(**writing))  # type: ignore[arg-type]
    return done.value.tolist(), done.waiting.tolist()


def test_a_first_write_needs_less_hysteresis() -> None:
    """The neutral delay that a new job stands for is no choice of the policy's."""
    new = waiting(priority=5_000)
    neutral = numbers(new, n=10_000.0)
    for close in (7_500.0, 13_000.0):
        assert settled(neutral, [close], hysteresis=0.85) == ([0], [])
    for far in (6_000.0, 15_000.0):
        assert settled(neutral, [far], hysteresis=0.85)[0] != [0]
    assert settled(neutral, [8_500.0], hysteresis=0.1)[0] != [0]


def test_a_delay_within_the_hysteresis_is_not_written_again() -> None:
    own = Ownership("site_factor", -1_000, original=0)
    ours = waiting(priority=4_000, site_factor=-1_000, owned=own)  # 10,000 s in force
    for close in (7_500.0, 10_000.0, 13_000.0):
        assert settled(numbers(ours), [close], hysteresis=0.3) == ([-1_000], [])
    for far in (6_000.0, 15_000.0):
        assert settled(numbers(ours), [far], hysteresis=0.3) == ([-int(far / 10)], [])


def test_a_delay_beyond_its_bound_is_written_whatever_the_hysteresis() -> None:
    own = Ownership("site_factor", -1_000, original=0)
    ours = waiting(priority=4_000, site_factor=-1_000, owned=own)
    assert settled(numbers(ours), [9_000.0], upper_s=9_000.0) == ([-900], [])


def test_the_largest_errors_are_written_first() -> None:
    queue = [waiting(i, priority=5_000) for i in range(1, 4)]
    value, left = settled(numbers(*queue), [1_000.0, 9_000.0, 4_000.0], max_changes=2)
    assert value == [0, -900, -400]
    assert left == [0]


def test_when_the_epoch_changes_the_first_come_first() -> None:
    """What waits for the cap stands behind all that is written, and in its old order."""
    was = [MAX_PRIORITY - 60_000 - 61 * n for n in range(9)]
    queue = [
        waiting(
            n + 1, waited_s=HOUR * (9 - n), priority=number, owned=Ownership("priority", number)
        )
        for n, number in enumerate(was)
    ]
    of = numbers(*queue, system=BASIC, field=PRIORITY)
    for cap in range(10):
        value, left = settled(of, [600.0] * 9, max_changes=cap)
        assert left == list(range(cap, 9))
        assert value == sorted(value, reverse=True)


def test_a_drifting_number_is_refreshed_after_minutes() -> None:
    def after(minutes: float) -> list[int]:
        factor = int(0.05 * (2 * HOUR - 60 * minutes))
        own = Ownership("site_factor", factor, original=0)
        ours = waiting(waited_s=2 * HOUR, site_factor=factor, owned=own)
        return settled(numbers(ours, system=UNAGED), [0.0])[0]

    assert after(4) == [int(0.05 * (2 * HOUR - 240))]
    assert after(6) == [int(0.05 * 2 * HOUR)]


def owned(job_id: int, delay_s: float, *, user: str = "ann") -> PendingJob:
    """A job with the number of a delay."""
    value = -int(0.1 * delay_s)
    mine = Ownership("site_factor", value, original=0)
    return waiting(job_id, priority=9_000 + value, site_factor=value, owned=mine, user=user)


def test_no_user_holds_the_cap() -> None:
    """In review 24 jobs that toggled their limit kept everyone's first write waiting for ever."""
    toggled = [owned(n, 100.0, user="eve") for n in range(1, 25)]
    new = [waiting(100 + n, priority=9_000, user=name) for n, name in enumerate("ab")]
    found = numbers(*toggled, *new)
    user = np.array([0] * 24 + [1, 2])
    found = replace(found, user=user, users=3, stale=np.ones(26, dtype=bool))
    delays_s = [600_000.0] * 24 + [2_000.0] * 2
    value, left = settled(found, delays_s, max_changes=4)
    assert value[24:] == [-200, -200]
    assert len(left) == 22
    alone = replace(found, user=None, users=0)
    assert settled(alone, delays_s, max_changes=4)[0][24:] == [-200, -200], (
        "first writes come first"
    )


def test_of_one_user_first_writes_come_first_then_the_largest_errors() -> None:
    queue = [owned(1, 100.0), owned(2, 100.0), waiting(3, priority=9_000)]
    found = replace(numbers(*queue), user=np.zeros(3, dtype=np.int64), users=1)
    for cap, written in enumerate([set(), {2}, {1, 2}, {0, 1, 2}]):
        value, _ = settled(found, [5_000.0, 9_000.0, 500.0], max_changes=cap)
        assert {at for at in range(3) if value[at] != found.value[at]} == written


def test_a_job_beyond_its_budget_is_only_put_further_back() -> None:
    """In review the 29th change of its limit left a 7 d job 17,000 points above its place."""
    longer, shorter = owned(1, 100.0), owned(2, 90_000.0)
    found = replace(numbers(longer, shorter), spent=np.ones(2, dtype=bool))
    done = settle(found, np.array([60_000.0, 100.0]), np.full(2, 1e9), Writing())
    assert done.value.tolist() == [-6_000, -9_000]
    assert done.waiting.tolist() == []
    assert done.withheld.tolist() == [1]
