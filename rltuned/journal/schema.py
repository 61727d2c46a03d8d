"""The tables of the journal, and the way to them from those of release 0.1.0.

A change of a table is one more in `rltuned.journal.snapshots.SCHEMA_VERSION`, and a step from the
tables of the last release; that of 0.1.0 goes with the release after this one.
"""

import sqlite3
from typing import Final

from rltuned.journal.snapshots import APPLICATION_ID, SCHEMA_VERSION

_NEW: Final = """
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
    seconds REAL NOT NULL,
    taken_at REAL,
    snapshot TEXT,
    recipe TEXT,
    timings TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE TABLE snapshots (digest TEXT NOT NULL UNIQUE, body BLOB NOT NULL) STRICT;
CREATE TABLE recipes (digest TEXT NOT NULL UNIQUE, body TEXT NOT NULL) STRICT;
CREATE TABLE plans (cycle INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE states (name TEXT PRIMARY KEY, value TEXT NOT NULL, at REAL NOT NULL) STRICT;
CREATE INDEX cycles_of_snapshot ON cycles (snapshot) WHERE snapshot IS NOT NULL;
CREATE INDEX recorded_cycles ON cycles (cycle) WHERE snapshot IS NOT NULL;
CREATE INDEX cycles_of_recipe ON cycles (recipe) WHERE recipe IS NOT NULL;
"""
_CHANGES: Final = """
CREATE TABLE changes (
    id INTEGER PRIMARY KEY,
    cycle INTEGER NOT NULL,
    at REAL NOT NULL,
    cluster TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    submitted_at REAL NOT NULL,
    address TEXT NOT NULL,
    field TEXT NOT NULL CHECK (field IN
        ('priority', 'site_factor', 'release', 'oversubscribe', 'excluded_nodes', 'num_nodes')),
    old ANY NOT NULL,
    new ANY,
    nice INTEGER,
    rest INTEGER,
    only_nice INTEGER NOT NULL DEFAULT 0,
    newest_id INTEGER,
    tries INTEGER NOT NULL DEFAULT 1,
    snapshot TEXT,
    result TEXT,
    detail TEXT NOT NULL DEFAULT '',
    finished_at REAL,
    closed TEXT,
    ended_at REAL
) STRICT;
CREATE INDEX open_changes ON changes (cluster, job_id, submitted_at) WHERE closed IS NULL;
CREATE INDEX changes_of_job ON changes (job_id);
CREATE INDEX changes_by_time ON changes (cluster, at);
CREATE INDEX spare_changes ON changes (id) WHERE closed IS NOT NULL AND closed != 'gone';
CREATE INDEX gone_changes ON changes (cluster, job_id) WHERE closed = 'gone';
CREATE INDEX known_changes ON changes (cluster, job_id) WHERE closed = 'gone' AND ended_at IS NULL;
CREATE INDEX closed_changes ON changes (at) WHERE closed IS NOT NULL;
"""
_REST: Final = "ALTER TABLE writes ADD COLUMN rest INTEGER;"
_MOVED: Final = """
INSERT INTO changes (id, cycle, at, cluster, job_id, submitted_at, address, field, old, new, tries,
    snapshot, result, detail, finished_at, closed, ended_at)
SELECT id, cycle, at, cluster, job_id, submitted_at, address, field, old, new, tries, snapshot,
    result, detail, finished_at, closed, ended_at FROM flags ORDER BY id;
INSERT INTO changes (id, cycle, at, cluster, job_id, submitted_at, address, field, old, new, nice,
    rest, only_nice, newest_id, snapshot, result, detail, finished_at, closed, ended_at)
SELECT id + (SELECT ifnull(max(id), 0) FROM flags), cycle, at, cluster, job_id, submitted_at,
    address, field, old, new, nice, rest, only_nice, newest_id, snapshot, result, detail,
    finished_at, closed, ended_at FROM writes ORDER BY id;
DROP TABLE flags;
DROP TABLE writes;
"""
"""Two tables become one; the rows of writes come last, so the latest row is the latest write."""
_KEPT: Final = "CREATE TABLE kept AS SELECT * FROM changes; DROP TABLE changes;"
_PUT_BACK: Final = "INSERT INTO changes SELECT * FROM kept ORDER BY id; DROP TABLE kept;"
STEPS: Final = {
    0: _NEW + _CHANGES,
    4: _REST + _CHANGES + _MOVED,
    5: _CHANGES + _MOVED,
    6: _KEPT + _CHANGES + _PUT_BACK,
}
"""From no table, from those of release 0.1.0, and from those of builds after it."""


def bring_up(db: sqlite3.Connection, version: int) -> None:
    """Make every table that an older file (0 = a new one) lacks, or none. Raises sqlite3.Error."""
    db.executescript(
        f"BEGIN IMMEDIATE; {STEPS[version]} PRAGMA application_id = {APPLICATION_ID}; "
        f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )
