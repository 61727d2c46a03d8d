"""The journal forgets by age and by size, and never what a restore needs."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from rltuned.domain.snapshot import Snapshot
from rltuned.journal.cycles import CycleRow
from rltuned.journal.journal import Journal
from rltuned.journal.retention import Keeping, used_bytes
from rltuned.journal.store import FILE_NAME, reading
from tests.builders import (
    NOW,
    job,
    noted,
    release,
    running,
    set_priority,
    sight,
    snapshot,
)

DAY_S = 86_400.0
CLUSTER = "test"


def rows(folder: Path, query: str) -> list[tuple[int, ...]]:
    with reading(folder / FILE_NAME) as db:
        return db.execute(query).fetchall()


def unlike(cycle: int, jobs: int = 400) -> Snapshot:
    """A queue that compresses badly and resembles no other."""
    draw = np.random.default_rng(cycle)
    names = draw.integers(0, 2**62, (jobs, 2)).tolist()
    pending = [job(i + 1, user=f"{a:x}", account=f"{b:x}") for i, (a, b) in enumerate(names)]
    return snapshot(*pending, taken_at=NOW + 60 * cycle)


def test_what_is_old_goes_together(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Keeping(days=30))
    noted(journal, set_priority(job(1), 900), set_priority(job(2), 900))
    noted(journal, set_priority(job(3), 900), by=None)
    noted(journal, release(job(1, priority=900)))
    for cycle in (1, 2, 3):
        at = NOW + 20 * DAY_S * (cycle - 1)
        journal.keep(sight(unlike(cycle, 2), cycle=cycle, at=at))
    assert rows(tmp_path, "SELECT cycle FROM cycles") == [(2,), (3,)]
    assert rows(tmp_path, "SELECT cycle FROM plans") == [(2,), (3,)]
    assert rows(tmp_path, "SELECT count(*) FROM snapshots") == [(2,)]
    assert rows(tmp_path, "SELECT job_id FROM owned") == [(2,), (3,)]
    assert rows(tmp_path, "SELECT count(*) FROM diary") == [(0,)]
    assert journal.last_cycle() == 3
    journal.close()


def test_a_shared_snapshot_stays_as_long_as_a_cycle_names_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Keeping(days=30))
    seen = snapshot(job(1))
    for cycle in (1, 2):
        journal.keep(sight(seen, cycle=cycle, at=NOW + 25 * DAY_S * cycle))
    journal.keep(sight(unlike(3, 2), cycle=3, at=NOW + 60 * DAY_S))
    named = "SELECT cycle FROM cycles JOIN snapshots ON digest = snapshot ORDER BY cycle"
    assert rows(tmp_path, named) == [
        (2,), (3,),
    ]  # fmt: skip
    journal.close()


def test_the_latest_cycle_stays_whatever_the_clock_says(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Keeping(days=30))
    journal.record(CycleRow(7, NOW, CLUSTER, "live", "", "fcfs", 1, 1, 1, 1, 0.5))
    journal.keep(sight(snapshot(job(1)), cycle=8, at=NOW - 900 * DAY_S))
    journal.keep(sight(snapshot(job(1)), cycle=9, at=NOW + 900 * DAY_S))
    assert journal.last_cycle() == 9
    journal.close()


def test_the_size_stays_below_the_limit_and_the_latest_are_kept(tmp_path: Path) -> None:
    limit_mib = 1.0
    journal = Journal(tmp_path, Keeping(max_mib=limit_mib))
    for cycle in range(1, 161):
        journal.keep(sight(unlike(cycle), cycle=cycle, at=NOW + 60 * cycle))
    kept = [c for (c,) in rows(tmp_path, "SELECT cycle FROM cycles WHERE snapshot IS NOT NULL")]
    kept.sort()
    assert kept == list(range(kept[0], 161))
    assert 20 < len(kept) < 100
    assert len(rows(tmp_path, "SELECT cycle FROM cycles")) == 160
    journal.close()
    assert (tmp_path / FILE_NAME).stat().st_size < (limit_mib + 0.2) * 1024 * 1024


def test_a_lowered_limit_gives_space_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for cycle in range(1, 81):
        journal.keep(sight(unlike(cycle), cycle=cycle, at=NOW + 60 * cycle))
    journal.close()
    before = (tmp_path / FILE_NAME).stat().st_size
    lower = Journal(tmp_path, Keeping(max_mib=0.2))
    for cycle in range(81, 84):
        lower.keep(sight(unlike(cycle, 2), cycle=cycle, at=NOW + 60 * cycle))
    lower.close()
    assert (tmp_path / FILE_NAME).stat().st_size < before / 2


def test_a_large_write_leaves_no_large_log(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for size in (40 * 1024 * 1024, 1, 2):  # the second write clears the pages of the first
        journal.remember("state", "x" * size, NOW)
    assert (tmp_path / f"{FILE_NAME}-journal").stat().st_size <= 16 * 1024 * 1024
    journal.close()


def gone(journal: Journal, number: int, values: Sequence[int], at: float) -> None:
    one = job(number, priority=500)
    for step, value in enumerate(values):
        noted(journal, set_priority(one, value), at=at + step)
        one = replace(one, priority=value)
    journal.close_gone(CLUSTER, ())


def test_what_left_the_queue_is_kept_for_its_return_and_no_more(tmp_path: Path) -> None:
    journal = Journal(tmp_path, Keeping(days=90))
    gone(journal, 1, [600, 700, 800, 900], at=NOW)
    journal.keep(sight(snapshot(job(9)), cycle=1, at=NOW + 29 * DAY_S))
    back = job(1, priority=900, submitted_at=NOW + 60, fixed=True, site_factor=None)
    assert len(journal.reclaim(CLUSTER, [back], NOW + 90)) == 1
    assert journal.owned(CLUSTER)[back.job_id, back.submitted_at].original == 500
    journal.close_gone(CLUSTER, ())
    journal.keep(sight(snapshot(job(9)), cycle=2, at=NOW + 31 * DAY_S))
    journal.keep(sight(snapshot(job(9)), cycle=3, at=NOW + 33 * DAY_S))
    assert rows(tmp_path, "SELECT count(*) FROM owned") == [(0,)]
    journal.close()


def test_a_job_that_runs_longer_than_anything_is_kept_is_known_when_requeued(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path, Keeping(days=1, max_mib=0.0))
    gone(journal, 1, [900], at=NOW)
    for day in range(40):
        shown = snapshot(job(9), runs=[running(1)])
        journal.keep(sight(shown, cycle=day + 1, at=NOW + day * DAY_S))
    back = job(1, priority=900, submitted_at=NOW + 40 * DAY_S, fixed=True, site_factor=None)
    assert len(journal.reclaim(CLUSTER, [back], NOW + 40 * DAY_S)) == 1
    journal.close()


def test_the_limit_holds_however_many_jobs_have_ended(tmp_path: Path) -> None:
    limit_mib = 0.3
    journal = Journal(tmp_path, Keeping(days=90, max_mib=limit_mib))
    for number in range(1, 3_001):
        noted(journal, set_priority(job(number), 900), by=None)
    journal.close_gone(CLUSTER, ())
    for cycle in range(1, 8):
        journal.keep(sight(snapshot(job(9_999)), cycle=cycle, at=NOW + cycle * DAY_S))
    journal.close()
    assert (tmp_path / FILE_NAME).stat().st_size < (limit_mib + 0.2) * 1024 * 1024


def test_used_bytes_are_those_of_the_pages_in_use(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "some.sqlite", isolation_level=None)) as db:
        db.execute("CREATE TABLE t (body BLOB)")
        db.execute("INSERT INTO t VALUES (zeroblob(1000000))")
        full = used_bytes(db)
        db.execute("DELETE FROM t")
        assert full > 1_000_000
        assert used_bytes(db) < 50_000
