"""A journal that was deleted, replaced or spoilt under its writer: nothing is noted any more."""

import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.errors import JournalError, JournalLostError
from rltuned.journal.cycles import recorded
from rltuned.journal.journal import DAY_S, LOCK_NAME, Journal
from rltuned.journal.mark import mark_path
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


def test_another_file_in_its_place_is_noticed_and_left_as_it_is(journal: Journal) -> None:
    copy = journal.path.with_name("copy")
    copy.write_bytes(journal.path.read_bytes())
    copy.replace(journal.path)
    before = journal.path.read_bytes()
    with pytest.raises(JournalLostError, match="another file"):
        write(journal, 2)
    assert journal.path.read_bytes() == before


def test_last_rows_that_were_changed_behind_its_back_stop_it(journal: Journal) -> None:
    raw = journal.path.read_bytes()
    assert b"1priority" in raw
    with journal.path.open("r+b") as file:  # the same file, some of its bits flipped
        file.write(raw.replace(b"1priority", b"1prioritx"))
    with pytest.raises(JournalLostError, match="does not hold what was written last"):
        write(journal, 2)


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


def test_an_older_copy_of_the_file_is_no_journal(journal: Journal) -> None:
    """In review `restore` of such a copy said that there was nothing to restore."""
    older = journal.path.read_bytes()
    write(journal, 2)
    journal.close()
    journal.path.write_bytes(older)
    for use in (lambda found: found.owned("test"), lambda found: write(found, 3)):
        found = Journal(journal.path.parent)
        with closing(found), pytest.raises(JournalLostError, match="is an older copy"):
            use(found)
    assert journal.path.read_bytes() == older


def test_the_file_alone_holds_all_that_was_written(journal: Journal) -> None:
    """In review what was in the log beside it was lost with the log."""
    write(journal, 2)
    for file in journal.path.parent.glob("journal.sqlite-*"):
        file.unlink()
    journal.close()
    assert len(Journal(journal.path.parent).owned("test")) == 2


def test_a_process_that_ends_before_it_has_left_the_mark_loses_nothing(journal: Journal) -> None:
    path = mark_path(journal.path)
    before = path.read_bytes()
    write(journal, 2)
    journal.close()
    path.write_bytes(before)
    assert len(Journal(journal.path.parent).owned("test")) == 2


@pytest.mark.parametrize("spoilt", [b"", b"{}", b"\xff", b'{"number": 1, "word": "another"}'])
def test_a_mark_that_does_not_fit_stops_everything(journal: Journal, spoilt: bytes) -> None:
    journal.close()
    mark_path(journal.path).write_bytes(spoilt)
    with pytest.raises(JournalLostError):
        Journal(journal.path.parent).owned("test")


def test_of_a_journal_that_is_gone_the_mark_keeps_another_from_being_made(
    journal: Journal,
) -> None:
    journal.close()
    for left in (b"", None):
        journal.path.unlink()
        if left is not None:
            journal.path.write_bytes(left)
        for use in (lambda found: found.owned("test"), lambda found: write(found, 2)):
            found = Journal(journal.path.parent)
            with closing(found), pytest.raises(JournalLostError, match="was there before"):
                use(found)
    assert not journal.path.exists()
    mark_path(journal.path).unlink()  # as all of journal.sqlite* is put away
    write(Journal(journal.path.parent), 2)


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
    for file in Path(sys.argv[1]).glob("journal.sqlite-*"):
        if file.name.startswith(name) and not file.name.endswith("mark"):
            with file.open("r+b") as cut:
                cut.truncate(0)
    if name == "journal.sqlite":
        with journal.path.open("r+b") as cut:
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
db.execute("UPDATE changes SET new = 901")
db.execute("CREATE TABLE filler AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
           " WHERE i < 5000) SELECT i, hex(randomblob(100)) FROM n")
os._exit(9)
"""
    journal.close()
    killed = subprocess.run([sys.executable, "-c", program, str(journal.path)], check=False)
    assert killed.returncode == 9
    assert journal.path.with_name("journal.sqlite-journal").stat().st_size > 0
    (owned,) = Journal(journal.path.parent).owned("test").values()
    assert owned.value == 900


def test_lost_means_that_there_was_one(tmp_path: Path) -> None:
    assert not Journal(tmp_path).is_lost()  # rltuned never wrote from here
    journal = Journal(tmp_path)
    write(journal, 1)
    assert not journal.is_lost()
    journal.close()
    journal.path.write_bytes(b"")
    assert Journal(tmp_path).is_lost()
    journal.path.unlink()
    assert Journal(tmp_path).is_lost()
