"""Delays as Slurm's numbers, by hand; written again when the worth of a second changes."""

from dataclasses import replace

import numpy as np
import pytest

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.numbers import EPOCH_S, Numbers, Writing, numbers_of, settle
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import MAX_PRIORITY, PRIORITY, SITE_FACTOR, Field
from rltuned.domain.priority import HIGHEST_BASIC, NeutralDelay, PrioritySystem
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.domain.units import UnixTime
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, snapshot, sure

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


def test_of_one_user_first_writes_come_first_then_the_largest_errors() -> None:
    queue = [owned(1, 100.0), owned(2, 100.0), waiting(3, priority=9_000)]
    found = replace(numbers(*queue), user=np.zeros(3, dtype=np.int64), users=1)
    for cap, written in enumerate([set(), {2}, {1, 2}, {0, 1, 2}]):
        value, _ = settled(found, [5_000.0, 9_000.0, 500.0], max_changes=cap)
        assert {at for at in range(3) if value[at] != found.value[at]} == written


BEFORE = PrioritySystem("multifactor", ages=True, age_weight=60_480, max_age_s=7 * DAY)
LIMITS = (1, 5, 12, 30, 240)
"""Days. The middle is the neutral delay: what stands near it is within the hysteresis."""


def seen() -> Snapshot:
    jobs = [
        job(n, site_factor=0, priority=10_000_000, time_limit_s=days * DAY)
        for n, days in enumerate(LIMITS, start=1)
    ]
    return snapshot(*jobs, priorities=BEFORE)


KNOBS = Knobs(Scope(), Order(share=0.0))


def decided(shown: Snapshot, neutral: NeutralDelay | None = None, knobs: Knobs = KNOBS) -> Decision:
    return decide(shown, BASELINES["delay"], knobs, context=Context(neutral=neutral))


def written(shown: Snapshot, decision: Decision) -> dict[int, int]:
    now = {int(j.job_id): j.site_factor or 0 for j in shown.pending}
    sets = [a for a in decision.plan.actions if a.field is SITE_FACTOR]
    return now | {int(a.target.job_id): a.new for a in sets}


def after(shown: Snapshot, decision: Decision, passed_s: float = 60.0) -> Snapshot:
    """The cluster after the plan was carried out."""
    values, at = written(shown, decision), shown.taken_at
    changed = {int(a.target.job_id) for a in decision.plan.actions}
    jobs = []
    for one in shown.pending:
        value = values[int(one.job_id)]
        mine = Ownership("site_factor", value, original=0, written_at=at)
        owned = mine if int(one.job_id) in changed else one.owned
        jobs.append(replace(one, site_factor=value, owned=owned))
    return replace(shown, pending=tuple(jobs), taken_at=UnixTime(at + passed_s))


@pytest.mark.parametrize("times", [10.0, 2.0, 0.1])
def test_a_change_of_slope_is_written_in_the_next_cycle(times: float) -> None:
    """In review what had stepped back stood at a tenth of its delay for good."""
    first = decided(seen())
    second = after(first.snapshot, first)
    assert decided(second, first.neutral).plan.is_empty
    steeper = replace(BEFORE, age_weight=int(BEFORE.age_weight * times))
    third = replace(second, priorities=steeper)
    rewritten = decided(third, first.neutral)
    for entry in rewritten.entries:
        off_s = abs(entry.current - entry.proposed) / steeper.slope
        if entry.job.owned is not None:  # another stands at the neutral delay, as before
            assert entry.changes or off_s <= 61.0, (entry.job.job_id, off_s)
    assert len(rewritten.plan.actions) >= 2
    fourth = after(third, rewritten)
    assert decided(fourth, rewritten.neutral).plan.is_empty, "once is enough"


def test_what_the_cap_leaves_is_written_in_the_cycle_after() -> None:
    found = decided(seen())
    second = after(found.snapshot, found)
    third = replace(second, priorities=replace(BEFORE, age_weight=10 * BEFORE.age_weight))
    whole = written(third, decided(third, found.neutral))
    knobs = replace(KNOBS, writing=replace(KNOBS.writing, max_changes=1))
    for _ in range(len(LIMITS)):
        found = decided(third, found.neutral, knobs)
        third = after(third, found)
    assert {int(j.job_id): j.site_factor for j in third.pending} == whole


def test_a_slope_that_was_not_known_before_changes_nothing() -> None:
    """As of a neutral delay that an older release kept."""
    first = decided(seen())
    older = NeutralDelay(sure(first.neutral).delay_s, NOW, sure(first.neutral).running_s, NOW)
    known = sure(decided(after(first.snapshot, first), older).neutral)
    assert known.slope == pytest.approx(BEFORE.slope)
    assert known.sloped_at == 0.0


def spread() -> tuple[Snapshot, Decision]:
    """A queue of unlike jobs after a first cycle, and that cycle."""
    jobs = [
        job(n, user=f"u{n}", site_factor=0, priority=10_000_000, time_limit_s=hours * 3_600.0)
        for n, hours in enumerate((1, 8, 24, 96, 240), start=1)
    ]
    first = decided(snapshot(*jobs, priorities=BEFORE))
    return after(first.snapshot, first), first


@pytest.mark.parametrize("times", [0.7, 1.4])
def test_a_change_of_request_is_written_in_the_next_cycle(times: float) -> None:
    """Within the hysteresis, which is for wishes that swing: in review 1 -> 3 GPUs was not."""
    second, first = spread()
    longest = second.pending[-1]
    assert longest.owned is not None
    asks = replace(longest.request, time_limit_s=times * 240 * 3_600.0)
    for at, changes in ((0.0, False), (float(second.taken_at), True)):
        changed = replace(longest, request=asks, changed_at=at)
        third = replace(second, pending=(*second.pending[:-1], changed))
        decision = decided(third, first.neutral)
        entry = next(e for e in decision.entries if e.job.job_id == longest.job_id)
        assert entry.changes is changes
        if changes:
            assert entry.settled == entry.proposed
            assert decided(after(third, decision), decision.neutral).plan.is_empty


def test_a_change_of_the_neutral_delay_is_written_in_the_next_cycle_and_once() -> None:
    second, first = spread()
    assert first.neutral is not None
    now = float(second.taken_at)
    moved = replace(first.neutral, delay_s=1.3 * first.neutral.delay_s, since=now, seen_at=now)
    decision = decided(second, moved)
    written_again = [e for e in decision.entries if e.job.owned is not None]
    assert written_again
    assert all(e.changes for e in written_again)
    assert decided(after(second, decision), decision.neutral).plan.is_empty
