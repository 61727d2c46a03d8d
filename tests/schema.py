"""Whether what was read with Grafana's published types holds values of those types.

The package only reads: a text where its types say a number stays a text. So every value is compared
with the annotation of the attribute that holds it.
"""

import sqlite3
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from rltuned.journal.snapshots import APPLICATION_ID, FILE_NAME

PACKAGE = "grafana_foundation_sdk."
_NUMBERS = {float: (int, float), int: (int,)}


def misfits(value: Any, where: str = "dashboard") -> Iterator[str]:
    """One line for every attribute, at any depth, whose value is not of its type."""
    for name, annotation in get_type_hints(type(value)).items():
        yield from _against(getattr(value, name), annotation, f"{where}.{name}")


def _against(value: Any, annotation: Any, where: str) -> Iterator[str]:
    origin, inside = get_origin(annotation), get_args(annotation)
    if isinstance(value, dict) and hasattr(annotation, "from_json"):
        value = annotation.from_json(value)  # the package leaves the links of panels as they are
    if origin in {Union, types.UnionType}:
        yield from _one_of(value, inside, where)
    elif origin in {list, dict} and isinstance(value, origin):
        yield from _each(value, inside, where)
    elif not (value in inside if origin is Literal else _is(value, annotation)):
        yield _line(value, annotation, where)
    elif type(value).__module__.startswith(PACKAGE) and not isinstance(value, Enum):
        yield from misfits(value, where)


def _each(value: Any, inside: tuple[Any, ...], where: str) -> Iterator[str]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        yield from _against(item, inside[-1], f"{where}[{key}]")


def _one_of(value: Any, choices: tuple[Any, ...], where: str) -> Iterator[str]:
    """Nothing when it fits one of them, else what is wrong by the choice that fits best."""
    found = [list(_against(value, choice, where)) for choice in choices]
    if all(found):
        # the deepest complaint is about the choice that was meant
        yield from max(found, key=lambda lines: len(lines[0].partition(":")[0]))


def _is(value: Any, annotation: Any) -> bool:
    if annotation is Any or annotation is object:
        return True
    if annotation is type(None):
        return value is None
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return value in {member.value for member in annotation} or isinstance(value, annotation)
    if get_origin(annotation) is not None:
        return False  # a list or a mapping that is none
    if annotation in _NUMBERS:
        return isinstance(value, _NUMBERS[annotation]) and not isinstance(value, bool)
    return isinstance(value, annotation)


def _line(value: Any, annotation: Any, where: str) -> str:
    return f"{where}: {value!r} is no {getattr(annotation, '__name__', annotation)}"


SCHEMA_4 = """
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
"""The tables of release 0.1.0."""


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
