"""What becomes of past forecasts, and the process that makes them."""

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rltuned.cli.status import in_words
from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.forecast import NO_ARRIVALS
from rltuned.core.line import present_line
from rltuned.core.select import Scope
from rltuned.core.starts import (
    MOST,
    TOO_FAR,
    Expected,
    Hindsight,
    Scales,
    Start,
    corrected,
    to_play,
)
from rltuned.daemon.child import ChildError, IdleChild, packed
from rltuned.daemon.documents import Document
from rltuned.daemon.forecasting import (
    FILE_NAME,
    FRESH_S,
    Forecaster,
    RecentArrivals,
    document,
    keep_file,
    read_file,
)
from rltuned.daemon.logger import make_log
from rltuned.daemon.report import CycleReport, ForecastStatus
from rltuned.daemon.state import HealthState
from rltuned.daemon.web.board import Board
from rltuned.domain.jobs import ArrayInfo, Ownership
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, decided, job, node, running, snapshot, sure
from tests.fakes import ConstantOrder
from tests.loops import FRESH, UNJUDGED
from tests.waits import wait_for

HOUR = 3_600.0
LOG = make_log("console", "error")
Make = Callable[..., Forecaster]


def decision(seen: Snapshot) -> Decision:
    return decide(seen, BASELINES["fcfs"], Knobs(rules=Scope(min_age_s=0.0), top_k=0))


# -- Hindsight ------------------------------------------------------------------------------------


def start(number: int, low: float, median: float, high: float) -> Start:
    return Start(JobId(number), number, low * HOUR, median * HOUR, high * HOUR)


def past(waits_h: list[float], raw: tuple[float, float, float]) -> Hindsight:
    """A record in which jobs with one and the same forecast waited so long."""
    record = Hindsight()
    waiting = snapshot(*(job(n, submitted_at=NOW) for n in range(1, len(waits_h) + 1)))
    record.note([start(n, *raw) for n in range(1, len(waits_h) + 1)], waiting, Scales())
    for number, wait_h in enumerate(waits_h, start=1):
        run = running(number, submitted_at=NOW, started_at=NOW + wait_h * HOUR)
        rest = [one for one in waiting.pending if one.job_id > number]
        record.look(replace(snapshot(*rest, runs=[run]), taken_at=UnixTime(NOW + wait_h * HOUR)))
    return record


def test_a_process_that_fails_is_quoted() -> None:
    with pytest.raises(ChildError, match=r"ended with 1: KeyError: 'settings'"):
        IdleChild().run({}, packed(to_play(present_line(snapshot()), {}, NO_ARRIVALS)), 30.0)


def test_intervals_that_were_too_narrow_become_wider_until_eight_of_ten_lie_within() -> None:
    waits = np.exp(np.random.default_rng(1).normal(np.log(10.0), 2.0, 1_000)).tolist()
    record = past(waits, (5.0, 10.0, 20.0))
    assert sure(record.coverage) < 0.4
    scales = record.scales(NOW + 1e9)
    fresh = corrected(start(1, 5.0, 10.0, 20.0), scales)
    within = np.mean([sure(fresh.low_s) <= wait * HOUR <= sure(fresh.high_s) for wait in waits])
    assert within == pytest.approx(0.8, abs=0.02)
    assert fresh.median_s == 10 * HOUR


def test_intervals_that_were_too_wide_become_narrower_and_none_is_a_point() -> None:
    record = past([10.0] * 500, (1.0, 10.0, 100.0))
    assert (record.coverage, record.error_s) == (1.0, 0.0)
    scales = record.scales(NOW + 1e9)
    assert max(scales.low, scales.high) < 1.0
    point = corrected(start(1, 10.0, 10.0, 10.0), Scales())
    assert sure(point.low_s) < 10 * HOUR < sure(point.high_s)


def test_without_a_record_little_is_corrected_and_who_still_waits_counts_as_late() -> None:
    record = Hindsight()
    assert record.scales(NOW) == pytest.approx((1.0, 1.0), abs=0.01)
    assert (record.coverage, record.error_s) == (None, None)
    waiting = snapshot(*(job(n) for n in range(1, 101)))
    record.note([start(n, 1.0, 2.0, 3.0) for n in range(1, 101)], waiting, Scales())
    assert record.scales(NOW + 2 * HOUR).high == pytest.approx(1.0, abs=0.01)
    assert record.scales(NOW + 40 * HOUR).high > 3.0


def test_a_job_that_is_gone_teaches_nothing_and_a_record_survives_its_file() -> None:
    record = past([1.0, 2.0], (1.0, 2.0, 3.0))
    record.note([start(7, 1.0, 2.0, 3.0)], snapshot(job(7)), Scales())
    again = Hindsight.read(json.loads(json.dumps(record.document())))
    assert again == record
    assert len(again.settled) == 2
    again.look(snapshot())
    assert (again.waiting, len(again.settled)) == ({}, 2)


@pytest.mark.parametrize(
    "waits",
    [
        {"priority": 0, "held_by": "user", "reason": "JobHeldUser"},
        {"eligible_at": NOW + 30 * 24 * HOUR, "reason": "BeginTime"},
        {"dependency": "afterok:5", "reason": "Dependency"},
    ],
)
def test_a_job_its_user_keeps_from_starting_makes_no_interval_wider(waits: dict[str, Any]) -> None:
    record = past([10.0] * 500, (5.0, 10.0, 20.0))
    before = record.scales(NOW)
    jobs = [job(n, submitted_at=NOW) for n in range(1, 1_001)]
    record.note([start(n, 0.0, 0.1, 0.2) for n in range(1, 1_001)], snapshot(*jobs), Scales())
    kept = (job(n, submitted_at=NOW, **waits) for n in range(1, 1_001))
    record.look(replace(snapshot(*kept), taken_at=UnixTime(NOW + 40 * HOUR)))
    assert record.scales(NOW + 40 * HOUR) == before


@pytest.mark.parametrize(
    "change",
    [
        {"changed_at": NOW + 60},
        {"nice": 5_000},
        {"owned": Ownership("priority", 900, nice=0), "nice": 5_000},
        {"excluded_nodes": ("p1",)},
        {"required_nodes": ("p1",)},
    ],
)
def test_a_job_changed_after_the_forecast_makes_no_interval_wider(change: dict[str, Any]) -> None:
    record = past([10.0] * 500, (5.0, 10.0, 20.0))
    before = record.scales(NOW)
    owned = change.get("owned")
    jobs = [job(n, submitted_at=NOW, owned=owned) for n in range(1, 101)]
    record.note([start(n, 0.0, 0.1, 0.2) for n in range(1, 101)], snapshot(*jobs), Scales())
    record.look(replace(snapshot(*jobs), taken_at=UnixTime(NOW + 30)))
    assert len(record.waiting) == 100
    changed = [job(n, submitted_at=NOW, **change) for n in range(1, 101)]
    record.look(replace(snapshot(*changed), taken_at=UnixTime(NOW + 60)))
    assert record.scales(NOW + 40 * HOUR) == before
    later = replace(snapshot(*changed), taken_at=UnixTime(NOW + 120))
    record.note([start(1, 1.0, 2.0, 3.0)], later, Scales())
    record.look(replace(later, taken_at=UnixTime(NOW + 180)))
    assert [one.at for kept in record.waiting.values() for one in kept] == [NOW + 120]


def test_what_rltunes_own_number_does_to_the_nice_is_no_change_of_the_user() -> None:
    record, one = Hindsight(), job(1, nice=50)
    record.note([start(1, 1.0, 2.0, 3.0)], snapshot(one), Scales())
    ours = replace(one, nice=0, owned=Ownership("priority", 900, nice=50))
    for shown in (one, ours, one):
        record.look(snapshot(shown))
        assert len(record.waiting) == 1


def test_the_first_task_that_starts_settles_the_forecast_of_an_array() -> None:
    array = job(1, submitted_at=NOW, array=ArrayInfo(JobId(1), 100))
    record = Hindsight()
    record.note([start(1, 1.0, 2.0, 3.0)], snapshot(array), Scales())
    older = running(2, array_job_id=JobId(1), submitted_at=NOW, started_at=NOW - 5)
    record.look(snapshot(array, runs=[older]))
    assert (len(record.waiting), record.settled) == (1, [])
    for number, hours in ((3, 2.5), (4, 9.0)):
        task = running(
            number, array_job_id=JobId(1), submitted_at=NOW, started_at=NOW + hours * HOUR
        )
        record.look(snapshot(array, runs=[older, task], taken_at=NOW + hours * HOUR))
    assert [one.error_s for one in record.settled] == [0.5 * HOUR]
    assert record.waiting == {}


def test_an_array_that_runs_all_it_may_counts_for_nothing() -> None:
    record, array = Hindsight(), job(1, submitted_at=NOW, array=ArrayInfo(JobId(1), 100, 1))
    record.note([start(1, 1.0, 2.0, 3.0)], snapshot(array), Scales())
    runs = [running(2, array_job_id=JobId(1), submitted_at=NOW, started_at=NOW - 5)]
    record.look(snapshot(array, runs=runs))
    assert (record.waiting, record.settled) == ({}, [])


def test_a_waiting_job_is_recorded_again_after_hours_not_at_each_forecast() -> None:
    record = Hindsight()
    for after in (0.0, 0.1, 2.9, 3.0, 3.1):
        seen = replace(snapshot(job(1)), taken_at=UnixTime(NOW + after * HOUR))
        record.note([start(1, 1.0, 2.0, 3.0)], seen, Scales())
    assert [one.at - NOW for those in record.waiting.values() for one in those] == [0.0, 3 * HOUR]


# -- What arrives ---------------------------------------------------------------------------------


def test_arrivals_are_those_that_came_while_the_daemon_watched() -> None:
    watched = RecentArrivals()
    watched.look(snapshot(job(1, submitted_at=NOW - 50)), {})
    later = replace(
        snapshot(job(1), job(2, submitted_at=NOW + 60)), taken_at=UnixTime(NOW + 2 * HOUR)
    )
    watched.look(later, {})
    watched.look(replace(later, pending=(), taken_at=UnixTime(NOW + 3 * HOUR)), {})
    found = watched.arrivals(replace(later, taken_at=UnixTime(NOW + 3 * HOUR)), {})
    assert [(one.job.job_id, one.ago_s) for one in found.jobs] == [(2, 3 * HOUR - 60)]
    assert found.window_s == 3 * HOUR
    watched.look(replace(snapshot(), taken_at=UnixTime(NOW + 9 * 24 * HOUR)), {})
    assert watched.jobs == {}
    assert watched.since == NOW + 6 * 24 * HOUR


def test_a_clock_that_was_ahead_for_a_look_costs_no_arrivals_of_the_days_after() -> None:
    watched = RecentArrivals()
    for hours in (0.0, 30 * 24.0, 1.0, 2.0):
        now = UnixTime(NOW + hours * HOUR)
        watched.look(replace(snapshot(job(9, submitted_at=now - 60)), taken_at=now), {})
    found = watched.arrivals(replace(snapshot(), taken_at=UnixTime(NOW + 3 * HOUR)), {})
    assert [(one.job.job_id, one.ago_s) for one in found.jobs] == [(9, HOUR + 60)]


# -- The process ----------------------------------------------------------------------------------


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Forecaster] = []

    def made_one() -> Forecaster:
        made.append(Forecaster(tmp_path, LOG, lambda _: {}, IdleChild()))
        return made[-1]

    yield made_one
    for one in made:
        one.close()


def until(holds: Callable[[], bool]) -> None:
    wait_for(holds, "what the child makes", 300)


def test_a_child_makes_the_forecast_while_the_loop_goes_on(make: Make, tmp_path: Path) -> None:
    seen = snapshot(job(1, gpus=4), job(2, gpus=4), nodes=[node(free_gpus=4)])
    one = make()
    assert one.cycle(decided(decision(seen))).at is None
    until(lambda: one.expected is not None and one.status.at == NOW)
    assert one.status.jobs == 2
    assert not one.status.trouble
    until((tmp_path / FILE_NAME).exists)
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0
    # a run later: the first job has started, and was expected now
    run = running(1, gpus=4, submitted_at=NOW - 600, started_at=NOW + 30)
    assert one.fresh(NOW + FRESH_S) is one.expected
    assert one.fresh(NOW + FRESH_S + 1) is None
    later = replace(snapshot(job(2, gpus=4), runs=[run]), taken_at=UnixTime(NOW + 60))
    status = one.cycle(decided(decision(later)))
    assert (status.past, status.coverage, status.error_s) == (1, 1.0, 30.0)
    kept = sure(read_file(tmp_path))
    assert kept[1] == one.expected
    assert make().status.at == NOW  # the next daemon shows it until it has its own


def observed(seen: Snapshot) -> CycleReport:
    """A cycle of the stage observe, which decides nothing."""
    return CycleReport(1, float(seen.taken_at), HealthState.OBSERVE, {}, seen)


def test_a_daemon_that_only_observes_plays_slurms_own_order(make: Make, tmp_path: Path) -> None:
    first, second = job(1, gpus=4, priority=10), job(2, gpus=4, priority=20)
    held = job(3, priority=0, held_by="user")
    one = make()
    one.cycle(observed(snapshot(first, second, held)))
    until(lambda: one.status.at == NOW)
    assert one.expected is not None
    assert {n: start.place for n, start in one.expected.starts.items()} == {2: 1, 1: 2}
    assert one.expected.starts[second.job_id].median_s == 0.0
    assert one.expected.cannot == {held.job_id: "its user holds it"}
    until((tmp_path / FILE_NAME).exists)
    kept = sure(read_file(tmp_path))
    assert kept[1] == one.expected


@pytest.mark.parametrize(("mode", "first"), [(HealthState.DRY_RUN, 2), (HealthState.LIVE, 1)])
def test_what_is_not_written_moves_no_job(make: Make, mode: HealthState, first: int) -> None:
    """A dry run proposes another order than the one by which Slurm starts jobs."""
    seen = snapshot(job(1, gpus=4, priority=10), job(2, gpus=4, priority=20))
    proposed = decide(seen, ConstantOrder((1, 2)), Knobs(rules=Scope(min_age_s=0.0)))
    one = make()
    one.cycle(replace(observed(seen), mode=mode, decision=proposed))
    until(lambda: one.expected is not None)
    assert next(iter(sure(one.expected).starts)) == first


def test_no_forecast_is_made_while_the_clocks_disagree(make: Make) -> None:
    one = make()
    one.cycle(
        replace(
            observed(snapshot(job(1))), reasons={HealthState.CLOCK_OFF: "slurmctld's clock is off"}
        )
    )
    one.close()
    assert (one.expected, one.status.trouble) == (None, "")


def test_places_of_jobs_too_far_back_survive_the_file(tmp_path: Path) -> None:
    expected = Expected(NOW, {JobId(4): start(4, 1.0, 2.0, 3.0)}, {JobId(9): 2, JobId(5): 3}, {})
    text = json.dumps(document("test", expected, Hindsight().document()))
    keep_file(tmp_path, text)
    kept = sure(read_file(tmp_path))
    assert kept[1] == expected
    assert expected.line_jobs == 3
    found = sure(expected.start_of(JobId(5)))
    assert (found.place, found.why) == (3, TOO_FAR)
    assert expected.start_of(JobId(77)) is None


def test_the_child_is_handed_the_first_of_the_line_and_nothing_else() -> None:
    jobs = [job(n, submitted_at=NOW - 5_000 + n, account="secret") for n in range(1, MOST + 50)]
    todo = to_play(present_line(snapshot(*jobs)), {}, NO_ARRIVALS)
    assert len(todo.line) == MOST
    assert not todo.snapshot.pending
    assert b"secret" not in packed(todo)


def test_a_child_that_fails_costs_its_forecast(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = make()
    monkeypatch.setattr("sys.executable", "/bin/false")
    one.cycle(decided(decision(snapshot(job(1)))))
    until(lambda: bool(one.status.trouble))
    assert "the child ended with 1" in one.status.trouble
    assert one.expected is None


def test_a_bug_in_it_does_not_stop_the_loop(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = make()
    monkeypatch.setattr(RecentArrivals, "look", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in one.cycle(decided(decision(snapshot(job(1))))).trouble


RIGHT = {
    "version": 2, "cluster": "test", "at": NOW, "starts": [], "behind": [], "cannot": [],
    "record": {"waiting": [[1, NOW, [[NOW, 1, 2, 3, 1, 3]]]], "settled": [[0.5, True, 9.0]]},
}  # fmt: skip
WRONG: tuple[dict[str, Any], ...] = (
    {"at": 10**400},
    {"at": math.nan},
    {"starts": [["a", "b", "c", "d", "e", 1, 2]]},
    {"starts": [[1, 1, math.nan, 2.0, 3.0, False, ""]]},
    {"record": {"waiting": [], "settled": [[math.nan, True, 9.0]]}},
    {"record": {"waiting": [[math.inf, NOW, []]], "settled": []}},
    {"record": {"waiting": [[1, NOW, [[NOW, -700, 2, 3, 1, 3]]]], "settled": []}},
)
DAMAGED = ("", "{", "[]", '{"version": 9}', '{"version": 1}', "[" * 200_000)


@pytest.mark.parametrize("text", [*DAMAGED, *(json.dumps(RIGHT | wrong) for wrong in WRONG)])
def test_a_file_damaged_or_of_impossible_numbers_is_made_again(tmp_path: Path, text: str) -> None:
    keep_file(tmp_path, json.dumps(RIGHT))
    assert read_file(tmp_path) is not None
    keep_file(tmp_path, text)
    assert read_file(tmp_path) is None
    (tmp_path / FILE_NAME).unlink()
    os.mkfifo(tmp_path / FILE_NAME)
    assert read_file(tmp_path) is None


def test_status_says_how_old_it_is_and_what_became_of_past_ones() -> None:
    def shown(of: ForecastStatus) -> str:
        daemon = {**Board(lambda: NOW).document(FRESH, UNJUDGED), "forecast": asdict(of)}
        found: Document = {
            "state": [],
            "last_week": "",
            "journal": None,
            "journal_unread": "",
            "stage": "",
        }
        return in_words({**found, "daemon": daemon}, NOW)

    assert "\nforecast: none yet; it failed\n" in shown(ForecastStatus(trouble="it failed"))
    assert (
        "\nforecast: 212 jobs have an expected start, 3m ago; of the last 412 starts 81% lay "
        "within the interval, the median is off by 24m\n"
    ) in shown(ForecastStatus(NOW - 180, 212, 0.81, 1_440.0, 412))
