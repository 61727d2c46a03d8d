"""The journal's table of cycles: what each saw, by which settings it decided, and what it planned.

A cycle's row is there before anything is written to Slurm; a process that is killed leaves it
marked as unfinished.
"""

import json
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from rltuned.domain.context import NO_CONTEXT, Context
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import JournalError
from rltuned.journal.snapshots import pack, reading, unpack
from rltuned.text import first_flaw

TABLES: Final = """
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
    model TEXT NOT NULL DEFAULT '',
    timings TEXT NOT NULL DEFAULT '{}',
    sums TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE TABLE snapshots (digest TEXT NOT NULL UNIQUE, body BLOB NOT NULL) STRICT;
CREATE TABLE plans (cycle INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE INDEX cycles_of_snapshot ON cycles (snapshot) WHERE snapshot IS NOT NULL;
CREATE INDEX recorded_cycles ON cycles (cycle) WHERE snapshot IS NOT NULL;
"""
Document = dict[str, Any]
"""A JSON object."""

UNFINISHED: Final = "unfinished"
"""What `skipped` says of a cycle that was cut off by the end of its process."""

_COLUMNS: Final = (
    "cycle", "at", "cluster", "mode", "skipped", "policy", "pending", "chosen", "proposed",
    "applied", "seconds", "timings",
)  # fmt: skip
_KEPT: Final = (*_COLUMNS, "sums")
_UPSERT: Final = (
    f"INSERT INTO cycles ({', '.join(_KEPT)}) VALUES ({', '.join('?' * len(_KEPT))})"  # noqa: S608 - fixed names
    " ON CONFLICT (cycle) DO UPDATE SET "
    + ", ".join(f"{c} = excluded.{c}" for c in _KEPT if c != "cycle")
)


@dataclass(frozen=True, slots=True)
class _Reason:
    why: str
    rank_before: int
    rank_after: int


@dataclass(frozen=True, slots=True)
class _Planned:
    action: str
    job_id: int
    address: str


@dataclass(frozen=True, slots=True)
class _Plan:
    """What readers of a plan count on; it holds more, and an earlier release less or other."""

    actions: list[_Planned]
    reasons: dict[str, _Reason]
    notes: list[str]


_PLAN: Final = TypeAdapter(_Plan)


@dataclass(frozen=True, slots=True)
class CycleRow:
    """One line of the diary. timings: seconds by stage. sums: GPUs, work and waits, added up."""

    cycle: int
    at: float
    cluster: str
    mode: str
    skipped: str
    policy: str
    pending: int
    chosen: int
    proposed: int
    applied: int
    seconds: float
    timings: Mapping[str, float] = field(default_factory=dict)
    sums: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CycleObservation:
    """What a cycle saw, and what it planned; None = it only looked. policy, model: name and digest;
    empty = nothing decided, a rule.
    """

    cycle: int
    at: float
    mode: str
    snapshot: Snapshot
    context: Context = NO_CONTEXT
    policy: str = ""
    model: str = ""
    plan: Document | None = None


def keep(db: sqlite3.Connection, sight: CycleObservation) -> str:
    """Note what a cycle is about to do; returns the digest of the snapshot."""
    seen = sight.snapshot
    digest, body = pack(seen, sight.context)
    actions = sight.plan["actions"] if sight.plan else ()
    db.execute(
        "INSERT INTO snapshots (digest, body) VALUES (?, ?) ON CONFLICT DO NOTHING", (digest, body)
    )
    record(
        db,
        CycleRow(
            sight.cycle, sight.at, seen.cluster, sight.mode, UNFINISHED,
            sight.policy, len(seen.pending), 0, len(actions), 0, 0.0,
        ),
    )  # fmt: skip
    db.execute(
        "UPDATE cycles SET taken_at = ?, snapshot = ?, model = ? WHERE cycle = ?",
        (seen.taken_at, digest, sight.model, sight.cycle),
    )
    if sight.plan is not None:
        db.execute(
            "INSERT OR REPLACE INTO plans (cycle, body) VALUES (?, ?)",
            (sight.cycle, pack_plan(sight.plan)),
        )
    return digest


def record(db: sqlite3.Connection, row: CycleRow) -> None:
    """Note a cycle, or how one ended that is there already."""
    db.execute(
        _UPSERT,
        (
            row.cycle, row.at, row.cluster, row.mode, row.skipped, row.policy, row.pending,
            row.chosen, row.proposed, row.applied, row.seconds,
            json.dumps(dict(row.timings), sort_keys=True), json.dumps(dict(row.sums)),
        ),
    )  # fmt: skip


def since(db: sqlite3.Connection, cluster: str, begin: float) -> list[CycleRow]:
    """The cycles of a cluster from a moment on, the oldest first; a skipped one knows none."""
    return _rows(db, _KEPT, "WHERE at >= ? AND cluster IN (?, '') ORDER BY cycle", begin, cluster)


def last_row(db: sqlite3.Connection) -> CycleRow | None:
    """The last cycle noted, without its sums; None = none was."""
    return next(iter(_rows(db, _COLUMNS, "ORDER BY cycle DESC LIMIT 1")), None)


def _rows(
    db: sqlite3.Connection, columns: tuple[str, ...], which: str, *values: object
) -> list[CycleRow]:
    rows = db.execute(f"SELECT {', '.join(columns)} FROM cycles {which}", values).fetchall()  # noqa: S608 - fixed names
    plain = len(_COLUMNS) - 1
    return [CycleRow(*row[:plain], *map(json.loads, row[plain:])) for row in rows]


def last_cycle(db: sqlite3.Connection) -> int:
    """Number of the last cycle noted; 0 = none."""
    (number,) = db.execute(
        "SELECT max(ifnull((SELECT max(cycle) FROM cycles), 0),"
        " ifnull((SELECT cycle FROM diary ORDER BY id DESC LIMIT 1), 0))"
    ).fetchone()
    return int(number)


def last_look(
    db: sqlite3.Connection, cluster: str, modes: Collection[str], before: int | None
) -> Snapshot | None:
    """What the last finished cycle of these modes saw. Raises SnapshotError."""
    row = db.execute(
        "SELECT digest, body, taken_at FROM cycles JOIN snapshots ON digest = snapshot"  # noqa: S608 - marks alone
        f" WHERE cluster = ? AND mode IN ({', '.join('?' * len(modes))}) AND skipped != ?"
        " AND (? IS NULL OR cycle < ?) ORDER BY cycle DESC LIMIT 1",
        (cluster, *modes, UNFINISHED, before, before),
    ).fetchone()
    return None if row is None else unpack(*row)[0]


def recorded(path: Path, since: float = 0.0) -> Iterator[CycleObservation]:
    """What every cycle of a moment or later saw, of those that are still kept, in their order.
    Raises JournalError: the file cannot be read; SnapshotError: what it holds is damaged.
    """
    with reading(path) as db:
        rows = db.execute(
            "SELECT cycle, at, mode, taken_at, snapshot FROM cycles"
            " WHERE snapshot IS NOT NULL AND taken_at >= ? ORDER BY cycle",
            (since,),
        ).fetchall()
        # one at a time: an open question would keep the daemon from writing
        for cycle, at, mode, taken_at, digest in rows:
            kept = db.execute("SELECT body FROM snapshots WHERE digest = ?", (digest,)).fetchone()
            if kept is not None:  # not cleared out meanwhile
                yield CycleObservation(cycle, at, mode, *unpack(digest, kept[0], taken_at))


def pack_plan(document: Document) -> bytes:
    """Compressed JSON."""
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode())


def unpack_plan(body: bytes) -> Document:
    """The document that was packed. Raises JournalError: it is damaged, or of another form."""
    try:
        found: Document = json.loads(zlib.decompress(body))
        _PLAN.validate_python(found)
    except (zlib.error, ValueError) as error:
        why = first_flaw(error) if isinstance(error, ValidationError) else error
        raise JournalError(f"a plan in the journal cannot be read: {why}") from None
    return found
