"""Who started, who ended, how long they waited: from one look to the next."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.daemon.canary.outcomes import Agreement, JobStart, Outcomes, Side, Watcher, look_back
from rltuned.domain.jobs import ArrayInfo, PendingJob, RunningJob
from rltuned.domain.units import JobId, UnixTime
from tests.builders import NOW, job, running, snapshot
from tests.fakes import ConstantOrder

T0 = NOW - 600.0
"""When the jobs of these tests were submitted."""


class Street:
    """A watcher and a clock that goes a minute from look to look."""

    def __init__(self) -> None:
        self.watcher = Watcher()
        self.now = NOW
        self.side = Side.ON

    def look(self, *pending: PendingJob, runs: Sequence[RunningJob] = ()) -> Outcomes:
        seen = snapshot(*pending, runs=runs, taken_at=self.now)
        self.now += 60.0
        return self.watcher.look(seen, {j.job_id: self.side for j in pending})


def run_of(job_id: int, started_at: float, **rest: object) -> RunningJob:
    fields = {"submitted_at": UnixTime(T0), **rest}
    return running(job_id, started_at=started_at, **fields)  # type: ignore[arg-type]


def test_the_first_look_knows_of_nobodys_start() -> None:
    assert Street().look(job(1), runs=[run_of(2, NOW - 5)]) == Outcomes()


def test_a_job_that_waited_and_runs_has_started_and_one_that_is_gone_has_ended() -> None:
    street = Street()
    street.look(job(1, submitted_at=T0), job(2, submitted_at=T0))
    begun = street.look(job(2, submitted_at=T0), runs=[run_of(1, NOW + 20)])
    assert begun.started == (
        JobStart(
            JobId(1),
            (JobId(1), UnixTime(T0)),
            "gpu",
            Side.ON,
            NOW + 20,
            620.0,
            "bob",
            3_600.0,
        ),
    )
    assert street.look(job(2, submitted_at=T0), runs=[run_of(1, NOW + 20)]) == Outcomes()
    over = street.look(job(2, submitted_at=T0))
    # seen running at NOW + 120, gone at NOW + 180: it ran for about 130 s
    assert [(e.job.job_id, e.duration_s) for e in over.ended] == [(1, 130.0)]
    assert over.ended[0].slowdown == pytest.approx((620 + 130) / 130)


def test_bounded_slowdown_counts_at_least_ten_seconds_and_is_never_below_one() -> None:
    street = Street()
    street.look(job(1, submitted_at=NOW))
    street.look(runs=[run_of(1, NOW + 59, submitted_at=UnixTime(NOW + 59))])
    ended = street.look().ended[0]
    assert (ended.job.wait_s, ended.duration_s, ended.slowdown) == (0.0, 31.0, 1.0)
    short = replace(ended, duration_s=1.0, job=replace(ended.job, wait_s=19.0))
    assert short.slowdown == 2.0
    assert replace(short, job=replace(short.job, wait_s=None)).slowdown is None


def test_a_look_that_was_missed_loses_nothing() -> None:
    street = Street()
    street.look(job(1, submitted_at=T0))
    street.now += 600.0
    assert [s.wait_s for s in street.look(runs=[run_of(1, NOW + 100)]).started] == [700.0]


def test_a_job_that_was_suspended_and_runs_on_has_not_started() -> None:
    street = Street()
    street.look(runs=[run_of(1, NOW - 300)])
    street.look()
    assert street.look(runs=[run_of(1, NOW - 300)]) == Outcomes()


def test_who_was_never_seen_waiting_is_on_no_side() -> None:
    street = Street()
    street.look()
    fresh = run_of(7, NOW + 30, submitted_at=UnixTime(NOW + 20))
    assert [s.side for s in street.look(runs=[fresh]).started] == [Side.OTHER]


def test_the_tasks_of_an_array_are_one_unit() -> None:
    street = Street()
    head = job(10, submitted_at=T0, array=ArrayInfo(JobId(10), 2))
    street.look(head)
    first, second = (run_of(i, NOW + i, array_job_id=JobId(10)) for i in (11, 12))
    started = street.look(head, runs=[first, second]).started
    assert [(s.job_id, s.side, s.unit) for s in started] == [
        (11, Side.ON, (10, T0)),
        (12, Side.ON, (10, T0)),
    ]
    third = run_of(10, NOW + 70, array_job_id=JobId(10))
    assert [s.unit for s in street.look(runs=[first, second, third]).started] == [(10, T0)]


def test_an_array_with_a_held_record_is_on_the_side_of_the_others() -> None:
    watcher = Watcher()
    free = job(20, submitted_at=T0, array=ArrayInfo(JobId(20), 1))
    held = job(21, submitted_at=T0, array=ArrayInfo(JobId(20), 1))
    watcher.look(snapshot(free, held), {free.job_id: Side.OFF, held.job_id: Side.OTHER})
    runs = [run_of(22, NOW + 1, array_job_id=JobId(20))]
    seen = snapshot(held, runs=runs, taken_at=NOW + 60)
    assert [s.side for s in watcher.look(seen, {}).started] == [Side.OFF]


def test_without_a_submit_time_the_wait_is_not_known() -> None:
    street = Street()
    street.look(job(1))
    runs = [run_of(1, NOW + 5, submitted_at=None)]
    assert [s.wait_s for s in street.look(runs=runs).started] == [None]


def test_a_shadow_compares_its_order_with_what_slurm_started() -> None:
    jobs = [job(i, priority=1_000 - i, submitted_at=T0) for i in range(1, 6)]
    decision = decide(snapshot(*jobs), ConstantOrder((3, 4, 5, 1, 2)), Knobs())
    street = Street()
    street.look(*jobs)
    runs = [run_of(1, NOW + 5), run_of(3, NOW + 5)]
    started = street.look(*jobs[3:], jobs[1], runs=runs).started
    # ours: 3 first, 1 fourth; Slurm's: 1 first, 3 third; 2, 4 and 5 still wait
    assert look_back(decision, started) == Agreement(2, 1, own=4 / 6, slurms=5 / 6)
    assert look_back(decision, ()) is None


def test_when_all_have_started_there_are_no_pairs() -> None:
    decision = decide(snapshot(job(1, submitted_at=T0)), ConstantOrder(), Knobs())
    street = Street()
    street.look(job(1, submitted_at=T0))
    started = street.look(runs=[run_of(1, NOW + 5)]).started
    assert look_back(decision, started) == Agreement(1, 1, None, None)
