"""Runs that began and ended as looks show them, and the memory of run times that they feed."""

import io
import threading
import zipfile
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from rltuned.core.memory import Job, JobKey, RunTimeMemory, key_of
from rltuned.core.run_times import BINS, Float32Array, FloatArray
from rltuned.daemon import run_times
from rltuned.daemon.logger import Log
from rltuned.daemon.run_times import RunTimeLearner, Source
from rltuned.domain.jobs import JobRun, RunNews, RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import NO_CONTEXT, JobTracker, Snapshot, Unreadable
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import BackendError
from rltuned.journal.store import LEARNED_FILE as FILE_NAME
from rltuned.journal.store import Learned, keep_learned
from tests.builders import NOW, job, running, snapshot

MINUTE_S = 60.0
T0 = NOW - 1_000.0


def untaught(inputs: Float32Array) -> FloatArray:
    """A network that says nothing."""
    return np.zeros((len(inputs), BINS))


class Diary(RunTimeMemory):
    """A memory that notes what it receives: (what, job ids)."""

    def __init__(self) -> None:
        super().__init__(untaught)
        self.events: list[tuple[str, tuple[int, ...]]] = []
        self.kept: Collection[JobKey] = ()
        self.broken, self.followed = False, tuple[int, ...]()

    def _note(self, what: str, jobs: Sequence[Job]) -> None:
        if self.broken:
            raise ZeroDivisionError("a bug")
        self.events.append((what, tuple(int(j.job_id) for j in jobs)))

    def submit(self, jobs: Sequence[Job]) -> None:
        if not all(key_of(one) in self._jobs for one in jobs):  # a start asks for those it has
            self._note("submit", jobs)
        super().submit(jobs)

    def start(self, jobs: Sequence[RunningJob]) -> None:
        self._note("start", jobs)
        super().start(jobs)

    def end(self, ended: Sequence[JobRun]) -> None:
        self._note("end", [run.job for run in ended])
        super().end(ended)

    def follow(self, jobs: Iterable[Job]) -> None:
        found = list(jobs)
        self.followed = tuple(int(j.job_id) for j in found)
        super().follow(found)

    def keep(self, jobs: Collection[JobKey]) -> None:
        self.kept = jobs
        super().keep(jobs)


class Lines:
    """A log."""

    def __init__(self) -> None:
        self.out: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **values: Any) -> None:
        self.out.append((event, values))

    warning = error = info


class Site:
    """A folder, a clock that goes a minute from look to look, and what sacct says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.now = folder, Lines(), NOW
        self.asked: list[tuple[float, float]] = []
        self.sacct: Callable[[], list[JobRun] | None] = lambda: None
        self.diaries: list[Diary] = []
        self.predicted, self.tracker = NO_CONTEXT, JobTracker()
        self.daemon = self.started()

    def started(self, **more: Any) -> RunTimeLearner:
        def history(since: float, until: float) -> list[JobRun] | None:
            self.asked.append((since, until))
            return self.sacct()

        def diary() -> RunTimeMemory:
            self.diaries.append(Diary())
            return self.diaries[-1]

        log = cast("Log", self.log)
        self.daemon = RunTimeLearner(diary, self.folder, log, **({"history": history} | more))
        return self.daemon

    def look(self, *waits: Any, runs: Sequence[RunningJob] = (), later_s: float = MINUTE_S) -> Any:
        self.now += later_s
        seen = self.seen(*waits, runs=runs)
        self.predicted = self.daemon.look(seen, self.tracker.look(seen))
        return self.daemon.status

    def seen(self, *waits: Any, runs: Sequence[RunningJob] = ()) -> Snapshot:
        return snapshot(*waits, runs=runs, taken_at=self.now)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def run_of(number: int, started_at: float, submitted_at: float = T0) -> RunningJob:
    return running(number, started_at=started_at, submitted_at=UnixTime(submitted_at))


def ended(number: int, submit: float, start: float, end: float) -> JobRun:
    return JobRun(run_of(number, NOW + start, NOW + submit), UnixTime(NOW + end))


def test_looks_become_submissions_starts_and_ends_in_the_order_of_time(site: Site) -> None:
    site.look(job(2, submitted_at=T0 + 5), job(1, submitted_at=T0), runs=[run_of(3, T0 + 3)])
    (diary,) = site.diaries
    assert diary.events == [("submit", (1, 3)), ("start", (3,)), ("submit", (2,))]
    diary.events.clear()
    site.look(job(2, submitted_at=T0 + 5), runs=[run_of(1, NOW + 70), run_of(3, T0 + 3)])
    assert diary.events == [("start", (1,))]
    diary.events.clear()
    new = job(4, submitted_at=NOW + 175)
    status = site.look(new, job(2, submitted_at=T0 + 5), runs=[run_of(1, NOW + 70)])
    assert diary.events == [("end", (3,)), ("submit", (4,))]
    assert (status.source, status.ends, status.kinds) == (Source.LOOKS, 1, len(diary))
    assert set(diary.kept) == {(4, NOW + 175), (2, T0 + 5), (1, T0), (3, T0)}


def test_a_requeued_job_is_submitted_again_and_teaches_nothing(site: Site) -> None:
    site.look(runs=[run_of(1, T0 + 3)])
    site.look(job(1, submitted_at=NOW + 100))
    (diary,) = site.diaries
    assert [what for what, _ in diary.events] == ["submit", "start", "submit"]
    assert set(diary.kept) == {(1, NOW + 100)}


def test_the_past_of_sacct_is_played_once_in_the_order_of_time(site: Site) -> None:
    past = [ended(1, -900, -800, -300), ended(2, -850, -300, -300), ended(3, -400, -300, -100)]
    site.sacct = lambda: past
    status = site.look()
    (diary,) = site.diaries
    assert diary.events == [
        ("submit", (1, 2)),
        ("start", (1,)),
        ("submit", (3,)),
        ("end", (1,)),
        ("start", (2, 3)),
        ("end", (2, 3)),
    ]
    assert (status.source, status.ends) == (Source.SACCT, 3)
    (asked,) = site.asked
    assert asked == (site.now - 30 * 86_400.0, site.now)
    site.look()
    assert len(site.asked) == 1
    assert [event for event, _ in site.log.out] == ["run_times"]


def test_after_a_restart_it_is_the_same_and_sacct_fills_the_gap_alone(site: Site) -> None:
    site.sacct = lambda: [ended(1, -900, -800, -300)]
    site.look()
    before = site.diaries[-1].to_bytes()
    seen_at = site.now
    site.daemon.close()
    site.sacct = list
    site.started()
    status = site.look()
    assert (status.source, status.ends, status.trouble) == (Source.FILE, 1, "")
    assert site.diaries[-1].to_bytes() == before
    assert site.asked[-1] == (seen_at, site.now)
    assert (site.folder / FILE_NAME).stat().st_mode & 0o777 == 0o600


def packed(method: int = zipfile.ZIP_DEFLATED, **arrays: Any) -> bytearray:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, array in arrays.items():
            body = io.BytesIO()
            np.save(body, array)
            archive.writestr(f"{name}.npy", body.getvalue())
    return bytearray(buffer.getvalue())


def _inner(damage: str) -> bytes:
    if damage == "bomb":
        return bytes(packed(totals=np.zeros(2), stats=np.zeros(20_000_000)))
    data = packed(totals=np.array([3.0, 0.5]))
    at = data.index(b"totals.npy") + len(b"totals.npy")
    if damage == "deflate":
        data[at : at + 20] = b"\xff" * 20
    elif damage == "method":  # a compression that nobody knows
        data[8:10] = b"\x63\x00"
        directory = data.index(b"PK\x01\x02")
        data[directory + 10 : directory + 12] = b"\x63\x00"
    return bytes(data)


SEALED = ("others", "bomb", "deflate", "method")
"""Whole and senseless, under a digest that is right."""


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign", *SEALED])
def test_a_damaged_file_is_one_line_and_made_again_from_sacct(site: Site, damage: str) -> None:
    path, inner = site.folder / FILE_NAME, _inner(damage) if damage in SEALED else b"no arrays"
    if damage in {*SEALED, "foreign"}:
        keep_learned(site.folder, Learned(cluster="test", salt="", seen_at=site.now), inner)
    else:
        site.look(runs=[run_of(1, T0)])
        site.daemon.close()
        data = path.read_bytes()
        path.write_bytes({"flip": data[:-1] + b"?", "cut": data[:-9], "empty": b""}[damage])
        site.log.out.clear()
    site.sacct = lambda: [ended(n, -900, -800, -300) for n in (1, 2)]
    site.started()
    status = site.look()
    assert (status.source, status.ends) == (Source.SACCT, 2)
    assert status.trouble
    (line,) = [values for event, values in site.log.out if event == "run_times"]
    assert line["trouble"] == status.trouble
    assert site.asked[-1][0] == site.now - 30 * 86_400.0


def test_a_file_with_another_salt_is_not_used(site: Site) -> None:
    site.look()
    site.daemon.close()
    site.started(salt="other")
    status = site.look()
    assert status.source is Source.LOOKS
    assert "another cluster, salt or time" in status.trouble


def test_a_sacct_that_fails_is_one_line_and_a_cold_start(site: Site) -> None:
    def fails() -> None:
        raise BackendError("sacct ended with 1: slurmdbd is down")

    site.sacct = fails
    status = site.look()
    assert (status.source, status.trouble) == (Source.LOOKS, "sacct ended with 1: slurmdbd is down")
    site.look()
    assert [event for event, _ in site.log.out] == ["run_times"]


def test_a_slow_sacct_delays_no_cycle_nor_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_times, "FIRST_WAIT_S", 0.0)
    gate, done = threading.Event(), threading.Event()

    def slow() -> list[JobRun]:
        gate.wait(30)
        done.set()
        return [ended(9, -900, -800, -300)]

    site.sacct = slow
    status = site.look(runs=[run_of(1, T0)])
    assert (status.source, site.daemon.memory) == (Source.LOADING, None)
    site.look()
    gate.set()
    assert done.wait(30)
    while site.look().source is Source.LOADING:
        pass
    (diary,) = site.diaries
    assert [jobs for what, jobs in diary.events if what == "end"] == [(9,), (1,)]


def test_an_error_costs_the_predictions_and_not_the_cycle(site: Site) -> None:
    for fault in range(1, run_times.STRIKES + 1):
        site.look()
        site.diaries[-1].broken = True
        status = site.look(job(fault, submitted_at=NOW))
        assert (status.faults, status.trouble) == (fault, "ZeroDivisionError: a bug")
        assert site.daemon.memory is None
        assert site.predicted.run_times == {}
    assert status.source is Source.OFF
    assert site.look().source is Source.OFF
    assert [event for event, _ in site.log.out].count("run_times_fault") == run_times.STRIKES


def test_a_full_disk_is_reported_and_nothing_else(site: Site) -> None:
    site.look()
    site.daemon = replace_folder(site, site.folder / "absent")
    site.look()
    status = site.look(later_s=700.0)
    assert "cannot be written" in status.trouble
    assert status.faults == 0
    assert site.log.out[-1][0] == "run_times_not_kept"


def replace_folder(site: Site, folder: Path) -> RunTimeLearner:
    site.folder = folder
    return site.started()


def test_another_cluster_has_a_memory_of_its_own(site: Site) -> None:
    site.look(runs=[run_of(1, T0)])
    site.now += MINUTE_S
    site.daemon.look(replace(site.seen(), cluster="other"))
    assert len(site.diaries) == 2
    assert site.diaries[-1].ends == 0


def test_another_predictor_is_taken_over_and_what_was_learned_stays(site: Site) -> None:
    site.sacct = lambda: [ended(1, -900, -800, -300)]
    site.look()

    def other(inputs: Float32Array) -> FloatArray:
        return np.ones((len(inputs), BINS))

    site.daemon.exchange(lambda: RunTimeMemory(other))
    assert site.diaries[-1].logits is other
    assert site.look().ends == 1


def test_at_every_look_all_that_wait_and_run_are_followed(site: Site) -> None:
    site.look(job(1), runs=[run_of(2, T0)])
    assert site.diaries[-1].followed == (1, 2)


BEGAN = NOW - 1_200.0
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


def looked(number: int, started_at: float = BEGAN, **rest: Any) -> RunningJob:
    return running(number, started_at=started_at, **{"time_limit_s": None, **rest})


def ran(news: RunNews) -> list[tuple[int, float]]:
    return [(run.job.job_id, run.run_s) for run in news.ended]


RUNS = {"runs": (looked(5),)}
AGAIN = {"runs": (looked(5, NOW + 100),)}


@pytest.mark.parametrize(
    ("looks", "run_s"),
    [
        ([{}], [1_290.0]),
        ([{"runs": (looked(6),)}], [1_290.0]),
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
    assert street.look(looked(5), looked(6)) == RunNews()
    for look in looks:
        over = [run for run in street.look(**look).over if run.job.job_id == 5]
        found.append((over[0].run_s if over[0].ended_at else 0) if over else None)
    assert found == run_s
    assert not any(run.job.job_id == 5 for run in street.look(**looks[-1]).over)


def test_a_run_keeps_what_it_was_and_ends_at_its_limit_at_the_latest() -> None:
    street = Looks()
    kinds = Kinds(name=7)
    short = looked(4, time_limit_s=1_270.0)
    whole = looked(5, submitted_at=UnixTime(BEGAN - 9), kinds=kinds, qos="high")
    street.look(short, whole)
    news = street.look()
    assert ran(news) == [(4, 1_270.0), (5, 1_290.0)]
    assert news.over[1] == JobRun(whole, UnixTime(NOW + 90))


@pytest.mark.parametrize(("ran_s", "apart_s", "known"), [(7e3, 690.0, True), (7e3, 710.0, False)])
def test_looks_may_lie_a_tenth_of_a_run_apart(ran_s: float, apart_s: float, known: bool) -> None:
    street = Looks()
    street.look(looked(5, NOW + MINUTE_S - ran_s))
    assert bool(street.look(later_s=apart_s).ended) is known


@pytest.mark.parametrize("lost", [0, 1, 100])
def test_a_start_has_the_time_that_slurm_shows_after_lost_cycles_too(lost: int) -> None:
    street = Looks()
    old = looked(2, NOW - 5)
    assert street.look(old, waits=(job(1),)) == RunNews()
    street.now += lost * MINUTE_S
    fresh = looked(1, NOW + 70, submitted_at=UnixTime(NOW - 600.0))
    (begun,) = street.look(old, fresh).started
    assert (begun, begun.wait_s) == (JobRun(fresh), 670.0)
    assert street.look(old, fresh) == RunNews()


def test_one_that_was_hidden_and_runs_on_has_not_started() -> None:
    street = Looks()
    street.look()
    started = looked(5, NOW + 110)
    assert len(street.look(started).started) == 1
    street.look(unreadable=(ODD,), later_s=0.5)
    assert street.look(started).started == ()
    assert street.look(looked(7, NOW - 300)).started == ()


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
    run = JobRun(looked(1, start, submitted_at=submit), end)
    assert [run.wait_s, run.slowdown] == pytest.approx([wait_s, slowdown])
    assert JobRun(looked(1, start), end).slowdown is None
    assert JobRun(run.job).slowdown is None
    with pytest.raises(ValueError, match="out of order"):
        JobRun(run.job, UnixTime(start - 1.0))
