"""The tables of the journal, release by release, and the way from each to the next.

A new file takes every step too, so that a file from an older release ends up with the same tables.
A step is never edited once it was released; a change is a new step, and one more in
`rltuned.journal.snapshots.SCHEMA_VERSION`.
"""

import sqlite3
from typing import Final

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
_FLAGS: Final = """
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
        ('priority', 'site_factor', 'release', 'oversubscribe', 'excluded_nodes')),
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
CREATE INDEX open_changes ON changes (cluster, job_id, submitted_at) WHERE closed IS NULL;
CREATE INDEX changes_of_job ON changes (job_id);
CREATE INDEX changes_by_time ON changes (cluster, at);
CREATE INDEX spare_changes ON changes (id) WHERE closed IS NOT NULL AND closed != 'gone';
CREATE INDEX gone_changes ON changes (cluster, job_id) WHERE closed = 'gone';
CREATE INDEX known_changes ON changes (cluster, job_id) WHERE closed = 'gone' AND ended_at IS NULL;
CREATE INDEX closed_changes ON changes (at) WHERE closed IS NOT NULL;
"""
STEPS: Final = (_FIRST, _FLAGS, _RECORDINGS, _EXACTNESS, _REST, _CHANGES)
"""1: cycles and writes. 2: OverSubscribe flags. 3: what each cycle saw and planned, and states.
4: nice given back alone, the newest job id at a write (what is newer was parted from an array
since), when a job that left the queue was seen no more, and how often words were tried.
5: what neither age nor fair share moves of a priority that was fixed. 6: writes and flags are one
table; the rows of writes come last, so the latest row is the latest write."""


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
