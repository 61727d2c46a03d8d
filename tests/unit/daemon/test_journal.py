"""The journal: intents and claims, what it forgets, files that are lost or not to be trusted."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rltuned.domain.plan import (
    OVERSUBSCRIBE,
    Action,
    Result,
    target_of,
)
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import JournalError, JournalLostError
from rltuned.files import write_whole
from rltuned.journal.cycles import CycleRow, recorded
from rltuned.journal.journal import DAY_S, LOCK_NAME, Journal
from rltuned.journal.retention import Keeping
from rltuned.journal.store import (
    FILE_NAME,
    SALT_FILE,
    SCHEMA_VERSION,
    keep_salt,
    read_salt,
    reading,
)
from tests.builders import (
    NOW,
    job,
    noted,
    release,
    set_priority,
    sight,
    snapshot,
    sure,
)

CLUSTER = "test"


def _altered(statement: str, *, anew: bool = False) -> Callable[[Path], object]:
    def alter(path: Path) -> None:
        if anew:
            path.unlink()
        with closing(sqlite3.connect(path)) as db:
            db.execute(statement)

    return alter


def _pipe_beside(path: Path) -> None:
    beside = path.with_name(f"{path.name}-journal")
    beside.unlink(missing_ok=True)
    os.mkfifo(beside)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_altered("CREATE TABLE photos (id INTEGER)", anew=True), "not rltuned's"),
        (_altered("PRAGMA user_version = 99"), "another release"),
        (_altered(f"PRAGMA user_version = {SCHEMA_VERSION - 1}"), "the release that wrote it"),
        (_pipe_beside, "sqlite-journal: is not a regular file"),
        (lambda p: p.chmod(0o666), "others may write"),
        (lambda p: p.parent.chmod(0o777), "others may write"),
    ],
)
def test_an_untrusted_file_is_refused(
    tmp_path: Path, spoil: Callable[[Path], object], says: str
) -> None:
    journal = Journal(tmp_path)
    noted(journal, set_priority(job(1), 900))
    journal.close()
    spoil(journal.path)
    before = journal.path.read_bytes()
    with pytest.raises(JournalError, match=says):
        Journal(tmp_path).owned(CLUSTER)
    with pytest.raises(JournalError, match=says):
        noted(Journal(tmp_path), set_priority(job(2), 900))
    assert journal.path.read_bytes() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_hands_a_new_file_to_the_folders_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 12_345, 12_345)
    noted(Journal(tmp_path), set_priority(job(1), 900))
    assert {p.stat().st_uid for p in tmp_path.iterdir()} == {12_345}
    os.chown(tmp_path / "journal.sqlite", 54_321, 0)
    with pytest.raises(JournalError, match="belongs to uid 54321"):
        Journal(tmp_path).owned(CLUSTER)


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "gone")
    with pytest.raises(JournalError, match="No such file"):
        noted(journal, set_priority(job(1), 900))
    with pytest.raises(JournalError, match=f"^{journal.path}: No such file or directory$"):
        journal.probe()


@pytest.mark.parametrize("ends", [True, False])
def test_what_a_killed_process_left_goes_with_the_next_file(tmp_path: Path, *, ends: bool) -> None:
    """Each kill within a write left a file of up to 30 MiB, for ever."""
    path, other = tmp_path / "run-times", tmp_path / ".run-times-elsewhere-1"
    other.touch()
    program = (
        "import sys\nfrom pathlib import Path\nfrom rltuned.files import write_whole\n"
        "def ready(_): print('ready', flush=True); sys.stdin.read()\n"
        "write_whole(Path(sys.argv[1]), b'old', prepare=ready)\n"
    )
    argv = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        sure(writer.stdout).readline()
        if ends:
            writer.kill()
            writer.wait()
        write_whole(path, b"new")
        assert path.read_bytes() == b"new"
        left = {file.name for file in tmp_path.iterdir()} - {path.name, other.name}
        assert len(left) == (0 if ends else 1)


def test_writes_of_the_last_hour_are_counted_by_job_and_survive_a_restart(tmp_path: Path) -> None:
    first, again = job(1), job(1, submitted_at=NOW - 9)
    journal = Journal(tmp_path)
    noted(journal, set_priority(first, 900))
    noted(journal, set_priority(again, 800))
    noted(journal, set_priority(first, 901), by=Result.REFUSED)
    noted(journal, release(first))
    noted(journal, Action(OVERSUBSCRIBE, target_of(first), "NO", "YES"))
    noted(journal, Action(OVERSUBSCRIBE, target_of(first), "YES", "NO"))
    noted(journal, Action(OVERSUBSCRIBE, target_of(first), "NO", "YES"), by=Result.WITHHELD)
    journal.close()
    journal = Journal(tmp_path)
    assert journal.recent_writes(CLUSTER, NOW - 3_600) == {
        (1, first.submitted_at): 3,
        (1, again.submitted_at): 1,
    }
    assert journal.recent_writes(CLUSTER, NOW + 1) == {}
    assert journal.recent_writes("another", NOW - 3_600) == {}


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


def write(journal: Journal, number: int, at: float = NOW) -> None:
    noted(journal, set_priority(job(number), 900), at=at)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    found = Journal(tmp_path)
    write(found, 1)
    return found


def replaced(path: Path, older: bytes) -> None:
    path.with_name("copy").write_bytes(older)
    path.with_name("copy").replace(path)


@pytest.mark.parametrize(
    ("put", "says"),
    [(replaced, "another file"), (Path.write_bytes, "does not hold what was written last")],
)
def test_an_older_copy_under_the_writer_is_noticed_and_left_as_it_is(
    journal: Journal, put: Callable[[Path, bytes], object], says: str
) -> None:
    older = journal.path.read_bytes()
    write(journal, 2)
    put(journal.path, older)
    with pytest.raises(JournalLostError, match=says):
        write(journal, 3)
    assert journal.path.read_bytes() == older


def test_what_another_process_writes_in_order_is_trusted(journal: Journal) -> None:
    journal.let_go()
    other = Journal(journal.path.parent)
    write(other, 2)
    other.close()
    assert len(journal.owned("test")) == 2
    write(journal, 3)
    assert len(journal.owned("test")) == 3


def test_damage_is_found_within_a_day_and_stays_found(journal: Journal) -> None:
    for number in range(2, 400):
        write(journal, number)
    journal.keep(sight(snapshot(job(1))))
    size = journal.path.stat().st_size
    with journal.path.open("r+b") as file:
        file.seek(size // 2)
        file.write(os.urandom(4096))
    with pytest.raises(JournalLostError, match="is damaged"):
        journal.keep(sight(snapshot(job(1)), cycle=2, at=NOW + DAY_S + 1))
    with pytest.raises(JournalLostError, match="is damaged"):
        journal.owned("test")


def test_without_the_lock_file_there_is_still_one_writer(journal: Journal) -> None:
    other = Journal(journal.path.parent)
    (journal.path.parent / LOCK_NAME).unlink()
    with pytest.raises(JournalError, match="a live rltuned"):
        write(other, 2)
    journal.let_go()
    write(other, 2)
    with pytest.raises(JournalError, match=rf"pid {os.getpid()}"):
        write(journal, 3)


def test_who_reads_snapshot_by_snapshot_keeps_no_writer_waiting(journal: Journal) -> None:
    for cycle in (1, 2, 3):
        journal.keep(sight(snapshot(job(cycle)), cycle=cycle, at=NOW + cycle))
    for number, seen in enumerate(recorded(journal.path), start=4):
        began = time.monotonic()
        journal.keep(sight(snapshot(job(number)), cycle=number, at=NOW + number))
        write(journal, number)
        assert time.monotonic() - began < 3.0, f"it waited for the reader of cycle {seen.cycle}"
    assert number == 6


def test_the_salt_is_drawn_once_and_no_other_user_can_read_it(tmp_path: Path) -> None:
    assert read_salt(tmp_path) is None
    salt = keep_salt(tmp_path)
    assert keep_salt(tmp_path) == read_salt(tmp_path) == salt
    assert len(salt) == 32
    assert (tmp_path / SALT_FILE).stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [SALT_FILE]


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        *((text, 0o600, f"salt: {len(text)} bytes instead of 32") for text in (b"", bytes(33))),
        (bytes(32), 0o640, r"other users may read it \(mode 0640\); fix with: chmod 0600"),
        (None, 0o700, "salt: cannot be read: Is a directory"),
    ],
)
def test_a_salt_that_is_damaged_or_that_others_read_is_refused_and_kept(
    tmp_path: Path, content: bytes | None, mode: int, why: str
) -> None:
    path = tmp_path / SALT_FILE
    path.mkdir() if content is None else path.write_bytes(content)
    path.chmod(mode)
    for use in (read_salt, keep_salt):
        with pytest.raises(JournalError, match=why):
            use(tmp_path)
    assert content is None or path.read_bytes() == content
    with pytest.raises(JournalError, match="cannot be written"):
        keep_salt(tmp_path / "absent")
