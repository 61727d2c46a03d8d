"""Delays, their bounds, what they count from, and what a job's reason says of them."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rltuned.core.backlog import LONGEST_S
from rltuned.core.decide import Decision, Entry, Knobs, decide
from rltuned.core.features import encode
from rltuned.core.numbers import Shortage, WriteMode, Writing
from rltuned.core.order import DEFAULT, Bound, Order, bounded, by_neutral, next_neutral
from rltuned.core.planning import own_priority
from rltuned.core.pools import Pools, numbered
from rltuned.core.refusals import counted
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Ownership, PendingJob, Request
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.snapshot import Context
from rltuned.domain.units import UnixTime
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.request import Requests
from tests.builders import NOW, job, node, running, snapshot, sure
from tests.loops import Bench
from tests.unit.slurm.rows import row

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


def of_users(*names: str) -> Pools:
    """Jobs of these users on one pool."""
    user, users = numbered(names)
    pool, one = np.zeros(len(names), dtype=np.int64), np.ones(1)
    return Pools(pool, user, users, np.ones((1, 1)), one, np.ones(len(names)))


def one_user(jobs: int) -> Pools:
    return of_users(*["ann"] * jobs)


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


ORDER = Order(own=1.0, share=0.0)
"""As long a delay as the limit."""
AGED = PrioritySystem("multifactor", ages=True, age_weight=60_480, max_age_s=7 * DAY)
UNAGED = PrioritySystem("multifactor", ages=False, age_weight=60_480, max_age_s=7 * DAY)
MODES: list[tuple[PrioritySystem, WriteMode]] = [
    (AGED, "site_factor"), (AGED, "priority"), (UNAGED, "site_factor")
]  # fmt: skip


def niced(job_id: int, base: int, nice: int) -> PendingJob:
    """Of a site that gives its jobs so many points."""
    left = base - nice
    numbers = {"priority": max(1, left), "base": left, "rest": left - 60, "nice": nice}
    return job(job_id, time_limit_s=DAY, live=True, **numbers)  # type: ignore[arg-type]


def decided(system: PrioritySystem, mode: WriteMode, *jobs: PendingJob) -> Decision:
    seen = snapshot(*jobs, priorities=system)
    return decide(seen, BASELINES["sjf"], Knobs(order=ORDER, writing=Writing(mode=mode)))


@pytest.mark.parametrize(("system", "mode"), MODES)
def test_nice_of_a_user_is_no_shortage_of_the_site(system: PrioritySystem, mode: WriteMode) -> None:
    """In review one job with --nice raised the alert, whose line for slurm.conf was that nice."""
    found = decided(system, mode, niced(1, 200_000, 2_000_000), niced(2, 200_000, 0))
    assert found.short == Shortage()


@pytest.mark.parametrize(("system", "mode"), MODES)
def test_a_site_without_room_is_short_whatever_users_take_off(
    system: PrioritySystem, mode: WriteMode
) -> None:
    short = [job(n, time_limit_s=60.0, priority=200_000) for n in range(10, 20)]
    plain = decided(system, mode, *short, niced(2, 60, 0)).short
    assert plain.jobs == 1
    found = decided(system, mode, *short, niced(2, 60, 0), niced(1, 60, 2_000_000)).short
    assert (found.jobs, found.points) == (2, plain.points)


def test_a_job_waits_since_it_was_eligible_or_submitted_whichever_is_later() -> None:
    early = job(1, submitted_at=NOW - 600, eligible_at=UnixTime(NOW - 900))
    late = job(2, submitted_at=NOW - 7 * 86_400, eligible_at=UnixTime(NOW - 30))
    never = job(3, submitted_at=NOW - 600, eligible_at=None)
    soon = job(4, submitted_at=NOW - 600, eligible_at=UnixTime(NOW + 60))
    assert [j.waits_since for j in (early, late, never)] == [NOW - 600, NOW - 30, NOW - 600]
    assert soon.waited_s(NOW) == 0.0
    run = running(9, submitted_at=UnixTime(NOW - 9_000), eligible_at=UnixTime(NOW - 1_300))
    assert run.waits_since == NOW - 1_300
    assert replace(run, submitted_at=None).waits_since is None


def test_begin_buys_no_age() -> None:
    bought = job(1, submitted_at=NOW - 7 * 86_400, eligible_at=UnixTime(NOW - 30))
    honest = job(2, submitted_at=NOW - 600)
    seen = snapshot(bought, honest, nodes=[node()])
    matrix = encode(seen.pending, seen)
    assert matrix.wait_s.tolist() == [30.0, 600.0]
    alike = job(3, submitted_at=NOW - 30)
    other = encode((alike,), snapshot(alike, nodes=[node()]))
    assert np.array_equal(matrix.values[0], other.values[0])
    scores = BASELINES["fcfs"].score(matrix)
    assert scores[1] > scores[0]


def ranged(**changed: str) -> Request:
    asks = {"numnodes": "4", "tres_per_node": "gres:gpu:4", "numcpus": "1", "numtasks": "1"}
    asks |= {"tres_alloc": "cpu=1,mem=500M,node=1,billing=1"} | changed
    requests = Requests(frozenset(), memory_counts=True, roomiest={"gpu": Resources(0, 16, 64_000)})
    return requests.read(row(**asks), running=False)


def test_a_node_range_fits_by_its_minimum_and_counts_by_its_middle() -> None:
    asked = ranged()
    assert (asked.nodes, asked.nodes_most, asked.total.gpus) == (1, 4, 4)
    assert asked.size.gpus == 12
    seen = snapshot(job(1, asks=asked), nodes=[node("p1"), node("p2", free_gpus=0)])
    matrix = encode(seen.pending, seen)
    assert matrix.column("can_schedule_now").tolist() == [1.0]
    assert matrix.gpus.tolist() == [12.0]


@pytest.mark.parametrize(
    "changed",
    [
        {"numnodes": "2", "numcpus": "32", "numtasks": "32"},  # 32 CPUs need two nodes of 16
        {"numnodes": "2", "numcpus": "8", "numtasks": "8", "mincpus": "4"},  # --ntasks-per-node=4
        {"numnodes": "1"},
    ],
)
def test_more_nodes_than_were_asked_for_are_no_range_where_the_tasks_need_them(
    changed: dict[str, str],
) -> None:
    asked = ranged(**changed)
    assert (asked.nodes, asked.nodes_most) == (int(changed["numnodes"]), None)
    assert asked.size == asked.total


MULTIFACTOR = PrioritySystem("multifactor", ages=True, age_weight=60_480)


def entry(**changed: object) -> Entry:
    known = Entry(
        job(7, submitted_at=NOW - 60.0, time_limit_s=420.0), delay_s=600.0, upper_s=900.0,
        in_force_s=600.0, rank_before=14, rank_wished=2, current=1, proposed=2, settled=2,
        changes=True, placement=None, sla=None, wait_s=60.0, fits=True, length="short",
    )  # fmt: skip
    return replace(known, **changed)  # type: ignore[arg-type]


def test_a_job_that_was_lifted_stays_lifted_until_it_starts(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.loop().run(3)
    last = sure(bench.received.reports[-1].decision)
    assert not last.plan.actions
    assert {e.job.job_id: (e.rank_before, e.rank_wished) for e in last.entries} == {
        3: (3, 1),
        2: (2, 2),
        1: (1, 3),
    }


@pytest.mark.parametrize(
    ("seen", "own"),
    [
        (job(1, priority=1_000), 1_000),
        (job(1, priority=1_041, site_factor=41, owned=Ownership("site_factor", 41, original=0)),
         1_000),
        (job(1, priority=960, site_factor=-41, owned=Ownership("site_factor", -41, original=5),
             base=1_001), 1_006),
        (job(1, priority=5_000, owned=Ownership("priority", 5_000, original=900, rest=700)), 760),
        (job(1, priority=77, owned=Ownership("priority", 5_000, original=900)),
         77),
    ],
)  # fmt: skip
def test_rltuned_is_taken_out_of_a_priority(seen: object, own: int) -> None:
    assert own_priority(seen, MULTIFACTOR, NOW) == own  # type: ignore[arg-type]


def test_the_reason_names_the_move_and_the_bound() -> None:
    up = entry()
    assert up.why == (
        "moves up 12 places: short (7m), 1 GPU, waited 1m, fits now; may be overtaken by jobs "
        "that arrive within 9m from now"
    )
    down = entry(rank_before=2, rank_wished=3, length="long", fits=False)
    assert down.why.startswith("moves down 1 place: long (7m), 1 GPU, waited 1m, does not fit now")
    passed = entry(rank_before=2, rank_wished=3, length="short")
    assert passed.what == "limit 7m, 1 GPU"  # a short job that shorter ones pass
    still = entry(rank_before=2, delay_s=0.0, length="short")
    assert still.moves == "keeps place 2"
    assert still.what == "limit 7m, 1 GPU"
    assert still.bound == "no job that arrives from now on may overtake it"


def test_reasons_of_several_jobs_are_words() -> None:
    counts = {"too_young": 26, "held_user": 3}
    assert counted(counts) == "26 submitted moments ago, 3 held by their user"
