"""A journal that was deleted, replaced or spoilt under its writer: nothing is noted any more."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.errors import JournalError, JournalLostError
from rltuned.journal.cycles import recorded
from rltuned.journal.journal import DAY_S, LOCK_NAME, Journal
from tests.builders import NOW, job, noted, set_priority, sight, snapshot
from tests.programs import ran


def write(journal: Journal, number: int, at: float = NOW) -> None:
    noted(journal, set_priority(job(number), 900), at=at)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    found = Journal(tmp_path)
    write(found, 1)
    return found


def test_a_deleted_file_is_noticed_and_not_made_again(journal: Journal) -> None:
    file = journal.path
    aside = file.rename(file.with_name("aside"))
    for use in (lambda: write(journal, 2), lambda: journal.owned("test")):
        with pytest.raises(JournalLostError, match="was deleted or moved"):
            use()
    assert not file.exists()
    aside.rename(file)  # put back: the same file
    write(journal, 2)
    assert len(journal.owned("test")) == 2


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


def test_damage_is_found_at_the_start_and_nothing_is_changed(journal: Journal) -> None:
    journal.close()
    with journal.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    before = journal.path.read_bytes()
    with pytest.raises(JournalLostError, match="is damaged"):
        Journal(journal.path.parent).owned("test")
    assert journal.path.read_bytes() == before


def test_without_the_lock_file_there_is_still_one_writer(journal: Journal) -> None:
    other = Journal(journal.path.parent)
    (journal.path.parent / LOCK_NAME).unlink()
    with pytest.raises(JournalError, match="a live rltuned"):
        write(other, 2)
    journal.let_go()
    write(other, 2)
    with pytest.raises(JournalError, match=rf"pid {os.getpid()}"):
        write(journal, 3)


@pytest.mark.parametrize("kept", [None, b"", b"[1]", b'{"number": 1}', b"\xff"])
def test_the_mark_outside_shows_an_older_copy_of_the_folder(
    tmp_path: Path, kept: bytes | None
) -> None:
    """In review `restore` of such a copy said that there was nothing to restore. kept: what lies in
    the mark's place, which says nothing unless it is a mark; None = the mark.
    """
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    with closing(Journal(folder, marks=tmp_path)) as journal:
        write(journal, 1)
        older = journal.path.read_bytes()
        write(journal, 2)
    (mark,) = tmp_path.glob("journal-mark-*")
    assert len(Journal(folder, marks=tmp_path).owned("test")) == 2
    journal.path.write_bytes(older)
    if kept is not None:
        mark.write_bytes(kept)
        assert len(Journal(folder, marks=tmp_path).owned("test")) == 1
        return
    for use in (lambda found: found.owned("test"), lambda found: write(found, 3)):
        with (
            closing(Journal(folder, marks=tmp_path)) as found,
            pytest.raises(JournalLostError, match="is an older copy"),
        ):
            use(found)
    journal.path.unlink()
    with closing(Journal(folder, marks=tmp_path)) as anew:
        write(anew, 4)
        assert len(anew.owned("test")) == 1


@pytest.mark.parametrize("name", ["journal.sqlite", "journal.sqlite-journal"])
def test_a_file_that_is_cut_under_the_writer_ends_no_process(tmp_path: Path, name: str) -> None:
    """In review the pages of a file that was cut were in memory: SIGBUS."""
    program = """
import sys
from pathlib import Path
from tests.unit.daemon.test_trust import write
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
journal, name = Journal(Path(sys.argv[1])), sys.argv[2]
write(journal, 1)
for number in range(2, 9):
    for file in Path(sys.argv[1]).glob(name + "*"):
        with file.open("r+b") as cut:
            cut.truncate(0)
    try:
        write(journal, number)
    except JournalError as error:
        print("refused:", error)
print("alive")
"""
    done = ran(sys.executable, "-c", program, str(tmp_path), name)
    assert done.stdout.endswith("alive\n")
    assert ("refused" in done.stdout) == (name == "journal.sqlite")


def test_who_reads_snapshot_by_snapshot_keeps_no_writer_waiting(journal: Journal) -> None:
    for cycle in (1, 2, 3):
        journal.keep(sight(snapshot(job(cycle)), cycle=cycle, at=NOW + cycle))
    for number, seen in enumerate(recorded(journal.path), start=4):
        began = time.monotonic()
        journal.keep(sight(snapshot(job(number)), cycle=number, at=NOW + number))
        write(journal, number)
        assert time.monotonic() - began < 3.0, f"it waited for the reader of cycle {seen.cycle}"
    assert number == 6


def test_what_a_killed_writer_left_half_written_is_rolled_back(journal: Journal) -> None:
    program = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 1")
db.execute("BEGIN IMMEDIATE")
db.execute("UPDATE owned SET original = 901")
db.execute("CREATE TABLE filler AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
           " WHERE i < 5000) SELECT i, hex(randomblob(100)) FROM n")
os._exit(9)
"""
    journal.close()
    killed = subprocess.run([sys.executable, "-c", program, str(journal.path)], check=False)
    assert killed.returncode == 9
    assert journal.path.with_name("journal.sqlite-journal").stat().st_size > 0
    (owned,) = Journal(journal.path.parent).owned("test").values()
    assert owned.original == 1000


def test_lost_means_that_there_was_one(tmp_path: Path) -> None:
    assert not Journal(tmp_path).is_lost()  # rltuned never wrote from here
    with closing(Journal(tmp_path)) as journal:
        journal.claim()
    assert not Journal(tmp_path).is_lost()  # a restore looked for one
    write(journal, 1)
    assert not journal.is_lost()
    journal.close()
    journal.path.write_bytes(b"")
    assert Journal(tmp_path).is_lost()
    journal.path.unlink()
    assert Journal(tmp_path).is_lost()
