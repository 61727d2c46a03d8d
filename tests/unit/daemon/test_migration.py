"""Journals that older releases left behind are taken over; those of newer ones are left alone."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.daemon.restore import restore
from rltuned.domain.plan import Plan, SetRequest, Target
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.ownership import NUM_NODES, Fate
from rltuned.journal.schema import STEPS
from rltuned.journal.snapshots import APPLICATION_ID, FILE_NAME, SCHEMA_VERSION, reading
from tests.builders import NOW, job, snapshot
from tests.fakes import FakeBackend, FakeClock
from tests.schema import SCHEMA_4, journal_of

SCHEMA_5 = "ALTER TABLE writes ADD COLUMN rest INTEGER;"
ROWS = """
INSERT INTO cycles (cycle, at, cluster, mode, skipped, policy, pending, chosen, proposed, applied,
    seconds) VALUES (41, :now, 'test', 'live', '', 'sjf', 2, 2, 1, 1, 0.3);
INSERT INTO writes (id, cycle, at, cluster, job_id, submitted_at, address, field, old, new, nice,
    result, finished_at, closed) VALUES
    (1, 41, :now, 'test', 1, :then, '1', 'priority', 300, 900, 7, 'applied', :now, NULL),
    (2, 41, :now, 'test', 2, :then, '2', 'site_factor', 40, 500, NULL, NULL, NULL, NULL),
    (3, 41, :now, 'test', 3, :then, '3', 'priority', 300, 900, 0, 'gone', :now, 'gone');
INSERT INTO flags (id, cycle, at, cluster, job_id, submitted_at, address, old, new, result,
    finished_at) VALUES (1, 41, :now, 'test', 4, :then, '4', 'NO', 'YES', 'applied', :now);
"""


OLDER = (4, 5)
COLUMNS = {
    "writes": (
        "cycle, at, cluster, job_id, submitted_at, address, field, old, new, nice, rest, only_nice,"
        " newest_id, snapshot, result, detail, finished_at, closed, ended_at"
    ),
    "flags": (
        "cycle, at, cluster, job_id, submitted_at, address, field, old, new, tries, snapshot,"
        " result, detail, finished_at, closed, ended_at"
    ),
}
"""Of the tables that schema 6 made one."""
EVERY_KIND = """
INSERT INTO writes (id, cycle, at, cluster, job_id, submitted_at, address, field, old, new, nice,
    rest, only_nice, newest_id, snapshot, result, detail, finished_at, closed, ended_at)
VALUES
    (7, 40, 9.5, 'test', 11, 1.25, '11_[1-3]', 'priority', 300, 900, -7, 250, 0, 12, 'abc',
     'applied', 'a', 9.75, NULL, NULL),
    (9, 41, 8.5, 'test', 11, 1.25, '11_[1-3]', 'release', 900, NULL, 5, NULL, 1, 13, NULL,
     'failed', 'b', 9.5, 'failed', NULL),
    (12, 39, 7.5, 'else', 12, 2.5, '12', 'site_factor', -40, 2147483645, NULL, NULL, 0, NULL, NULL,
     NULL, '', NULL, 'gone', 77.5);
INSERT INTO flags (id, cycle, at, cluster, job_id, submitted_at, address, field, old, new, tries,
    snapshot, result, detail, finished_at, closed, ended_at)
VALUES
    (3, 38, 6.5, 'test', 11, 1.25, '11', 'oversubscribe', 'NO', 'YES', 4, 'def', 'refused', 'c',
     6.75, 'refused', NULL),
    (9, 42, 5.5, 'test', 13, 3.5, '13', 'excluded_nodes', '', 'k1,k2', 1, NULL, NULL, '', NULL,
     NULL, NULL),
    (10, 43, 4.5, 'test', 14, 3.5, '14', 'excluded_nodes', '12', '007', 1, NULL, 'applied', '',
     4.75, 'gone', 78.5);
"""


def older(folder: Path, version: int) -> Path:
    """A journal as that release left it: one write done, one cut off, one job gone."""
    tables = SCHEMA_4 + ROWS + (SCHEMA_5 if version > 4 else "")
    tables = tables.replace(":now", str(NOW)).replace(":then", str(NOW - 600))
    journal_of(folder, tables, version).close()
    return folder / FILE_NAME


def tables_of(path: Path) -> list[tuple[object, ...]]:
    """Every column of every table, and every index."""
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT type, name, iif(type = 'index', sql, '') FROM sqlite_master")
        rows: list[tuple[object, ...]] = found.fetchall()
        for kind, name, _ in [*rows]:
            if kind == "table":
                rows += [(name, *row) for row in db.execute(f"PRAGMA table_info({name})")]
    return sorted(rows, key=str)


@pytest.mark.parametrize("version", OLDER)
def test_what_an_older_release_wrote_is_given_back(tmp_path: Path, version: int) -> None:
    older(tmp_path, version)
    world = FakeBackend(
        snapshot(
            job(1, priority=900, nice=0),
            job(2, site_factor=500),
            job(4, oversubscribe="YES"),
        )
    )
    journal = Journal(tmp_path)
    items = {int(r.claim.target.job_id): r.fate for r in restore(world, journal, FakeClock())}
    assert items == dict.fromkeys([1, 2, 4], Fate.GIVEN_BACK)
    assert (world.job(1).nice, world.job(2).site_factor) == (7, 40)
    assert journal.last_cycle() == 41
    journal.close()


@pytest.mark.parametrize("version", OLDER)
def test_it_ends_up_with_the_tables_of_a_new_one(tmp_path: Path, version: int) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    for folder in (older(tmp_path / "old", version).parent, tmp_path / "new"):
        journal = Journal(folder)
        journal.remember("a", 1, NOW)
        journal.close()
    assert tables_of(tmp_path / "old" / FILE_NAME) == tables_of(tmp_path / "new" / FILE_NAME)


@pytest.mark.parametrize("version", OLDER)
def test_a_held_job_of_an_older_journal_gets_its_nice_back(tmp_path: Path, version: int) -> None:
    older(tmp_path, version)
    world = FakeBackend(snapshot(job(1, priority=0, nice=0, held_by="user", live=True)))
    journal = Journal(tmp_path)
    items = {int(r.claim.target.job_id): r.fate for r in restore(world, journal, FakeClock())}
    assert items[1] is Fate.GIVEN_BACK
    assert (world.job(1).nice, world.job(1).held_by) == (7, "user")
    journal.close()


def held_in(path: Path, table: str, columns: str, where: str = "1") -> list[tuple[object, ...]]:
    query = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY id"  # noqa: S608 - a test's own
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def both_tables(path: Path) -> list[list[tuple[object, ...]]]:
    """Rows of a journal of schema 5."""
    return [held_in(path, table, columns) for table, columns in COLUMNS.items()]


def two_tables_in_one(path: Path) -> list[list[tuple[object, ...]]]:
    """The same rows in schema 6."""
    words = "field IN ('oversubscribe', 'excluded_nodes')"
    return [
        held_in(path, "changes", COLUMNS["writes"], f"NOT {words}"),
        held_in(path, "changes", COLUMNS["flags"], words),
    ]


def of_schema_5(folder: Path) -> Path:
    path = older(folder, 5)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(EVERY_KIND)
    return path


def test_writes_and_flags_become_one_table_and_no_value_is_lost(tmp_path: Path) -> None:
    path = of_schema_5(tmp_path)
    before = both_tables(path)
    assert [len(rows) for rows in before] == [6, 4]
    journal = Journal(tmp_path)
    claims = {(int(c.target.job_id), c.field) for c in journal.claims("test")}
    assert claims == {
        (1, "priority"), (2, "site_factor"), (4, "oversubscribe"), (11, "priority"),
        (13, "excluded_nodes"),
    }  # fmt: skip
    journal.close()
    assert two_tables_in_one(path) == before
    (latest,) = held_in(path, "changes", "job_id", "id = (SELECT max(id) FROM changes)")
    assert latest == (12,)  # of the table writes, as it was


def test_nodes_that_0_1_0_excluded_are_named_with_what_gives_them_back(tmp_path: Path) -> None:
    of_schema_5(tmp_path)
    journal, world = Journal(tmp_path), FakeBackend(snapshot(job(13, submitted_at=3.5)))
    (item,) = (i for i in restore(world, journal, FakeClock()) if i.claim.key[0] == 13)
    assert item.fate is Fate.REFUSED
    assert item.detail.endswith("undo by: scontrol update JobId=13 ExcNodeList=")
    journal.close()


@pytest.mark.parametrize("after", range(0, 60, 6))
def test_a_kill_in_the_middle_leaves_a_file_that_opens(tmp_path: Path, after: int) -> None:
    path = of_schema_5(tmp_path)
    before = both_tables(path)
    code = (
        "import os, signal, sqlite3, sys\n"
        "from rltuned.journal.schema import bring_up\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "done = [0]\n"
        "def count():\n"
        "    done[0] += 1\n"
        "    if done[0] > int(sys.argv[2]):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "db.set_progress_handler(count, 20)\n"
        "bring_up(db, 5)\n"
    )
    command = [sys.executable, "-c", code, str(path), str(after)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert both_tables(path) == before  # nothing of it was done
    journal = Journal(tmp_path)
    assert len(journal.claims("test")) == 5
    journal.close()
    assert two_tables_in_one(path) == before


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_a_build_before_0_1_0_left_is_refused_and_not_touched(
    tmp_path: Path, version: int
) -> None:
    path = older(tmp_path, 4)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(JournalError, match=rf"before rltuned 0.1.0 \(schema {version}\)"):
        Journal(tmp_path).claims("test")
    assert path.read_bytes() == before


def test_reading_does_not_bring_an_older_one_up(tmp_path: Path) -> None:
    path = older(tmp_path, 4)
    before = path.read_bytes()
    refused = pytest.raises(JournalError, match=r"older rltuned \(schema 4, now 7\)")
    with refused, reading(path):
        pass
    assert path.read_bytes() == before


def test_a_step_that_fails_leaves_the_older_tables(tmp_path: Path) -> None:
    path = older(tmp_path, 4)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE changes (photo BLOB)")
        db.commit()
    before = tables_of(path)
    with pytest.raises(JournalError, match="table changes already exists"):
        Journal(tmp_path).claims("test")
    assert tables_of(path) == before


def test_a_newer_one_is_not_touched_even_with_its_log_not_copied_yet(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    writer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    writer.execute("CREATE TABLE marvels (id INTEGER)")
    writer.commit()
    for name in (FILE_NAME, f"{FILE_NAME}-wal"):  # as a killed process leaves them
        (tmp_path / f"copy-{name}").write_bytes((tmp_path / name).read_bytes())
    writer.close()
    (tmp_path / "left").mkdir()
    for name in (FILE_NAME, f"{FILE_NAME}-wal"):
        (tmp_path / f"copy-{name}").rename(tmp_path / "left" / name)
    files = {f.name: f.read_bytes() for f in (tmp_path / "left").iterdir()}
    assert len(files[f"{FILE_NAME}-wal"]) > 0
    (tmp_path / "left" / FILE_NAME).chmod(0o600)
    journal = Journal(tmp_path / "left")
    for act in (lambda: journal.claims("test"), lambda: journal.remember("a", 1, NOW)):
        with pytest.raises(JournalError, match=r"newer rltuned \(schema 8, this release .* 7\)"):
            act()
    assert {n: (tmp_path / "left" / n).read_bytes() for n in files} == files


def test_what_the_build_before_node_ranges_left_is_kept(tmp_path: Path) -> None:
    tables = STEPS[0].replace(", 'num_nodes'", "")
    row = (
        "INSERT INTO changes (id, cycle, at, cluster, job_id, submitted_at, address, field, old,"
        " new) VALUES (5, 1, 9.5, 'test', 1, 1.5, '1', 'priority', 300, 900),"
        " (6, 1, 9.5, 'test', 1, 1.5, '1', 'oversubscribe', 'NO', 'YES');"
    )
    with closing(journal_of(tmp_path, tables + row, version=6)):
        pass
    journal = Journal(tmp_path)
    found = {claim.field: claim for claim in journal.claims("test")}
    assert {"priority", "oversubscribe"} == found.keys()
    one = SetRequest(Target(JobId(1), UnixTime(1.5), "1"), "num_nodes", "1-4", "2-2")
    journal.intend(Plan((one,)), cluster="test", cycle=2, at=NOW)
    assert journal.words("test", NUM_NODES) == {(1, 1.5): ("1-4", "2-2")}
    assert journal.owned("test")[JobId(1), UnixTime(1.5)].value == 900
