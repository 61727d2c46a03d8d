"""Expected starts, of arrays too: by hand where that can be done, and why a job has none."""

import math
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.cluster import Amounts
from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.forecast import (
    MOST_RESERVED,
    Arrival,
    Arrivals,
    PlayedJob,
    knots,
    play_forward,
    quantiles,
    runs_s,
)
from rltuned.core.lanes import Lane, RunningShares
from rltuned.core.line import (
    Line,
    advised_nodes,
    present_line,
    proposed_line,
    sentence,
)
from rltuned.core.order import Bound, Order
from rltuned.core.select import Scope
from rltuned.core.starts import (
    MOST,
    NEVER,
    TOO_FAR,
    Expected,
    Start,
    arrivals_of,
    expected_of,
    start_document,
    to_play,
)
from rltuned.daemon.forecasting import KNOWN_S, RecentArrivals
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import HealthState
from rltuned.daemon.web.board import Asker, Board
from rltuned.daemon.words import in_words
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import ArrayInfo, PendingJob, RunningJob
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import NO_CONTEXT, Context, RunTime, Snapshot
from rltuned.domain.units import JobId, NodeName, UnixTime
from rltuned.policies.baselines import BASELINES
from rltuned.text import between, ordinal
from tests.builders import NOW, job, looked_at, node, request, running, snapshot, sure
from tests.fakes import ConstantOrder

HOUR = 3_600.0
ANY_AGE = Knobs(rules=Scope(min_age_s=0.0), top_k=0)
TIMES = st.floats(1.0, 1e6)


def exactly(run_s: float) -> RunTime:
    return RunTime(run_s, run_s, run_s, run_s, run_s, 9)


def decided(seen: Snapshot, policy: str = "fcfs", context: Context = NO_CONTEXT) -> Decision:
    return decide(seen, BASELINES[policy], ANY_AGE, context=context)


def starts(
    seen: Snapshot, *runs: RunningJob, context: Context = NO_CONTEXT, draws: int = 24
) -> dict[int, Start]:
    """By job; running jobs end exactly at their limit."""
    decision = decided(replace(seen, running=runs), context=context)
    return of_line(proposed_line(decision), draws=draws)


def of_line(line: Line, draws: int = 24) -> dict[int, Start]:
    runs = line.snapshot.running
    known = {run.job_id: exactly(run.request.time_limit_s or 1.0) for run in runs}
    found = expected_of(line, known, draws=draws)
    every = ((int(job.job_id), found.start_of(job.job_id)) for job in line.snapshot.pending)
    return {job_id: start for job_id, start in every if start is not None}


def predicted(seen: Snapshot, run_s: float) -> Context:
    return Context(run_times={one.job_id: exactly(run_s) for one in seen.pending})


# -- Run times ------------------------------------------------------------------------------------


@given(
    st.tuples(TIMES, TIMES, TIMES),
    st.floats(60.0, 1e6),
    st.floats(0.0, 0.999),
    st.floats(0.01, 0.99),
)
def test_a_drawn_run_is_within_its_limit_and_not_shorter_than_what_it_ran(
    quantiles_s: tuple[float, float, float], limit_s: float, part: float, level: float
) -> None:
    a, b, c = sorted(quantiles_s)
    ran_s = part * limit_s
    row = knots(RunTime(b, b, a, b, c, 3), limit_s)
    found = runs_s([row], np.array([ran_s]), np.array([level]))[0]
    assert ran_s <= found <= limit_s + 1.0


def test_a_job_that_outlived_every_quantile_is_near_its_limit_or_goes_on_as_long_again() -> None:
    levels = np.linspace(0.01, 0.99, 99)
    limited = [knots(RunTime(60, 60, 30, 60, 120, 3), 10 * HOUR)] * 99
    found = runs_s(limited, np.full(99, 9 * HOUR), levels)
    assert found.min() >= 9 * HOUR
    assert found.max() <= 10 * HOUR
    endless = [knots(RunTime(60, 60, 30, 60, 120, 3), math.inf)] * 99
    found = runs_s(endless, np.full(99, 9 * HOUR), levels)
    assert found[49] == pytest.approx(9 * HOUR * 2 ** (1 / 1.5), rel=0.01)


def test_the_quantiles_of_a_fresh_job_are_those_of_its_prediction() -> None:
    row = knots(RunTime(600, 600, 60, 600, 6_000, 3), 100 * HOUR)
    found = runs_s([row] * 3, np.zeros(3), np.array([0.1, 0.5, 0.9]))
    assert found.tolist() == [60.0, 600.0, 6_000.0]


# -- Starts by hand -------------------------------------------------------------------------------


def test_the_next_in_line_starts_when_the_node_is_free_and_the_one_behind_it_after_that() -> None:
    seen = snapshot(
        job(1, gpus=4, submitted_at=NOW - 900), job(2, gpus=4), nodes=[node(free_gpus=0)]
    )
    run = running(gpus=4, started_at=NOW - HOUR / 2)
    found = starts(seen, run, context=predicted(seen, 600.0))
    one, two = found[1], found[2]
    assert (one.place, one.low_s, one.median_s) == (1, HOUR / 2, HOUR / 2)
    assert one.high_s is not None
    assert two.place == 2
    assert two.median_s == pytest.approx(HOUR / 2 + 600, abs=0.03 * HOUR)


def test_a_short_job_starts_beside_the_head_that_it_does_not_delay() -> None:
    head, short = job(1, gpus=4, submitted_at=NOW - 900), job(2, time_limit_s=0.4 * HOUR)
    seen = snapshot(head, short, nodes=[node(free_gpus=2)])
    run = running(gpus=2, started_at=NOW - HOUR / 2)
    assert starts(seen, run)[2].median_s == 0.0
    late = replace(short, request=request(time_limit_s=0.6 * HOUR))
    found = starts(replace(seen, pending=(head, late)), run)
    assert sure(found[2].low_s) > HOUR / 2


def test_the_second_that_waits_has_a_reservation_too() -> None:
    """Under EASY the long job would start at once: it does not delay the first in line."""
    nodes = (
        node("a1", gpu_type="a100", free_gpus=0),
        node("k1", gpu_type="k80", free_gpus=0),
        node("k2", gpu_type="k80"),
    )
    seen = snapshot(
        job(1, gpus=4, gpu_types=["a100"], priority=40),
        job(2, asks=request(gpus=8, gpu_types=["k80"], nodes=2), priority=30),
        job(3, gpus=4, gpu_types=["k80"], priority=20, time_limit_s=50 * HOUR),
        job(4, gpus=4, gpu_types=["k80"], priority=10, time_limit_s=HOUR),
        nodes=nodes,
    )
    runs = (
        running(101, node_name="a1", gpu_type="a100", gpus=4, time_limit_s=3 * HOUR),
        running(102, node_name="k1", gpu_type="k80", gpus=4, time_limit_s=3 * HOUR),
    )
    times = {JobId(n): exactly(s) for n, s in enumerate((HOUR, HOUR, 50 * HOUR, HOUR), 1)}
    found = starts(seen, *runs, context=Context(run_times=times))
    left_s = 3 * HOUR - 1_200.0
    assert [sure(found[n].median_s) for n in (1, 2, 4)] == pytest.approx(
        [left_s, left_s, 0.0], abs=60.0
    )
    assert sure(found[3].median_s) == pytest.approx(left_s + HOUR, abs=120.0)


def test_jobs_without_a_limit_start_one_after_the_other() -> None:
    endless = request(gpus=4, time_limit_s=None)
    found = starts(snapshot(job(1, asks=endless), job(2, asks=endless)))
    assert found[1].median_s == 0.0
    assert sure(found[2].median_s) > 0.0


def test_a_pass_reserves_for_a_bounded_number_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, openings = Counter[float](), RunningShares.openings

    def counted(of: RunningShares, lane: Lane, free: Amounts, now: float) -> Any:
        asked[now] += 1
        return openings(of, lane, free, now)

    monkeypatch.setattr(RunningShares, "openings", counted)
    names = [f"q{number}" for number in range(100)]
    waits = [
        job(at + 1, partition=names[at % 100], gpus=4, submitted_at=NOW - 900) for at in range(500)
    ]
    waits.append(job(900))
    nodes = [node("p1", partitions=names, free_gpus=1), node("p2")]
    starts(snapshot(*waits, nodes=nodes), running(gpus=3), draws=1)
    assert max(asked.values()) == MOST_RESERVED


def test_nodes_that_take_no_jobs_and_nodes_that_are_not_its_own_carry_none() -> None:
    down = [node("p1", schedulable=False), node("p2", free_gpus=0)]
    run = running(node_name="p2", gpus=4, started_at=NOW)
    assert starts(snapshot(job(1), nodes=down), run)[1].median_s == HOUR
    only = snapshot(job(1, required_nodes=(NodeName("p1"),)), nodes=down)
    assert starts(only, run)[1] == Start(JobId(1), 1, by_limits=True, why=NEVER)
    other = snapshot(job(1, excluded_nodes=(NodeName("p2"),)), nodes=down)
    assert starts(other, run)[1].why == NEVER


def test_what_arrives_later_stands_where_its_delay_puts_it() -> None:
    """Jobs of an hour come each half past; by their GPU time they have the delay of the shortest
    job in line, which is none.
    """
    seen = replace(snapshot(job(1)), running=(running(gpus=4, started_at=NOW),))
    seen = replace(seen, nodes=(node(free_gpus=0),))
    known = {JobId(100): exactly(HOUR)}
    came = Arrival(job(9, gpus=4, submitted_at=NOW), 0.5 * HOUR, exactly(HOUR))
    short, long = (job(n, gpus=4, submitted_at=NOW, time_limit_s=n * HOUR) for n in (1, 2))
    line = [PlayedJob(short, 0.0, exactly(HOUR)), PlayedJob(long, 3 * HOUR, exactly(2 * HOUR))]
    alone = play_forward(seen, line, known, draws=1)[0]
    beside = play_forward(seen, line, known, Arrivals((came,), HOUR), draws=1)[0]
    assert alone.tolist() == [HOUR, 2 * HOUR]
    # three of them are before it: those of half past 0, 1 and 2
    assert beside.tolist() == [HOUR, pytest.approx(5 * HOUR, rel=0.05)]


def test_as_many_plays_as_time_allows_and_never_too_few_for_an_interval() -> None:
    seen = snapshot(job(1))
    line = [PlayedJob(seen.pending[0], 0.0, None)]
    assert play_forward(seen, line, {}, draws=20).shape == (20, 1)
    assert play_forward(seen, line, {}, draws=20, late=lambda: True).shape == (6, 1)
    assert quantiles(np.full((6, 1), math.inf)).tolist() == [[math.inf]] * 3


def test_the_same_seed_gives_the_same_starts() -> None:
    seen = snapshot(*(job(n, gpus=2, user=f"u{n}") for n in range(1, 30)))
    line = [PlayedJob(one, 0.0, None) for one in seen.pending]
    one, two = (play_forward(seen, line, {}, draws=8, seed=s) for s in (1, 1))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, play_forward(seen, line, {}, draws=8, seed=2))


# -- Who has one ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waits", "why"),
    [
        ({"priority": 0, "held_by": "user"}, "its user holds it"),
        ({"priority": 0, "held_by": "admin"}, "an administrator holds it"),
        ({"dependency": "afterok:5", "reason": "Dependency"}, "it waits for another job"),
        ({"reason": "BeginTime"}, "it may not start yet (begin time)"),
        ({"reason": "QOSMaxJobsPerUserLimit"}, "; QOSMaxJobsPerUserLimit"),
        ({"reason": "AssocGrpGRES"}, "it waits for what no order of the queue gives it"),
        ({"reason": "PartitionTimeLimit"}, "no order of the queue can start it"),
        ({"reservation": "maint"}, "it waits for a reservation"),
    ],
)
def test_a_job_that_cannot_start_says_why_in_words(waits: dict[str, object], why: str) -> None:
    found = starts(snapshot(job(1), job(2, **waits)))  # type: ignore[arg-type]
    assert found[1].median_s == 0.0
    assert (found[2].place, found[2].median_s) == (0, None)
    assert why in found[2].why


def test_what_is_not_modelled_and_a_full_array_say_so() -> None:
    licensed = job(1, asks=replace(request(), outside=("licenses=matlab:2",)))
    part = job(2, het_job_id=JobId(2))
    array = ArrayInfo(JobId(3), 5, throttle=1, listed="1-5")
    task = running(33, array_job_id=JobId(3), array_task=0)
    found = starts(snapshot(licensed, part, job(3, array=array)), task)
    assert found[1].why == "it needs licences (matlab:2), and how many are free is not known"
    assert "heterogeneous" in found[2].why
    assert "tasks of its array" in found[3].why


@pytest.mark.parametrize(
    ("constraint", "start"),
    [
        ("fast", HOUR),
        ("fast&big", math.inf),
        ("fast|big", 0.0),
        ("nowhere", math.inf),
        ("big", 0.0),
    ],
)
def test_a_constraint_leaves_the_nodes_that_have_its_features(
    constraint: str, start: float
) -> None:
    nodes = [node("p1", free_gpus=0, features=("fast",)), node("p2", features=("big", "new"))]
    asks = replace(request(), outside=(f"constraint={constraint}",))
    found = starts(snapshot(job(1, asks=asks), nodes=nodes), running(gpus=4, started_at=NOW))[1]
    assert found.median_s == (None if math.isinf(start) else start)
    assert found.why == (NEVER if math.isinf(start) else "")


@pytest.mark.parametrize("constraint", ["[a|b]", "a*2&b", "a&(b|c)", "a&b|c", ""])
def test_a_constraint_that_is_not_understood_is_said(constraint: str) -> None:
    asks = replace(request(), outside=(f"constraint={constraint}",))
    found = starts(snapshot(job(1, asks=asks)))[1]
    assert (found.median_s, found.place) == (None, 1)
    assert f"its constraint is not understood ({constraint})" in found.why


def test_one_wish_that_is_not_modelled_is_enough() -> None:
    asks = replace(request(), outside=("constraint=a", "contiguous"))
    found = starts(snapshot(job(1, asks=asks), nodes=[node(features=("a",))]))[1]
    assert found.why == "it asks for what is not modelled (contiguous)"


def test_a_job_that_rltuned_does_not_order_and_that_cannot_start_says_so_too() -> None:
    """A job of a promised partition that waits for another stood in line."""
    waits = job(1, partition="sla", dependency="afterok:5", reason="Dependency")
    seen = snapshot(waits, nodes=[node(partitions=("gpu", "sla"))])
    decision = decide(
        seen, BASELINES["fcfs"], Knobs(rules=Scope(sla_partitions=frozenset({"sla"})))
    )
    found = of_line(proposed_line(decision))[1]
    assert (found.place, found.median_s, found.why) == (0, None, "it waits for another job")


def test_the_tasks_of_an_array_stand_in_line_and_its_first_start_is_shown() -> None:
    array = job(1, gpus=4, submitted_at=NOW - 900, array=ArrayInfo(JobId(1), 3, listed="0-2"))
    seen = snapshot(array, job(2, gpus=4))
    found = starts(seen, context=predicted(seen, 600.0))
    assert found[1].median_s == 0.0
    assert found[2].median_s == pytest.approx(1_800, abs=90)


def test_jobs_beyond_the_first_thousand_are_too_far_back() -> None:
    jobs = [job(n, submitted_at=NOW - 5_000 + n) for n in range(1, MOST + 3)]
    found = starts(snapshot(*jobs), draws=1)
    assert found[MOST].median_s is not None
    assert (found[MOST + 1].place, found[MOST + 1].why) == (MOST + 1, TOO_FAR)


def test_where_nothing_is_written_the_present_order_is_played() -> None:
    first = job(1, gpus=4, priority=10, time_limit_s=HOUR)
    second = job(2, gpus=4, priority=20, time_limit_s=9 * HOUR)
    seen = snapshot(first, second)
    context = predicted(seen, 600.0)
    present = of_line(present_line(seen, context))
    assert [(present[n].place, present[n].median_s) for n in (1, 2)] == [(2, 600.0), (1, 0.0)]
    decision = decide(seen, ConstantOrder((1, 2)), ANY_AGE, context=context)
    proposed = of_line(proposed_line(decision))
    assert [(proposed[n].place, proposed[n].median_s) for n in (1, 2)] == [(1, 0.0), (2, 600.0)]


def unpredicted() -> PendingJob:
    return job(7, submitted_at=UnixTime(NOW - 60))


def test_without_a_prediction_the_interval_is_by_limits() -> None:
    seen = snapshot(unpredicted(), nodes=[node(free_gpus=4)])
    assert starts(seen)[7].by_limits
    assert not starts(seen, context=predicted(seen, 60.0))[7].by_limits


# -- In words -------------------------------------------------------------------------------------


def at(hour: int, minute: int = 0, day: int = 26) -> float:
    return datetime(2026, 11, day, hour, minute).astimezone().timestamp()


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (at(14), at(17, 33), "14:00 to 17:35 today"),
        (at(9), at(9, 1), "now"),
        (at(9), at(11), "now to 11:00 today"),
        (at(22), at(3, day=27), "22:00 today to 03:00 tomorrow"),
        (at(8, day=28), at(9, 30, day=28), "08:00 to 09:30 Sat 28 Nov"),
        (at(14), None, "after 14:00 today"),
        (at(9), None, "at any time"),
    ],
)
def test_an_interval_in_words(low: float, high: float | None, words: str) -> None:
    assert between(low, high, at(9)) == words


def test_the_place_in_line_in_words() -> None:
    found = [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 112, 122)]
    assert found == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th", "122nd"]


ROOT = Asker("root", is_admin=True)


def array(number: int, tasks: int, listed: str = "", **more: object) -> PendingJob:
    info = ArrayInfo(JobId(number), tasks, listed=listed)
    address = f"{number}_[{listed}]" if listed else str(number)
    return replace(job(number, **more), array=info, address=address)  # type: ignore[arg-type]


def played(*jobs: PendingJob) -> tuple[dict[int, int], Expected]:
    """By record, how many of its tasks are played; and what is expected."""
    line = present_line(snapshot(*jobs, nodes=[node(gpus=4)]), NO_CONTEXT)
    todo, counts = to_play(line, {}, arrivals_of(line.snapshot, {})), dict[int, int]()
    for one in todo.line:
        counts[int(one.job.job_id)] = counts.get(int(one.job.job_id), 0) + 1
    return counts, expected_of(line, {}, draws=1)


def test_one_array_is_played_whole_where_there_is_room() -> None:
    """Before, 64 of its tasks, and not a word of the others."""
    counts, found = played(array(1, 300, priority=9), job(2, priority=8))
    assert counts == {1: 300, 2: 1}
    assert start_document(found, JobId(2))["expected_left_out"] == 0


def test_arrays_share_what_is_played_and_what_is_left_out_is_said() -> None:
    arrays = [array(n, 5_000, priority=10 - n) for n in (1, 2)]
    counts, found = played(*arrays, job(3, priority=1))
    assert counts == {1: 499, 2: 499, 3: 1}
    assert sum(counts.values()) <= MOST
    left_out = [start_document(found, JobId(n))["expected_left_out"] for n in (1, 2, 3)]
    assert left_out == [0, 4_501, 9_002]


def test_tasks_that_wait_for_tasks_of_their_own_array_are_left_out_too() -> None:
    first = array(1, 100, priority=9)
    bounded = replace(first, array=ArrayInfo(JobId(1), 100, throttle=4))
    counts, found = played(bounded, job(2, priority=8))
    assert counts[1] == 4
    assert sure(found.start_of(JobId(2))).left_out == 96


@pytest.mark.parametrize(
    ("asked", "is_known"),
    [("38_4", True), ("38", True), ("38_[4-20]", True), ("38_20", False), ("38_5", False)],
)
def test_of_a_task_that_is_not_the_next_one_no_start_is_told(asked: str, is_known: bool) -> None:
    """Before, `explain 38_20` told the start of 38_4."""
    seen = snapshot(array(38, 17, "4-20"), nodes=[node(gpus=4)])
    expected = expected_of(present_line(seen, NO_CONTEXT), {}, draws=1)
    made = Board(lambda: NOW, expected=lambda: expected)
    made.cycle(CycleReport(1, NOW, HealthState.OBSERVE, {}, seen))
    found = made.explain(asked, ROOT)["job"]
    assert (found["expected_start"] is not None) == is_known
    assert found["line_place"] == 1
    text = "\n".join(in_words(found))
    said = f"the next task of its array, 38_4: of task {asked.partition('_')[2]} nothing is known"
    assert (said in text) != is_known


def looked(*looks: Snapshot) -> int:
    """How many jobs come in a forecast after these looks, an hour apart from the last one."""
    watched = RecentArrivals()
    watched.look(snapshot(taken_at=NOW - 1_000.0), {})
    for seen in looks:
        watched.look(seen, {})
    late = snapshot(taken_at=NOW + 2 * KNOWN_S)
    watched.look(late, {})
    return len(watched.arrivals(late, {}).jobs)


def test_an_array_arrives_as_the_jobs_that_it_stands_for() -> None:
    came = UnixTime(NOW - 100.0)
    jobs = [job(n, submitted_at=came) for n in range(1, 51)]
    whole = array(1, 50, submitted_at=came)
    assert looked(snapshot(*jobs)) == looked(snapshot(whole)) == 50
    assert len(arrivals_of(snapshot(whole), {}).jobs) == 50
    # its tasks that run by then are no new ones
    runs = [running(100 + n, array_job_id=JobId(1), submitted_at=came) for n in range(20)]
    rest = snapshot(array(1, 30, submitted_at=came), runs=runs, taken_at=NOW + 60.0)
    assert looked(snapshot(whole), rest) == 50
    begun = snapshot(array(1, 30, submitted_at=came), runs=runs)
    assert looked(begun) == 50


ALONE = Order(own=1.0, share=0.0)


def test_the_bound_that_holds_a_job_is_named() -> None:
    order = Order(own=1.0, share=0.0, clip=1.0, max_delay_s=10 * HOUR)
    jobs = [
        job(1, gpus=16, time_limit_s=HOUR),  # saf asks for 16 h, the clip allows 4
        job(2, gpus=1, time_limit_s=90 * HOUR),
        job(3, gpus=1, time_limit_s=HOUR),
        job(4, gpus=1, time_limit_s=HOUR, deadline_at=NOW + HOUR),
    ]
    neutral = NeutralDelay(60.0, NOW, 60.0, NOW)
    context = Context(neutral=neutral)
    found = decide(snapshot(*jobs), BASELINES["saf"], Knobs(order=order), context=context)
    rows = {int(j.job_id): i for i, j in enumerate(found.matrix.jobs)}
    named = {job_id: found.delays.bound_on(row) for job_id, row in rows.items()}
    assert named == {1: Bound.CLIP, 2: Bound.MAX_DELAY, 3: None, 4: Bound.DEADLINE}


def test_the_sentence_says_how_long_why_and_what_it_promises() -> None:
    jobs = [job(1, gpus=4, time_limit_s=6 * HOUR), job(2, gpus=1, time_limit_s=HOUR)]
    found = decide(snapshot(*jobs), BASELINES["delay"], Knobs())
    row = found.matrix.jobs.index(jobs[0])
    # 12.5 GPU h are expected for four GPUs; it stands behind the other one
    assert sentence(found, row) == (
        "may be overtaken because of rltuned by jobs that become eligible within 2h57m after it, "
        "and by no later ones: 1h12m for its own length, 1h45m for its share of the backlog"
    )
    close = replace(found, delays=replace(found.delays, delay_s=np.array([60.0, 60.0])))
    assert "held to" not in sentence(close, row)


def test_a_job_of_several_sizes_is_advised() -> None:
    nodes = [node(f"n{i}", free_gpus=4 if i < 3 else 0) for i in range(1, 5)]
    runs = [running(90 + i, node_name=f"n{i}", gpus=4) for i in (3, 4)]
    asks = request(gpus=4, cpus=1, mem_mib=0, nodes=1)
    ranged = replace(asks, nodes_most=4, expected=Resources(12, 3, 0))
    whole = replace(ranged, expected=Resources(4, 3, 0))
    jobs = (job(1, asks=ranged), job(2, asks=whole), job(3))
    seen = snapshot(*jobs, nodes=nodes, runs=runs)
    found = decide(seen, BASELINES["fcfs"], Knobs())
    # two jobs wait behind it for four nodes
    assert advised_nodes(found, jobs[0], {1: 1.0, 2: 1.2, 4: 1.9}) == 1
    assert advised_nodes(found, jobs[0], {1: 1.0, 2: 1.9, 4: 3.4}) == 4
    assert advised_nodes(found, jobs[0], {8: 7.0}) is None
    assert advised_nodes(found, jobs[2], {1: 1.0}) is None
    assert advised_nodes(found, job(9, asks=ranged), {1: 1.0}) is None


@pytest.mark.parametrize(
    ("ends", "words"), [(0, "its user is new"), (1, "after 1 job of its user")]
)
def test_what_a_prediction_rests_on_is_said(ends: int, words: str) -> None:
    run_time = RunTime(HOUR, 60.0, 2.0, 60.0, 120.0, ends=ends)
    context = Context(run_times={JobId(1): run_time}, limit_use=0.3)
    decision = decide(snapshot(job(1)), BASELINES["delay"], Knobs(), context=context)
    document = sure(looked_at(decision).explain("1"))
    text = in_words({**document, "reason": "x\nJob 2: starts now"})
    assert not any("\n" in line for line in text)
    assert f"It is expected to run 1m (2s to 2m; {words})." in text
    assert "It asks for 1 GPU, 2 CPUs, " in "\n".join(text)
