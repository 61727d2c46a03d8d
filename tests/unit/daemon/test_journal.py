"""The diary: durable intents, claims, closing, and files that cannot be trusted."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rltuned.files import write_whole

from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import (
    OVERSUBSCRIBE,
    PRIORITY,
    SITE_FACTOR,
    Action,
    Plan,
    Result,
    target_of,
)
from rltuned.errors import JournalError
from rltuned.journal.journal import LOCK_NAME, Journal
from rltuned.journal.store import SCHEMA_VERSION
from tests.builders import NOW, job, noted, release, set_priority, set_site_factor, sure
from tests.programs import ran

CLUSTER = "test"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def owned(journal: Journal, of: PendingJob) -> Ownership | None:
    return journal.owned(CLUSTER).get((of.job_id, of.submitted_at))


def test_a_new_journal_owns_nothing_and_makes_no_file(journal: Journal) -> None:
    assert journal.owned(CLUSTER) == {}
    assert journal.last_cycle() == 0
    assert not journal.path.exists()


def test_an_applied_write_is_ours_with_the_first_nice_and_the_last_value(journal: Journal) -> None:
    one = job(1, priority=500, nice=30)
    noted(journal, replace(set_priority(one, 900), rest=120))
    noted(journal, replace(set_priority(job(1, priority=900, nice=0), 700), rest=7))
    ours = Ownership(
        "priority", 700, nice=30, original=500, earlier=(500, 900), rest=120, written_at=NOW
    )
    assert owned(journal, one) == ours
    assert [v for v in (500, 503, 700, 900, 901, 450) if ours.explains(v)] == [500, 503, 700, 900]


def test_both_fields_of_one_job_are_two_claims(journal: Journal) -> None:
    noted(journal, set_site_factor(job(1), 100), at=NOW - 1)
    noted(journal, set_priority(job(1), 900))
    assert [c.field for c in journal.claims(CLUSTER)] == [SITE_FACTOR, PRIORITY]
    assert owned(journal, job(1)) == Ownership(
        "priority", 900, nice=0, original=1000, earlier=(1000,), written_at=NOW
    )
    noted(journal, release(job(1, priority=900)))
    assert owned(journal, job(1)) == Ownership(
        "site_factor", 100, original=0, earlier=(0,), written_at=NOW - 1
    )


def test_everything_is_there_after_the_process_was_killed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from rltuned.journal.journal import Journal\n"
        "from rltuned.domain.plan import Plan\n"
        "from tests.builders import job, set_priority\n"
        "j = Journal(Path(sys.argv[1]))\n"
        "j.intend(Plan((set_priority(job(7), 900),)), cluster='test', cycle=3, at=0.0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran(sys.executable, "-c", program, tmp_path, code=-signal.SIGKILL)
    journal = Journal(tmp_path)
    assert owned(journal, job(7)) == Ownership(
        "priority", 900, nice=0, original=1000, earlier=(1000,)
    )
    assert journal.last_cycle() == 3
    noted(journal, set_priority(job(8), 900))  # the dead writer's lock is gone with it


def test_a_second_writer_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    first, second = Journal(tmp_path), Journal(tmp_path)
    (tmp_path / LOCK_NAME).write_text("41943040\n")  # of a writer with a longer number
    noted(first, set_priority(job(1), 900))
    with pytest.raises(JournalError, match=rf"\(pid {os.getpid()}\).*pause"):
        noted(second, set_priority(job(2), 900))
    assert owned(second, job(1)) is not None
    first.let_go()
    noted(second, set_priority(job(2), 900))


def test_what_is_remembered_outlives_the_process_and_is_replaced(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.recall("breakers") is None
    journal.remember("breakers", {"gpu": [1, 2.5, None]}, NOW)
    journal.remember("breakers", {"gpu": []}, NOW + 1)
    journal.close()
    assert Journal(tmp_path).recall("breakers") == {"gpu": []}
    with pytest.raises(TypeError):
        journal.remember("breakers", object(), NOW)
    assert journal.recall("breakers") == {"gpu": []}


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[2000:4096] = os.urandom(2096)
    path.write_bytes(data)


def _foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE photos (id INTEGER)")


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")


def _older(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION - 1}")


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_damage, "journal.sqlite"),
        (_foreign, "not rltuned's"),
        (_newer, "another release"),
        (_older, "restore with the release that wrote it"),
        (_link, "not a regular file"),
        (lambda p: p.write_bytes(b"garbage" * 100), "not a database"),
        (lambda p: p.chmod(0o666), "others may write"),
        (lambda p: p.parent.chmod(0o777), "others may write"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(
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


def test_a_full_disk_is_reported_and_nothing_half_written_stays(tmp_path: Path) -> None:
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from rltuned.journal.journal import Journal\n"
        "from rltuned.domain.plan import Plan\n"
        "from rltuned.errors import JournalError\n"
        "from tests.builders import job, set_priority\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "note = lambda n: journal.intend(Plan(tuple(set_priority(job(i), 900)"
        " for i in range(1, n))), cluster='test', cycle=1, at=0.0)\n"
        "note(3)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (131072, resource.RLIM_INFINITY))\n"
        "try: note(5000)\n"
        "except JournalError as error: print(error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))\n"
        "print(len(journal.claims('test')))\n"
        "note(4)\n"
        "print(len(journal.claims('test')))\n"
    )
    done = ran(sys.executable, "-c", program, tmp_path)
    error, kept, after = done.stdout.splitlines()
    assert "journal.sqlite: " in error
    assert (kept, after) == ("2", "3")


@pytest.mark.parametrize("ends", [True, False])
def test_what_a_killed_process_left_half_written_goes_with_the_next_file(
    tmp_path: Path, *, ends: bool
) -> None:
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


def test_writes_noted_while_the_clock_was_ahead_count_when_their_time_has_come(
    tmp_path: Path,
) -> None:
    journal, one = Journal(tmp_path), job(1)
    for at in (NOW - 60, NOW + 7_200, NOW + 7_260):
        journal.intend(Plan((set_priority(one, 900),)), cluster=CLUSTER, cycle=1, at=at)
    for asked in (journal, Journal(tmp_path)):
        counts = [
            asked.recent_writes(CLUSTER, now - 3_600, now).get(one.key, 0)
            for now in (NOW, NOW + 3_600, NOW + 7_200, NOW + 9_000, NOW, NOW + 11_000)
        ]
        assert counts == [1, 0, 1, 2, 1, 0]
