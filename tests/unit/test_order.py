"""Delays and their bounds, by hand."""

import math

import numpy as np
import pytest

from rltuned.core.backlog import LONGEST_S
from rltuned.core.decide import Knobs, decide
from rltuned.core.features import encode
from rltuned.core.order import DEFAULT, Bound, Order, bounded, by_neutral, next_neutral
from rltuned.core.pools import Pools, numbered
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.snapshot import Context
from rltuned.errors import PolicyError
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, node, snapshot, sure
from tests.fakes import BrokenPolicy

HOUR, DAY = 3_600.0, 86_400.0


def delays(rule: str, *jobs: PendingJob, order: Order = DEFAULT) -> list[float]:
    seen = snapshot(*jobs, nodes=[node("p1", gpus=4, cpus=16), node("c1", gpus=0, cpus=16)])
    found: list[float] = bounded(
        BASELINES[rule], encode(seen.pending, seen), order
    ).delay_s.tolist()
    return found


def test_the_rule_delay_has_a_part_of_the_job_and_a_part_of_the_queue() -> None:
    """A tenth of an hour on the root of four GPUs; half of 0.75 x half an hour of work."""
    assert delays("delay", job(1, gpus=4, time_limit_s=HOUR)) == [
        pytest.approx(0.1 * HOUR * 2 + 0.75 * 0.5 * (0.5 * HOUR))
    ]


def test_classic_rules_as_delays() -> None:
    one = job(1, gpus=4, time_limit_s=HOUR)
    free = Order(own=1.0, share=0.0, clip=1e9, max_delay_s=1e9)
    assert delays("fcfs", one, order=free) == [0.0]
    assert delays("sjf", one, order=free) == [HOUR]
    assert delays("saf", one, order=free) == [4 * HOUR]
    assert delays("smallest", one, order=free) == [4 * HOUR]
    assert delays("multifactor", one, order=free) == [0.0]


def test_a_job_that_fits_now_is_not_delayed_by_fit_first() -> None:
    fits, wide = job(1, gpus=1, time_limit_s=HOUR), job(2, gpus=64, time_limit_s=HOUR)
    assert delays("fit_first", fits, wide, order=Order(share=0.0)) == [0.0, 8 * HOUR]


def test_no_policy_asks_for_more_than_the_clip_or_max_delay() -> None:
    order = Order(own=100.0, share=0.0, clip=1.0, max_delay_s=2 * DAY)
    short, long = job(1, gpus=4, time_limit_s=60.0), job(2, gpus=1, time_limit_s=30 * DAY)
    assert delays("saf", short, long, order=order) == [120.0, 2 * DAY]


def test_a_job_that_has_no_room_below_bounds_no_other() -> None:
    niced, plain = job(1, nice=10**9, time_limit_s=HOUR), job(2, time_limit_s=HOUR)
    seen = snapshot(niced, plain)
    matrix = encode(seen.pending, seen)
    found = bounded(BASELINES["sjf"], matrix, Order(own=1.0, share=0.0)).within(
        np.array([-1e9, 1_800.0])
    )
    assert found.delay_s.tolist() == [0.0, 1_800.0]
    assert found.upper_s.tolist() == [HOUR, HOUR]  # what is in force may drift with the fair share


@pytest.mark.parametrize("share", [0.0, 0.75, 4.0])
@pytest.mark.parametrize("clip", [0.5, 1.0])
def test_what_bounds_a_delay_is_the_clip_with_the_backlog_and_max_delay(
    share: float, clip: float
) -> None:
    order = Order(own=50.0, share=share, clip=clip, max_delay_s=20 * HOUR)
    jobs = [job(n, gpus=n, time_limit_s=n * n * HOUR) for n in (1, 2, 3, 4)]
    seen = snapshot(*jobs)
    matrix = encode(seen.pending, seen)
    found = bounded(BASELINES["delay"], matrix, order)
    clip_s = clip * matrix.length_s * np.sqrt(matrix.size) + share * matrix.backlog_s
    assert found.upper_s.tolist() == np.minimum(clip_s, 20 * HOUR).tolist()
    assert found.delay_s.tolist() == found.upper_s.tolist()
    kinds = [Bound.CLIP if held < 20 * HOUR else Bound.MAX_DELAY for held in clip_s.tolist()]
    assert [found.bound_on(row) for row in range(4)] == kinds


def test_no_limit_is_never_cheaper_than_the_longest_one() -> None:
    free = Order(own=1.0, share=0.0, clip=1.0, max_delay_s=1e9)
    for limit_s in (None, math.inf, 365 * DAY, LONGEST_S):
        assert delays("delay", job(1, gpus=1, time_limit_s=limit_s), order=free) == [LONGEST_S]
    assert delays("delay", job(1, gpus=1, time_limit_s=7 * DAY), order=free) == [7 * DAY]


def test_a_job_without_gpus_is_as_large_as_its_cpus() -> None:
    free = Order(own=1.0, share=0.0, clip=1e9, max_delay_s=1e9)
    # the partition has 32 CPUs for 4 GPUs: 8 CPUs stand for one GPU
    assert delays("saf", job(1, gpus=0, cpus=32, time_limit_s=HOUR), order=free) == [4 * HOUR]
    assert delays("saf", job(1, gpus=0, cpus=1, time_limit_s=HOUR), order=free) == [HOUR]


def test_a_deadline_gains_nothing_before_it_is_near_and_then_the_neutral_place() -> None:
    order, neutral_s = Order(share=0.0), HOUR / 2

    def asked(waited_s: float, slack_s: float, limit_s: float = 10 * HOUR) -> float:
        """Of a job whose deadline leaves it slack_s from now on."""
        one = job(
            1,
            time_limit_s=limit_s,
            submitted_at=NOW - waited_s,
            deadline_at=NOW + limit_s + slack_s,
        )
        seen = snapshot(one, job(2))
        matrix = encode(seen.pending, seen)
        found = by_neutral(bounded(BASELINES["delay"], matrix, order), matrix, neutral_s)
        return float(found.delay_s[[j.job_id for j in seen.pending].index(one.job_id)])

    assert asked(waited_s=30.0, slack_s=60.0) == HOUR, "a tight deadline buys no place"
    assert asked(waited_s=3 * HOUR, slack_s=4 * HOUR) == HOUR
    assert asked(waited_s=4 * HOUR, slack_s=4 * HOUR) == neutral_s, "half of the time has passed"
    assert asked(waited_s=9 * HOUR, slack_s=-HOUR) == HOUR, "one that cannot be met buys none"
    assert asked(waited_s=9 * HOUR, slack_s=0.0, limit_s=HOUR) == 0.1 * HOUR, "no later than before"


def test_delays_that_are_not_finite_are_refused() -> None:
    seen = snapshot(job(1))
    with pytest.raises(PolicyError, match="gave job 1 no finite own_s"):
        bounded(BrokenPolicy(), encode(seen.pending, seen), DEFAULT)


def of_users(*names: str) -> Pools:
    """Jobs of these users on one pool."""
    user, users = numbered(names)
    pool, one = np.zeros(len(names), dtype=np.int64), np.ones(1)
    return Pools(pool, user, users, np.ones((1, 1)), one, np.ones(len(names)))


def one_user(jobs: int) -> Pools:
    return of_users(*["ann"] * jobs)


def test_a_thousand_jobs_of_one_user_move_the_neutral_delay_as_one_does() -> None:
    """In review a thousand jobs of a minute set it to 6 s, from 17,280 s, for two weeks."""
    honest = np.linspace(0.8, 1.2, 13) * 17_280.0
    names = [f"u{n}" for n in range(13)]
    calm = next_neutral(None, honest, of_users(*names), 0.0)
    delays_s = np.concatenate([honest, np.full(1_000, 6.0)])
    flooded = next_neutral(None, delays_s, of_users(*names, *["eve"] * 1_000), 0.0)
    assert calm is not None
    assert calm.delay_s == 17_280.0
    assert sure(flooded).delay_s >= 0.97 * calm.delay_s


def after(before: NeutralDelay, delay_s: float, now: float) -> NeutralDelay:
    return sure(next_neutral(before, np.array([delay_s]), one_user(1), now))


def test_the_neutral_delay_is_the_first_median_and_stays_a_day() -> None:
    first = next_neutral(None, np.array([100.0, 200.0, 900.0]), one_user(3), 0.0)
    assert first == NeutralDelay(200.0, 0.0, 200.0, 0.0)
    assert next_neutral(None, np.zeros(0), one_user(0), 0.0) is None
    now, state = 0.0, NeutralDelay(200.0, 0.0, 200.0, 0.0)
    while now < 21 * DAY:
        now += HOUR
        state = after(state, 1_000.0, now)
        assert now >= DAY or state.delay_s == 200.0
    assert 0.75 * 1_000.0 <= state.delay_s <= 1_000.0


def test_a_neutral_delay_that_is_about_right_is_left_alone() -> None:
    state = NeutralDelay(1_000.0, 0.0, 1_000.0, 0.0)
    for hour in range(1, 24 * 30):
        state = after(state, 1_200.0, hour * HOUR)
    assert state.delay_s == 1_000.0


def test_one_excursion_of_the_clock_does_not_freeze_the_neutral_delay() -> None:
    """In review it stood until the clock had caught up with the month that it was ahead."""
    state = after(NeutralDelay(200.0, 0.0, 200.0, 0.0), 1_000.0, 30 * DAY)
    assert state.since == 30 * DAY
    state = after(state, 10.0, HOUR)
    for hour in range(2, 24 * 14):
        state = after(state, 10.0, hour * HOUR)
    assert state.delay_s < 500.0


def test_the_neutral_delay_grows_where_it_is_the_only_room_that_delays_have() -> None:
    """As on a site that orders by age alone, once its jobs have become longer."""
    aged = PrioritySystem("multifactor", ages=True, age_weight=60_480, max_age_s=7 * DAY)
    state, limit_s, waited_s = NeutralDelay(60.0, NOW, 60.0, NOW), 10 * DAY, 600.0
    for hour in range(1, 14 * 24):
        now = NOW + hour * HOUR
        waits = job(submitted_at=now - waited_s, time_limit_s=limit_s, priority=60)
        seen = snapshot(waits, taken_at=now, priorities=aged)
        found = decide(seen, BASELINES["delay"], Knobs(), context=Context(neutral=state))
        state = sure(found.neutral)
    assert state.delay_s > 0.5 * DEFAULT.own * limit_s


@pytest.mark.parametrize(
    "wrong", [{"own": -1.0}, {"share": -1.0}, {"clip": math.inf}, {"max_delay_s": -1.0}]
)
def test_impossible_bounds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="is not a number from 0 on"):
        Order(**wrong)
