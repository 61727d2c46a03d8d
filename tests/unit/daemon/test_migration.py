"""Journals that older releases left behind are taken over; those of newer ones are left alone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.daemon.restore import restore
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.left_behind import Fate
from rltuned.journal.schema import STEPS
from rltuned.journal.snapshots import APPLICATION_ID, FILE_NAME, SCHEMA_VERSION, open_to_read
from tests.builders import NOW, job, snapshot
from tests.fakes import FakeBackend, FakeClock

SCHEMA_1 = """
CREATE TABLE cycles (
    cycle INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    cluster TEXT NOT NULL,
    mode TEXT NOT NULL,
    skipped TEXT NOT NULL,
    policy TEXT NOT NULL,
    pending INTEGER NOT NULL,
    chosen INTEGER NOT NULL,
    proposed INTEGER NOT NULL,
    applied INTEGER NOT NULL,
    seconds REAL NOT NULL
) STRICT;
CREATE TABLE writes (
    id INTEGER PRIMARY KEY,
    cycle INTEGER NOT NULL,
    at REAL NOT NULL,
    cluster TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    submitted_at REAL NOT NULL,
    address TEXT NOT NULL,
    field TEXT NOT NULL CHECK (field IN ('priority', 'site_factor', 'release')),
    old INTEGER NOT NULL,
    new INTEGER,
    nice INTEGER,
    result TEXT,
    detail TEXT NOT NULL DEFAULT '',
    finished_at REAL,
    closed TEXT
) STRICT;
CREATE INDEX open_writes ON writes (cluster, job_id, submitted_at) WHERE closed IS NULL;
CREATE INDEX writes_of_job ON writes (job_id);
"""
SCHEMA_2 = """
CREATE TABLE flags (
    id INTEGER PRIMARY KEY,
    cycle INTEGER NOT NULL,
    at REAL NOT NULL,
    cluster TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    submitted_at REAL NOT NULL,
    address TEXT NOT NULL,
    old TEXT NOT NULL,
    new TEXT NOT NULL,
    result TEXT,
    detail TEXT NOT NULL DEFAULT '',
    finished_at REAL,
    closed TEXT
) STRICT;
CREATE INDEX open_flags ON flags (cluster, job_id, submitted_at) WHERE closed IS NULL;
"""
SCHEMA_3 = """
CREATE TABLE snapshots (digest TEXT NOT NULL UNIQUE, body BLOB NOT NULL) STRICT;
CREATE TABLE recipes (digest TEXT NOT NULL UNIQUE, body TEXT NOT NULL) STRICT;
CREATE TABLE plans (cycle INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE states (name TEXT PRIMARY KEY, value TEXT NOT NULL, at REAL NOT NULL) STRICT;
ALTER TABLE cycles ADD COLUMN taken_at REAL;
ALTER TABLE cycles ADD COLUMN snapshot TEXT;
ALTER TABLE cycles ADD COLUMN recipe TEXT;
ALTER TABLE cycles ADD COLUMN timings TEXT NOT NULL DEFAULT '{}';
ALTER TABLE writes ADD COLUMN snapshot TEXT;
ALTER TABLE flags ADD COLUMN snapshot TEXT;
ALTER TABLE flags ADD COLUMN field TEXT NOT NULL DEFAULT 'oversubscribe';
CREATE INDEX writes_by_time ON writes (cluster, at);
CREATE INDEX cycles_of_snapshot ON cycles (snapshot) WHERE snapshot IS NOT NULL;
CREATE INDEX recorded_cycles ON cycles (cycle) WHERE snapshot IS NOT NULL;
CREATE INDEX cycles_of_recipe ON cycles (recipe) WHERE recipe IS NOT NULL;
CREATE INDEX spare_writes ON writes (id) WHERE closed IS NOT NULL AND closed != 'gone';
CREATE INDEX flags_of_job ON flags (job_id);
"""
ROWS = """
INSERT INTO cycles VALUES (41, :now, 'test', 'live', '', 'sjf', 2, 2, 1, 1, 0.3);
INSERT INTO writes VALUES
    (1, 41, :now, 'test', 1, :then, '1', 'priority', 300, 900, 7, 'applied', '', :now,
     NULL),
    (2, 41, :now, 'test', 2, :then, '2', 'site_factor', 40, 500, NULL, NULL, '', NULL,
     NULL),
    (3, 41, :now, 'test', 3, :then, '3', 'priority', 300, 900, 0, 'gone', '', :now,
     'gone');
"""
FLAG_ROWS = """
INSERT INTO flags VALUES
    (1, 41, :now, 'test', 4, :then, '4', 'NO', 'YES', 'applied', '', :now, NULL);
"""


def journal_of(folder: Path, tables: str, version: int) -> sqlite3.Connection:
    """A new file with the tables of a release."""
    path = folder / FILE_NAME
    db = sqlite3.connect(path)
    db.executescript(
        f"PRAGMA journal_mode = WAL; BEGIN; {tables} PRAGMA user_version = {version};"
        f" PRAGMA application_id = {APPLICATION_ID}; COMMIT;"
    )
    path.chmod(0o600)
    return db


def older(folder: Path, version: int) -> Path:
    """A journal as that release left it: one write done, one cut off, one job gone."""
    tables = SCHEMA_1 + ROWS + (SCHEMA_2 + FLAG_ROWS if version > 1 else "")
    tables += SCHEMA_3 if version > 2 else ""
    tables = tables.replace(":now", str(NOW)).replace(":then", str(NOW - 600))
    journal_of(folder, tables, version).close()
    return folder / FILE_NAME


def tables_of(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return sorted(rows)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_an_older_release_wrote_is_given_back(tmp_path: Path, version: int) -> None:
    older(tmp_path, version)
    world = FakeBackend(
        snapshot(
            job(1, priority=900, nice=0),
            job(2, site_factor=500),
            job(4, oversubscribe="YES" if version > 1 else "OK"),
        )
    )
    journal = Journal(tmp_path)
    items = {int(r.claim.target.job_id): r.fate for r in restore(world, journal, FakeClock())}
    assert items == dict.fromkeys([1, 2, 4] if version > 1 else [1, 2], Fate.GIVEN_BACK)
    assert (world.job(1).nice, world.job(2).site_factor) == (7, 40)
    assert journal.last_cycle() == 41
    journal.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_it_ends_up_with_the_tables_of_a_new_one(tmp_path: Path, version: int) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    for folder in (older(tmp_path / "old", version).parent, tmp_path / "new"):
        journal = Journal(folder)
        journal.remember("a", 1, NOW)
        journal.close()
    assert tables_of(tmp_path / "old" / FILE_NAME) == tables_of(tmp_path / "new" / FILE_NAME)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_held_job_of_an_older_journal_gets_its_nice_back(tmp_path: Path, version: int) -> None:
    older(tmp_path, version)
    world = FakeBackend(snapshot(job(1, priority=0, nice=0, held_by="user", live=True)))
    journal = Journal(tmp_path)
    items = {int(r.claim.target.job_id): r.fate for r in restore(world, journal, FakeClock())}
    assert items[1] is Fate.GIVEN_BACK
    assert (world.job(1).nice, world.job(1).held_by) == (7, "user")
    journal.close()


def test_there_is_a_step_to_every_version() -> None:
    assert len(STEPS) == SCHEMA_VERSION


def test_reading_does_not_bring_an_older_one_up(tmp_path: Path) -> None:
    path = older(tmp_path, 2)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"older rltuned \(schema 2, now 5\)"):
        open_to_read(path)
    assert path.read_bytes() == before


def test_a_step_that_fails_leaves_the_older_tables(tmp_path: Path) -> None:
    path = older(tmp_path, 2)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE plans (photo BLOB)")
        db.commit()
    before = tables_of(path)
    with pytest.raises(JournalError, match="table plans already exists"):
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
        with pytest.raises(JournalError, match=r"newer rltuned \(schema 6, this release .* 5\)"):
            act()
    assert {n: (tmp_path / "left" / n).read_bytes() for n in files} == files
