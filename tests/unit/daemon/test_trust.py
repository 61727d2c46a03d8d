"""A journal that was deleted, replaced or spoilt under its writer: nothing is noted any more."""

import os
import sqlite3
from pathlib import Path

import pytest

from rltuned.domain.plan import Outcome, Plan, Result
from rltuned.errors import JournalError, JournalLostError
from rltuned.journal.journal import DAY_S, LOCK_NAME, Journal
from tests.builders import NOW, job, set_priority, sight, snapshot


def write(journal: Journal, number: int, at: float = NOW) -> None:
    action = set_priority(job(number), 900)
    ticket = journal.intend(Plan((action,)), cluster="test", cycle=1, at=at)
    journal.settle(ticket, [Outcome(action, Result.APPLIED)], at=at)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    found = Journal(tmp_path)
    write(found, 1)
    return found


@pytest.mark.parametrize("name", ["journal.sqlite", "journal.sqlite-wal"])
def test_a_deleted_file_is_noticed_and_not_made_again(journal: Journal, name: str) -> None:
    file = journal.path.with_name(name)
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


def test_the_whole_folder_moved_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    journal = Journal(folder)
    write(journal, 1)
    folder.rename(tmp_path / "away")
    folder.mkdir(mode=0o700)
    with pytest.raises(JournalLostError):
        write(journal, 2)
    assert list(folder.iterdir()) == []


def test_last_rows_that_were_changed_behind_its_back_stop_it(journal: Journal) -> None:
    log = journal.path.with_name("journal.sqlite-wal")
    raw = log.read_bytes()
    assert b"1priority" in raw
    with log.open("r+b") as file:  # the same file, some of its bits flipped
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
    with sqlite3.connect(journal.path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
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
