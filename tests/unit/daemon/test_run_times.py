"""The memory of run times is fed in order, survives restarts, and stops no cycle."""

import io
import math
import threading
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from rltuned.core.memory import Job, JobKey, Logits, RunTimeMemory
from rltuned.core.run_times import BINS, Float32Array, FloatArray
from rltuned.daemon import run_times
from rltuned.daemon.logger import Log
from rltuned.daemon.run_times import RunTimeLearner, Source
from rltuned.domain.jobs import JobRun, PendingJob, RunningJob
from rltuned.domain.snapshot import NO_CONTEXT, JobTracker, RunTime, Snapshot
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


class Diary:
    """A memory that notes what it receives: (what, job ids)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, tuple[int, ...]]] = []
        self.kept: Collection[JobKey] = ()
        self.met, self.began = set[JobKey](), set[JobKey]()
        self.ends, self.error, self.limit_share = 0, math.nan, 0.75
        self.limit_use: float | None = None
        self.is_known = True
        self.logits: Logits = untaught
        self.broken, self.followed = False, tuple[int, ...]()

    def __len__(self) -> int:
        return 3 * self.ends

    def _note(self, what: str, jobs: Sequence[Job]) -> None:
        if self.broken:
            raise ZeroDivisionError("a bug")
        self.events.append((what, tuple(int(j.job_id) for j in jobs)))

    def submit(self, jobs: Sequence[Job]) -> None:
        self._note("submit", jobs)

    def start(self, jobs: Sequence[RunningJob]) -> None:
        self._note("start", jobs)

    def follow(self, jobs: Iterable[Job]) -> None:
        self.followed = tuple(int(j.job_id) for j in jobs)

    def end(self, ended: Sequence[JobRun]) -> None:
        self._note("end", [run.job for run in ended])
        self.ends += len(ended)
        self.error = 0.5

    def news(self, jobs: Mapping[JobKey, Job]) -> tuple[list[Job], list[RunningJob]]:
        found = [job for key, job in jobs.items() if key not in self.met]
        runs = {key: job for key, job in jobs.items() if isinstance(job, RunningJob)}
        started = [job for key, job in runs.items() if key not in self.began]
        self.met, self.began = self.met | jobs.keys(), self.began | runs.keys()
        return found, started

    def keep(self, jobs: Collection[JobKey]) -> None:
        self.kept = jobs

    def to_bytes(self) -> bytes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, totals=np.array([self.ends, self.error]))
        return buffer.getvalue()

    def restore(self, arrays: Mapping[str, Any]) -> None:
        ends, error = arrays["totals"].tolist()
        self.ends, self.error = int(ends), float(error)

    def predicted(self, jobs: Iterable[PendingJob]) -> dict[JobId, RunTime]:
        return {j.job_id: RunTime(*(60.0 * j.job_id,) * 5, ends=self.ends) for j in jobs}


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
            return cast("RunTimeMemory", self.diaries[-1])

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
    assert [known.plan_s for known in site.predicted.run_times.values()] == [60.0, 120.0]
    diary.events.clear()
    site.look(job(2, submitted_at=T0 + 5), runs=[run_of(1, NOW + 70), run_of(3, T0 + 3)])
    assert diary.events == [("start", (1,))]
    diary.events.clear()
    new = job(4, submitted_at=NOW + 175)
    status = site.look(new, job(2, submitted_at=T0 + 5), runs=[run_of(1, NOW + 70)])
    assert diary.events == [("end", (3,)), ("submit", (4,))]
    assert (status.source, status.ends, status.kinds, status.error) == (Source.LOOKS, 1, 3, 0.5)
    assert status.limit_share == 0.75
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


def test_it_is_kept_every_ten_minutes(site: Site) -> None:
    site.look()
    site.look(later_s=590.0)
    assert not (site.folder / FILE_NAME).exists()
    site.look(later_s=20.0)
    assert (site.folder / FILE_NAME).exists()
    assert [p.name for p in site.folder.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign"])
def test_a_damaged_file_is_made_again_from_sacct(site: Site, damage: str) -> None:
    site.look(runs=[run_of(1, T0)])
    site.look()
    if damage == "foreign":
        site.diaries[-1].to_bytes = lambda: b"no arrays"  # type: ignore[method-assign]
    site.daemon.close()
    path = site.folder / FILE_NAME
    data = path.read_bytes()
    cut = {"flip": data[:-1] + b"?", "cut": data[:-9], "empty": b"", "foreign": data}[damage]
    path.write_bytes(cut)
    site.sacct = lambda: [ended(n, -900, -800, -300) for n in (1, 2)]
    site.started()
    status = site.look()
    assert (status.source, status.ends) == (Source.SACCT, 2)
    assert status.trouble
    assert site.asked[-1][0] == site.now - 30 * 86_400.0


def packed(method: int = zipfile.ZIP_DEFLATED, **arrays: Any) -> bytearray:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, array in arrays.items():
            body = io.BytesIO()
            np.save(body, array)
            archive.writestr(f"{name}.npy", body.getvalue())
    return bytearray(buffer.getvalue())


def _inner(damage: str) -> bytes:
    """An archive that cannot be read, under a digest that is right."""
    if damage == "infinite":
        return bytes(packed(totals=np.array([np.inf, 0.5])))
    if damage == "words":
        return bytes(packed(totals=np.array([["a"], ["b"]])))
    if damage == "bomb":
        return bytes(packed(totals=np.zeros(2), stats=np.zeros(20_000_000)))
    data = packed(totals=np.array([3.0, 0.5]))
    at = data.index(b"totals.npy") + len(b"totals.npy")
    if damage == "deflate":
        data[at : at + 20] = b"\xff" * 20
    else:  # a compression that nobody knows
        data[8:10] = b"\x63\x00"
        directory = data.index(b"PK\x01\x02")
        data[directory + 10 : directory + 12] = b"\x63\x00"
    return bytes(data)


@pytest.mark.parametrize("damage", ["infinite", "words", "bomb", "deflate", "method"])
def test_a_store_that_is_whole_and_senseless_is_one_line_and_sacct_teaches_again(
    site: Site, damage: str
) -> None:
    keep_learned(site.folder, Learned(cluster="test", salt="", seen_at=site.now), _inner(damage))
    site.sacct = lambda: [ended(n, -900, -800, -300) for n in (1, 2)]
    status = site.look()
    assert (status.source, status.ends) == (Source.SACCT, 2)
    assert status.trouble
    (line,) = [values for event, values in site.log.out if event == "run_times"]
    assert line["trouble"] == status.trouble


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
    assert (status.source, status.trouble) == (
        Source.LOOKS,
        "sacct ended with 1: slurmdbd is down",
    )
    site.look()
    assert [event for event, _ in site.log.out] == ["run_times"]


def test_a_slow_sacct_delays_no_cycle_and_no_end_is_lost(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    site.look()
    site.diaries[-1].ends = 7

    def other(inputs: Float32Array) -> FloatArray:
        return np.ones((len(inputs), BINS))

    def made() -> RunTimeMemory:
        new = Diary()
        new.logits = other
        return cast("RunTimeMemory", new)

    site.daemon.exchange(made)
    assert site.diaries[-1].logits is other
    assert site.look().ends == 7


def test_at_every_look_all_that_wait_and_run_are_followed(site: Site) -> None:
    site.look(job(1), runs=[run_of(2, T0)])
    assert site.diaries[-1].followed == (1, 2)
