"""What each cycle saw, by which settings it decided, what it planned, and what became of it.

A cycle's row is there before anything is written to Slurm; a process that is killed leaves it
marked as unfinished. A snapshot is kept apart from the moment it was taken at, so a cluster in
which nothing moves is kept once. It is JSON: pydantic checks what comes in against the dataclasses
of the domain, whose own constructors then check the rest, so a damaged file cannot become a
snapshot. What is kept and cannot be read is a JournalError, or of a snapshot a SnapshotError.
"""

import hashlib
import json
import math
import re
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import NO_CONTEXT, Context, RunTime, Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import JournalError, SnapshotError
from rltuned.journal.store import reading
from rltuned.slurm.values import AskedJob, asked_job

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
_LEVEL: Final = 3
"""Of zlib. At 10,000 pending jobs 6 saves a fifth of the bytes and costs twice the time."""


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


_COLUMNS: Final = tuple(column.name for column in fields(CycleRow))
_UPSERT: Final = (
    f"INSERT INTO cycles ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608 - fixed names
    f" ON CONFLICT (cycle) DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in _COLUMNS[1:])}"
)


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
    seen, at, cycle = sight.snapshot, sight.at, sight.cycle
    digest, body = pack(seen, sight.context)
    proposed = len(sight.plan["actions"]) if sight.plan else 0
    what = (cycle, at, seen.cluster, sight.mode, UNFINISHED, sight.policy, len(seen.pending))
    record(db, CycleRow(*what, 0, proposed, 0, 0.0))
    db.execute(
        "UPDATE cycles SET taken_at = ?, snapshot = ?, model = ? WHERE cycle = ?",
        (seen.taken_at, digest, sight.model, cycle),
    )
    db.execute("INSERT OR IGNORE INTO snapshots (digest, body) VALUES (?, ?)", (digest, body))
    if sight.plan is not None:
        plan = pack_plan(sight.plan)
        db.execute("INSERT OR REPLACE INTO plans (cycle, body) VALUES (?, ?)", (cycle, plan))
    return digest


def record(db: sqlite3.Connection, row: CycleRow) -> None:
    """Note a cycle, or how one ended that is there already."""
    *plain, timings, sums = (getattr(row, name) for name in _COLUMNS)
    text = json.dumps(dict(timings), sort_keys=True), json.dumps(dict(sums))
    db.execute(_UPSERT, (*plain, *text))


def since(db: sqlite3.Connection, cluster: str, begin: float) -> list[CycleRow]:
    """The cycles of a cluster from a moment on, the oldest first; a skipped one knows none."""
    return _rows(db, "at >= ? AND cluster IN (?, '') ORDER BY cycle", begin, cluster)


def last_row(db: sqlite3.Connection) -> CycleRow | None:
    """The last cycle noted; None = none was."""
    return next(iter(_rows(db, "TRUE ORDER BY cycle DESC LIMIT 1")), None)


def _rows(db: sqlite3.Connection, which: str, *values: object) -> list[CycleRow]:
    rows = db.execute(f"SELECT {', '.join(_COLUMNS)} FROM cycles WHERE {which}", values).fetchall()  # noqa: S608 - fixed names
    return [CycleRow(*row[:-2], *map(json.loads, row[-2:])) for row in rows]


def last_look(
    db: sqlite3.Connection, cluster: str, modes: Collection[str], before: int | None
) -> Snapshot | None:
    """What the last finished cycle of these modes saw; None = none is kept. before: only cycles
    before this one count. Raises SnapshotError.
    """
    which = f"cluster = ? AND mode IN ({', '.join('?' * len(modes))}) AND skipped != ?"
    found = _last(
        db, f"{which} AND (? IS NULL OR cycle < ?)", cluster, *modes, UNFINISHED, before, before
    )
    return None if found is None else found[0]


def last_seen(db: sqlite3.Connection) -> tuple[Snapshot, Context] | None:
    """What the last cycle saw; None = none is kept. Raises SnapshotError."""
    return _last(db, "TRUE")


def _last(db: sqlite3.Connection, which: str, *values: object) -> tuple[Snapshot, Context] | None:
    row = db.execute(
        "SELECT digest, body, taken_at FROM cycles JOIN snapshots ON digest = snapshot"  # noqa: S608 - fixed words
        f" WHERE {which} ORDER BY cycle DESC LIMIT 1",
        values,
    ).fetchone()
    return None if row is None else unpack(*row)


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


# -- snapshots and plans as bytes -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _KeptContext:
    """A context as it is kept: in one JSON object with its snapshot."""

    demoted: tuple[str, ...] = ()
    neutral: NeutralDelay | None = None
    run_times: tuple[tuple[JobId, RunTime], ...] = ()
    limit_use: float | None = None


# In a tuple of one, because a dataclass itself takes no configuration but inherits it. JSON has no
# infinity: numbers say "Infinity" as text, and texts stay what they are.
_CONFIG: Final = ConfigDict(ser_json_inf_nan="strings")
_SNAPSHOT: Final = TypeAdapter(tuple[Snapshot], config=_CONFIG)
_CONTEXT: Final = TypeAdapter(tuple[_KeptContext], config=_CONFIG)


def encode_snapshot(snapshot: Snapshot, context: Context = NO_CONTEXT) -> bytes:
    """One line of JSON in the order of the fields: what is equal gives equal bytes."""
    run_times = tuple(sorted(context.run_times.items()))
    kept = _KeptContext(context.demoted, context.neutral, run_times, context.limit_use)
    return _SNAPSHOT.dump_json((snapshot,))[1:-2] + b"," + _CONTEXT.dump_json((kept,))[2:-1]


def decode_snapshot(data: bytes) -> tuple[Snapshot, Context]:
    """What was encoded. Raises SnapshotError: names the first bad field."""
    try:
        [kept] = _CONTEXT.validate_json(b"[%b]" % data)
        context = Context(kept.demoted, kept.neutral, dict(kept.run_times), kept.limit_use)
        return _SNAPSHOT.validate_json(b"[%b]" % data)[0], context
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        field = f" field {where}" if where else ""
        raise SnapshotError(f"snapshot{field}: {first['msg']}") from error


def pack(snapshot: Snapshot, context: Context = NO_CONTEXT) -> tuple[str, bytes]:
    """SHA-256 and compressed JSON, without the moment: equal clusters give equal digests."""
    _, _, data = encode_snapshot(snapshot, context).partition(b",")
    data = b'{"taken_at":0.0,' + data  # the first field: no new snapshot for that
    return hashlib.sha256(data).hexdigest(), zlib.compress(data, _LEVEL)


def unpack(digest: str, body: bytes, taken_at: float) -> tuple[Snapshot, Context]:
    """What was packed. Raises SnapshotError: it is damaged, or of another version."""
    try:
        data = zlib.decompress(body)
    except zlib.error as error:
        raise SnapshotError(f"snapshot {digest[:12]}: {error}") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise SnapshotError(f"snapshot {digest[:12]}: its digest does not fit")
    if not math.isfinite(taken_at):
        raise SnapshotError(f"snapshot {digest[:12]}: of no moment")
    snapshot, context = decode_snapshot(data)
    return replace(snapshot, taken_at=UnixTime(taken_at)), context


def pack_plan(document: Document) -> bytes:
    """Compressed JSON."""
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode())


def unpack_plan(body: bytes) -> Document:
    """The document that was packed. Raises JournalError: it is damaged, or of another form."""
    try:
        found = json.loads(zlib.decompress(body))
        for reason in found["reasons"].values():
            _ = reason["why"], reason["rank_before"], reason["rank_after"]  # what readers need
    except (zlib.error, AttributeError, KeyError, TypeError, ValueError) as error:
        raise JournalError(f"a plan in the journal cannot be read: {error!r}") from None
    return dict(found)


# -- what was changed of a job ----------------------------------------------------------------


class JobChange(NamedTuple):
    """One change to a job. at: intended; finished_at: None = its outcome was never seen. new: None
    for a release. result: None = the process ended in between. mode, policy: "" = a restore, or
    cleared out. reason: None = not kept.
    """

    cycle: int
    at: float
    cluster: str
    job_id: int
    submitted_at: float
    address: str
    field: str
    old: int | str
    new: int | str | None
    nice: int | None
    result: str | None
    detail: str
    finished_at: float | None
    snapshot: str | None
    mode: str
    policy: str
    reason: Document | None

    @property
    def delay_s(self) -> float | None:
        return None if self.reason is None else self.reason.get("delay_s")


_CHANGES: Final = """
SELECT w.cycle, w.at, w.cluster, job_id, submitted_at, address, field, old, new, nice,
    result, detail, finished_at, w.snapshot,
    CASE WHEN w.snapshot IS NULL THEN '' ELSE ifnull(c.mode, '') END AS mode,
    CASE WHEN w.snapshot IS NULL THEN '' ELSE ifnull(c.policy, '') END AS policy, p.body
FROM diary AS w LEFT JOIN cycles AS c ON c.cycle = w.cycle
LEFT JOIN plans AS p ON p.cycle = w.cycle AND w.snapshot IS NOT NULL AND c.mode = 'live'
"""
_TASK: Final = re.compile(r"[1-9][0-9]*_[0-9]+")


def changes_of(db: sqlite3.Connection, asked: AskedJob) -> list[JobChange]:
    """Every change to a job that is still kept, the oldest first; a task that has a number of its
    own is found by that too, with what its array's record had.
    """
    found = _changes(db, asked)
    names = {c.address for c in found if c.job_id == asked.job_id and _TASK.fullmatch(c.address)}
    own = {(c.cluster, c.submitted_at) for c in found}
    for name in sorted(names - {asked.text}):
        more = [c for c in _changes(db, asked_job(name)) if (c.cluster, c.submitted_at) in own]
        found += [c for c in more if c not in found]
    return sorted(found, key=lambda c: (c.at, c.cycle))


def latest(db: sqlite3.Connection, count: int) -> tuple[JobChange, ...]:
    """So many of the last changes to any job, the latest first."""
    rows = db.execute(f"{_CHANGES} ORDER BY id DESC LIMIT ?", (count,)).fetchall()
    return tuple(map(_change, rows))


def _changes(db: sqlite3.Connection, asked: AskedJob) -> list[JobChange]:
    which = " WHERE job_id = ? OR address GLOB ? OR address GLOB ?"
    prefixes = (asked.job_id, f"{asked.job_id}[_]*", f"{asked.job_id}+*")
    rows = db.execute(_CHANGES + which, prefixes).fetchall()
    changes = (_change(row) for row in rows if asked.named(row[3], row[5]))
    return [change for change in changes if asked.is_on(change.cluster)]


def _change(row: tuple[Any, ...]) -> JobChange:
    *values, body = row
    reason = None if body is None else unpack_plan(body)["reasons"].get(str(row[3]))
    return JobChange._make((*values, reason))
