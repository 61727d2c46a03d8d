"""The tables of the journal.

A change of a table is one more in `rltuned.journal.snapshots.SCHEMA_VERSION`. The journal of
another version is refused: the release that wrote it restores what it says.
"""

import sqlite3
from typing import Final

from rltuned.domain.fields import STORED
from rltuned.journal.snapshots import APPLICATION_ID, SCHEMA_VERSION

TABLES: Final = f"""
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
    timings TEXT NOT NULL DEFAULT '{{}}',
    sums TEXT NOT NULL DEFAULT '{{}}'
) STRICT;
CREATE TABLE snapshots (digest TEXT NOT NULL UNIQUE, body BLOB NOT NULL) STRICT;
CREATE TABLE recipes (digest TEXT NOT NULL UNIQUE, body TEXT NOT NULL) STRICT;
CREATE TABLE plans (cycle INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE states (name TEXT PRIMARY KEY, value TEXT NOT NULL, at REAL NOT NULL) STRICT;
CREATE INDEX cycles_of_snapshot ON cycles (snapshot) WHERE snapshot IS NOT NULL;
CREATE INDEX recorded_cycles ON cycles (cycle) WHERE snapshot IS NOT NULL;
CREATE INDEX cycles_of_recipe ON cycles (recipe) WHERE recipe IS NOT NULL;
CREATE TABLE changes (
    id INTEGER PRIMARY KEY,
    cycle INTEGER NOT NULL,
    at REAL NOT NULL,
    cluster TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    submitted_at REAL NOT NULL,
    address TEXT NOT NULL,
    field TEXT NOT NULL CHECK (field IN
        {STORED}),
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


def make_tables(db: sqlite3.Connection) -> None:
    """Make every table of a new file, or none. Raises sqlite3.Error."""
    db.executescript(
        f"BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID}; "
        f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )
