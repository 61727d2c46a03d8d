"""Arrays in forecasts: they arrive as so many jobs, what is left out is said, a task's start."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.cli.explain import in_words
from rltuned.core.line import present_line
from rltuned.core.starts import MOST, Expected, arrivals_of, expected_of, start_document, to_play
from rltuned.daemon.forecasting import KNOWN_S, RecentArrivals
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import HealthState
from rltuned.daemon.web.server import Answers, Asker
from rltuned.domain.jobs import ArrayInfo, PendingJob
from rltuned.domain.snapshot import NO_CONTEXT, Snapshot
from rltuned.domain.units import JobId, UnixTime
from tests.builders import NOW, job, node, running, snapshot, sure

ROOT = Asker("root", is_admin=True, sees_all=True)


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
def test_of_a_task_that_is_not_the_next_one_no_start_is_told(
    tmp_path: Path, asked: str, is_known: bool
) -> None:
    """Before, `explain 38_20` told the start of 38_4."""
    seen = snapshot(array(38, 17, "4-20"), nodes=[node(gpus=4)])
    expected = expected_of(present_line(seen, NO_CONTEXT), {}, draws=1)
    made = Answers(tmp_path / "journal.sqlite", expected=lambda: expected, now=lambda: NOW)
    made.cycle(CycleReport(1, NOW, HealthState.OBSERVE, 60.0, {}, seen))
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
