"""Which runs began and ended, by what looks show, and what they do not show."""

from collections.abc import Sequence
from typing import Any

import pytest

from rltuned.domain.jobs import JobRun, RunNews, RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import JobTracker, Snapshot, Unreadable
from rltuned.domain.units import JobId, UnixTime
from tests.builders import NOW, job, running, snapshot

BEGAN = NOW - 1_200.0
MINUTE_S = 60.0
ODD = Unreadable("job", "5", "odd", JobId(5))
NOBODYS = Unreadable("job", "", "whose row?")
COMPLETES: dict[str, Any] = {"lingering": (JobId(5),)}


class Looks:
    """A minute from look to look, or as long as is given."""

    def __init__(self) -> None:
        self.tracker, self.now = JobTracker(), NOW

    def look(self, *runs: RunningJob, later_s: float = MINUTE_S, **rest: Any) -> RunNews:
        self.now += later_s
        shown = {"runs": runs, "taken_at": self.now, **rest}
        return self.tracker.look(snapshot(*shown.pop("waits", ()), **shown))


def run_of(number: int, started_at: float = BEGAN, **rest: Any) -> RunningJob:
    return running(number, started_at=started_at, **{"time_limit_s": None, **rest})


def ran(news: RunNews) -> list[tuple[int, float]]:
    return [(run.job.job_id, run.run_s) for run in news.ended]


RUNS = {"runs": (run_of(5),)}
AGAIN = {"runs": (run_of(5, NOW + 100),)}


@pytest.mark.parametrize(
    ("looks", "run_s"),
    [
        ([{}], [1_290.0]),
        ([{"runs": (run_of(6),)}], [1_290.0]),
        # one that completes has ended when it ran no more
        ([COMPLETES, {}], [None, 1_290.0]),
        ([{"waits": (job(5),)}], [0]),
        ([AGAIN], [0]),
        ([COMPLETES, {"waits": (job(5),)}], [None, 0]),
        # suspended, and runs on
        ([COMPLETES, RUNS, {}], [None, None, 0]),
        ([*[COMPLETES] * 20, {}], [*[None] * 20, 0]),
        ([*[COMPLETES] * 20, RUNS, {}], [*[None] * 21, 0]),
        ([{"unreadable": (ODD,)}, RUNS, {}], [None, None, 0]),
        ([{"unreadable": (ODD,)}, {"waits": (job(5),)}], [None, 0]),
        ([{"unreadable": (NOBODYS,)}, {}], [None, 1_290.0]),
        ([{"unreadable": (NOBODYS,)}] * 12, [*[None] * 11, 0]),
        ([{"later_s": 600.0}], [1_560.0]),
        ([{"later_s": 601.0}], [0]),
        ([{"later_s": -500.0}], [0]),
        ([{"later_s": 0.0}], [1_260.0]),
        ([{"cluster": "other"}, {}], [None, None]),
    ],
)
def test_what_becomes_of_a_run(looks: Sequence[dict[str, Any]], run_s: list[float | None]) -> None:
    """run_s: of each look; None = it may run on, 0 = it is over, and its end is not known."""
    street, found = Looks(), list[float | None]()
    assert street.look(run_of(5), run_of(6)) == RunNews()
    for look in looks:
        over = [run for run in street.look(**look).over if run.job.job_id == 5]
        found.append((over[0].run_s if over[0].ended_at else 0) if over else None)
    assert found == run_s
    assert not any(run.job.job_id == 5 for run in street.look(**looks[-1]).over)


def test_a_run_keeps_what_it_was_and_ends_at_its_limit_at_the_latest() -> None:
    street = Looks()
    kinds = Kinds(name=7)
    short = run_of(4, time_limit_s=1_270.0)
    whole = run_of(5, submitted_at=UnixTime(BEGAN - 9), kinds=kinds, qos="high")
    street.look(short, whole)
    news = street.look()
    assert ran(news) == [(4, 1_270.0), (5, 1_290.0)]
    assert news.over[1] == JobRun(whole, UnixTime(NOW + 90))


@pytest.mark.parametrize(("ran_s", "apart_s", "known"), [(7e3, 690.0, True), (7e3, 710.0, False)])
def test_looks_may_lie_a_tenth_of_a_run_apart(ran_s: float, apart_s: float, known: bool) -> None:
    street = Looks()
    street.look(run_of(5, NOW + MINUTE_S - ran_s))
    assert bool(street.look(later_s=apart_s).ended) is known


def test_of_one_that_is_suspended_for_long_no_more_is_to_be_learned() -> None:
    street = Looks()
    street.look(run_of(5))
    awaited = [bool(street.look(**COMPLETES).undecided) for _ in range(12)]
    assert awaited == [True] * 11 + [False]


@pytest.mark.parametrize("lost", [0, 1, 100])
def test_a_start_has_the_time_that_slurm_shows_after_lost_cycles_too(lost: int) -> None:
    street = Looks()
    old = run_of(2, NOW - 5)
    assert street.look(old, waits=(job(1),)) == RunNews()
    street.now += lost * MINUTE_S
    fresh = run_of(1, NOW + 70, submitted_at=UnixTime(NOW - 600.0))
    (begun,) = street.look(old, fresh).started
    assert (begun, begun.wait_s) == (JobRun(fresh), 670.0)
    assert street.look(old, fresh) == RunNews()


def test_one_that_was_hidden_and_runs_on_has_not_started() -> None:
    street = Looks()
    street.look()
    started = run_of(5, NOW + 110)
    assert len(street.look(started).started) == 1
    street.look(unreadable=(ODD,), later_s=0.5)
    assert street.look(started).started == ()
    assert street.look(run_of(7, NOW - 300)).started == ()


@pytest.mark.parametrize(
    ("times", "wait_s", "slowdown"),
    [
        ((0.0, 620.0, 750.0), 620.0, 75 / 13),
        ((0.0, 0.0, 31.0), 0.0, 1.0),
        ((0.0, 19.0, 20.0), 19, 2),
    ],
)
def test_bounded_slowdown_counts_at_least_ten_seconds_and_is_never_below_one(
    times: tuple[float, float, float], wait_s: float, slowdown: float
) -> None:
    submit, start, end = (UnixTime(NOW + at) for at in times)
    run = JobRun(run_of(1, start, submitted_at=submit), end)
    assert [run.wait_s, run.slowdown] == pytest.approx([wait_s, slowdown])
    assert JobRun(run_of(1, start), end).slowdown is None
    assert JobRun(run.job).slowdown is None
    with pytest.raises(ValueError, match="out of order"):
        JobRun(run.job, UnixTime(start - 1.0))


def test_two_news_are_those_without_the_look_in_between() -> None:
    """But for the ends, which are better known with it."""
    short, new, old = run_of(1, NOW + 70), run_of(2, NOW + 75), run_of(3)
    looks: list[Snapshot] = [
        snapshot(runs=(old,), taken_at=NOW),
        snapshot(runs=(old, short, new), taken_at=NOW + 80),
        snapshot(runs=(new,), taken_at=NOW + 160),
    ]
    each, ends = JobTracker(), JobTracker()
    both = [each.look(seen) for seen in looks]
    whole = [ends.look(seen) for seen in (looks[0], looks[2])]
    assert (both[1] + both[2]).started == whole[1].started == (JobRun(new),)
    assert (
        [run.job for run in (both[1] + both[2]).over] == [run.job for run in whole[1].over] == [old]
    )
