"""The tables of the journal, release by release, and the way from each to the next.

A new file takes every step too, so that a file from an older release ends up with the same tables.
A step is never edited once it was released; a change is a new step, and one more in
`rltuned.journal.snapshots.SCHEMA_VERSION`.
"""

import sqlite3
from typing import Final

from rltuned.journal import flags
from rltuned.journal.snapshots import APPLICATION_ID, SCHEMA_VERSION

_FIRST: Final = """
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
_RECORDINGS: Final = """
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
_EXACTNESS: Final = """
ALTER TABLE writes ADD COLUMN only_nice INTEGER NOT NULL DEFAULT 0;
ALTER TABLE writes ADD COLUMN newest_id INTEGER;
ALTER TABLE writes ADD COLUMN ended_at REAL;
ALTER TABLE flags ADD COLUMN ended_at REAL;
ALTER TABLE flags ADD COLUMN tries INTEGER NOT NULL DEFAULT 1;
CREATE INDEX gone_writes ON writes (cluster, job_id) WHERE closed = 'gone';
CREATE INDEX gone_flags ON flags (cluster, job_id) WHERE closed = 'gone';
CREATE INDEX known_writes ON writes (cluster, job_id) WHERE closed = 'gone' AND ended_at IS NULL;
CREATE INDEX known_flags ON flags (cluster, job_id) WHERE closed = 'gone' AND ended_at IS NULL;
CREATE INDEX closed_writes ON writes (at) WHERE closed IS NOT NULL;
CREATE INDEX closed_flags ON flags (at) WHERE closed IS NOT NULL;
"""
_REST: Final = "ALTER TABLE writes ADD COLUMN rest INTEGER;"
STEPS: Final = (_FIRST, flags.SCHEMA, _RECORDINGS, _EXACTNESS, _REST)
"""1: cycles and writes. 2: OverSubscribe flags. 3: what each cycle saw and planned, and states.
4: nice given back alone, the newest job id at a write (what is newer was parted from an array
since), when a job that left the queue was seen no more, and how often words were tried.
5: what neither age nor fair share moves of a priority that was fixed."""


def bring_up(db: sqlite3.Connection, version: int) -> None:
    """Make every table that a file of an older version (0 = a new file) lacks, or none at all.

    Raises:
        sqlite3.Error: the disk is full, or the file read-only; nothing has changed.
    """
    script = "".join(STEPS[version:])
    db.executescript(
        f"BEGIN IMMEDIATE; {script} PRAGMA application_id = {APPLICATION_ID}; "
        f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )
