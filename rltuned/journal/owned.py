"""What rltuned owns in Slurm, one row for each job and field, and a diary of every write.

`owned` is the state: what a field held before the first write, what was written since, and what was
owned before the last restore, which a task that had left its array by then still carries. `diary`
is the history; no decision reads it but for the count of recent writes. Both are on the disk
before a command is sent; a write of unknown outcome counts as done. `old` and `new` are numbers in
the fields priority and site_factor, words in the others.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, NamedTuple

from rltuned.domain.fields import OWNED, PRIORITY, SITE_FACTOR, Action, Field, Target, Value
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import Outcome, Result
from rltuned.domain.units import JobId, JobKey, UnixTime

KEPT: Final = 8
"""Writes of a field that are kept since the last restore, and restores that are."""
TAKEN_OVER: Final = "taken over"
"""What the diary has as the result of what was not written, but found to be rltuned's."""
TABLES: Final = """
CREATE TABLE owned (
    cluster TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    submitted_at REAL NOT NULL,
    field TEXT NOT NULL,
    address TEXT NOT NULL,
    original ANY NOT NULL,
    nice INTEGER,
    rest INTEGER,
    newest_id INTEGER,
    writes TEXT NOT NULL,
    past TEXT NOT NULL,
    guessed INTEGER NOT NULL,
    at REAL NOT NULL,
    gone INTEGER NOT NULL,
    ended_at REAL,
    PRIMARY KEY (cluster, job_id, submitted_at, field)
) STRICT, WITHOUT ROWID;
CREATE TABLE diary (
    id INTEGER PRIMARY KEY,
    cycle INTEGER NOT NULL,
    at REAL NOT NULL,
    cluster TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    submitted_at REAL NOT NULL,
    address TEXT NOT NULL,
    field TEXT NOT NULL,
    old ANY NOT NULL,
    new ANY,
    nice INTEGER,
    snapshot TEXT,
    result TEXT,
    detail TEXT NOT NULL DEFAULT '',
    finished_at REAL
) STRICT;
CREATE INDEX diary_of_job ON diary (job_id);
CREATE INDEX diary_by_time ON diary (cluster, at);
"""
COLUMNS: Final = (
    "cluster", "job_id", "submitted_at", "field", "address", "original", "nice", "rest",
    "newest_id", "writes", "past", "guessed", "at", "gone", "ended_at",
)  # fmt: skip
_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM owned"  # noqa: S608 - fixed names
_PUT: Final = (
    f"INSERT OR REPLACE INTO owned ({', '.join(COLUMNS)})"  # noqa: S608 - fixed names
    f" VALUES ({', '.join('?' * len(COLUMNS))})"
)
_JOB: Final = "cluster = ? AND job_id = ? AND submitted_at = ?"
_HAS: Final = "writes != '[]'"
"""Of a row that was not restored."""


class Claim(NamedTuple):
    """What rltuned owns of one job in one field. original: before the first write; nice, rest: see
    Ownership. earlier: values written or replaced before the last. written_at: Unix seconds.
    """

    cluster: str
    target: Target
    field: Field
    value: Value
    original: Value | None = None
    written_at: float = 0.0
    nice: int | None = None
    earlier: tuple[int, ...] = ()
    rest: int | None = None

    @property
    def key(self) -> JobKey:
        return self.target.key

    def explains(self, actual: Value) -> bool:
        """Whether the value in force is rltuned's; of numbers see Ownership."""
        return actual == self.value if isinstance(actual, str) else self.owned.explains(actual)

    @property
    def owned(self) -> Ownership:
        """The same of a number, as a decision knows it."""
        return Ownership(
            self.field.name, int(self.value), self.nice,
            None if self.original is None else int(self.original), self.earlier, self.rest,
            self.written_at,
        )  # fmt: skip


Write = tuple[Value, Value, float]
"""Value before, value written, and when."""


class _Epoch(NamedTuple):
    """What was written between two restores. newest_id: highest job id at the first write."""

    original: Value
    nice: int | None
    rest: int | None
    newest_id: int | None
    writes: list[Write]


@dataclass(slots=True)
class OwnedRow:
    """A row of `owned`. writes: since the last restore, empty = it is restored; past: what was
    owned before. guessed: which of them the job carries was not known when it was taken over.
    gone: whether the job left the queue; ended_at: since when Slurm shows it in no state.
    """

    cluster: str
    job_id: int
    submitted_at: float
    field: str
    address: str
    original: Value
    nice: int | None
    rest: int | None
    newest_id: int | None
    writes: list[Write]
    past: list[_Epoch]
    guessed: int = 0
    at: float = 0.0
    gone: int = 0
    ended_at: float | None = None

    def __post_init__(self) -> None:
        self.past = [_Epoch(*one) for one in self.past]

    @property
    def key(self) -> JobKey:
        return JobId(self.job_id), UnixTime(self.submitted_at)

    @property
    def value(self) -> Value | None:
        """What was written last; None = it was restored."""
        return self.writes[-1][1] if self.writes else None

    @property
    def epochs(self) -> list[_Epoch]:
        """All that is remembered, the oldest first."""
        now = _Epoch(self.original, self.nice, self.rest, self.newest_id, self.writes)
        return [*self.past, *([now] if self.writes else [])]

    def claim(self) -> Claim:
        """What is owned; of a row that was not restored."""
        (_, value, at), kind = self.writes[-1], OWNED[self.field]
        earlier = () if kind.words else _earlier(self.original, self.writes)
        target = Target(JobId(self.job_id), UnixTime(self.submitted_at), self.address)
        return Claim(
            self.cluster, target, kind, value, self.original, at, self.nice,
            earlier, self.rest,
        )  # fmt: skip

    def values(self) -> tuple[Any, ...]:
        """Of the table, in the order of its columns."""
        known = [getattr(self, name) for name in COLUMNS]
        return tuple(json.dumps(v) if isinstance(v, list) else v for v in known)


def rows(db: sqlite3.Connection, where: str, *values: object) -> list[OwnedRow]:
    """Rows of the table in the order of their keys."""
    of_sql = f"{_SELECT} WHERE {where} ORDER BY job_id, submitted_at"
    found = db.execute(of_sql, values).fetchall()
    # one text for all: quicker by far than one for each
    lists: list[Any] = [json.loads(f"[{','.join(row[i] for row in found)}]") for i in (9, 10)]
    return [OwnedRow(*row[:9], *both, *row[11:]) for row, *both in zip(found, *lists, strict=True)]


def put(db: sqlite3.Connection, row: OwnedRow) -> None:
    """Add a row, or put it in place of the one of its job and field."""
    db.execute(_PUT, row.values())


# -- questions --------------------------------------------------------------------------------


def claims(db: sqlite3.Connection, cluster: str, which: str = "NOT gone") -> list[Claim]:
    """What jobs carry, by job id: words first, the number that was written last at the end."""
    found = [row.claim() for row in rows(db, f"cluster = ? AND {_HAS} AND {which}", cluster)]
    return sorted(found, key=lambda c: (*c.key, not c.field.words, c.written_at))


def missed(db: sqlite3.Connection, cluster: str, since: float) -> list[Claim]:
    """The same of jobs that have left the queue, and that Slurm has shown since then."""
    return claims(db, cluster, f"gone AND ifnull(ended_at, {since!r}) >= {since!r}")


def owned(db: sqlite3.Connection, cluster: str) -> dict[JobKey, Ownership]:
    """Of each pending job the number that was written last."""
    found: dict[JobKey, Ownership] = {}
    every = db.execute(
        "SELECT field, job_id, submitted_at, original, nice, rest, writes FROM owned WHERE"  # noqa: S608 - fixed names
        f" cluster = ? AND {_HAS} AND NOT gone",
        (cluster,),
    ).fetchall()
    writes = json.loads(f"[{','.join(row[-1] for row in every)}]")
    for (name, job_id, at, original, nice, rest, _), noted in zip(every, writes, strict=True):
        key, (_, value, written_at) = (job_id, at), noted[-1]
        if OWNED[name].words or (key in found and found[key].written_at > written_at):
            continue
        earlier = _earlier(original, noted)
        found[key] = Ownership(name, value, nice, original, earlier, rest, written_at)
    return found


def _earlier(original: Any, writes: list[Write]) -> tuple[int, ...]:
    """Numbers that were written or replaced before the last, in order."""
    seen = {original}
    for old, new, _ in writes:
        seen.update((old, new))
    seen.discard(writes[-1][1])
    return tuple(sorted(seen))


def words(db: sqlite3.Connection, cluster: str, kind: Field) -> dict[JobKey, tuple[str, str]]:
    """Of a field of words: what each job had before, and what was written last."""
    found = rows(db, f"cluster = ? AND {_HAS} AND NOT gone AND field = ?", cluster, kind.name)
    return {row.key: (str(row.original), str(row.value)) for row in found}


def recent(db: sqlite3.Connection, cluster: str, since: float, until: float) -> dict[JobKey, int]:
    """How often each job was written to in that time; what was never sent does not count."""
    return {
        (JobId(job_id), UnixTime(submitted)): count
        for job_id, submitted, count in db.execute(
            "SELECT job_id, submitted_at, count(*) FROM diary WHERE cluster = ?"
            " AND at BETWEEN ? AND ? AND field NOT IN ('release', 'nice')"
            " AND new NOT IN ('', 'NO') AND ifnull(result, '') NOT IN ('withheld', ?)"
            " GROUP BY job_id, submitted_at",
            (cluster, since, until, TAKEN_OVER),
        )
    }


def carrying(db: sqlite3.Connection, but: str = "") -> tuple[str, ...]:
    """Addresses of the jobs that carry something. but: the cluster whose jobs do not count."""
    found = db.execute(
        f"SELECT DISTINCT job_id, address FROM owned WHERE {_HAS} AND NOT gone"  # noqa: S608
        " AND cluster != ? ORDER BY job_id, address",
        (but,),
    )
    return tuple(address for _, address in found)


def count(db: sqlite3.Connection) -> int:
    """How many pending jobs carry something."""
    (found,) = db.execute(
        "SELECT count(*) FROM (SELECT DISTINCT cluster, job_id, submitted_at FROM owned"  # noqa: S608
        f" WHERE {_HAS} AND NOT gone)"
    ).fetchone()
    return int(found)


def is_clean(db: sqlite3.Connection) -> bool:
    """Whether no job carries anything, nor left the queue with it and may be requeued."""
    (found,) = db.execute(f"SELECT EXISTS (SELECT 1 FROM owned WHERE {_HAS})").fetchone()  # noqa: S608
    return not found


def is_empty(db: sqlite3.Connection) -> bool:
    """Whether nothing was ever owned, or all of it is cleared out."""
    return not db.execute("SELECT EXISTS (SELECT 1 FROM owned)").fetchone()[0]


# -- writes -----------------------------------------------------------------------------------


def intend(
    db: sqlite3.Connection, actions: Collection[Action], origin: Mapping[str, Any]
) -> tuple[int, ...]:
    """Note what is about to be written; returns the ids of the diary's rows. origin: cluster,
    cycle, at, snapshot, and the highest job id shown, `newest`.
    """
    cluster, at = origin["cluster"], origin["at"]
    before = {
        (row.key, row.field): row
        for row in _of_ids(db, cluster, {a.target.job_id for a in actions})
    }
    writes = [a for a in actions if not a.field.releases]
    db.executemany(
        _PUT, [_written(before.get((a.target.key, a.field.name)), a, origin) for a in writes]
    )
    (last,) = db.execute("SELECT ifnull(max(id), 0) FROM diary").fetchone()
    ids = tuple(range(last + 1, last + 1 + len(actions)))
    db.executemany(
        "INSERT INTO diary (id, cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
        " nice, snapshot) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                number, origin["cycle"], at, cluster, *a.target.key, a.target.address,
                a.field.name, a.old, None if a.field.name == "release" else a.new, a.nice,
                origin["snapshot"],
            )
            for number, a in zip(ids, actions, strict=True)
        ],
    )  # fmt: skip
    return ids


def _of_ids(db: sqlite3.Connection, cluster: str, ids: Iterable[int]) -> list[OwnedRow]:
    where = "cluster = ? AND job_id IN (SELECT value FROM json_each(?))"
    return rows(db, where, cluster, json.dumps([*ids]))


def _written(row: OwnedRow | None, action: Action, origin: Mapping[str, Any]) -> tuple[Any, ...]:
    """The row's values with one more write."""
    target, at = action.target, origin["at"]
    if row is None or not row.writes:
        past = [] if row is None else row.past
        row = OwnedRow(
            origin["cluster"], *target.key, action.field.name, target.address, action.old,
            action.nice, action.rest, origin["newest"], [], past,
        )  # fmt: skip
    # one more, as the last may come to nothing
    row.writes = [*row.writes[-KEPT:], (action.old, action.new, at)]
    row.address, row.at = target.address, at
    row.guessed, row.gone, row.ended_at = 0, 0, None
    return row.values()


def settle(db: sqlite3.Connection, number: int, outcome: Outcome, at: float) -> None:
    """Note what came of an intent; FAILED keeps its value, as what is in force is not known."""
    action, result = outcome.action, outcome.result
    (cluster,) = db.execute(
        "UPDATE diary SET result = ?, detail = ?, finished_at = ? WHERE id = ? RETURNING cluster",
        (result.value, outcome.detail, at, number),
    ).fetchone()
    if result is Result.GONE:
        return leave(db, cluster, [action.target.key])
    name = PRIORITY.name if action.field.releases else action.field.name
    row = _row(db, cluster, action.target.key, name)
    if row is None or not row.writes:
        return None
    if result in {Result.REFUSED, Result.WITHHELD} and not action.field.releases:
        row.writes.pop()
    elif result is Result.APPLIED and (
        action.field.releases or (name != PRIORITY.name and row.original == action.new)
    ):
        row.past = [*row.past, *row.epochs[-1:]][-KEPT:]
        row.writes = []
    else:
        return None
    if row.writes or row.past:
        put(db, row)
    else:
        db.execute(f"DELETE FROM owned WHERE {_JOB} AND field = ?", (cluster, *row.key, name))  # noqa: S608
    return None


def _row(db: sqlite3.Connection, cluster: str, key: JobKey, name: str) -> OwnedRow | None:
    return next(iter(rows(db, f"{_JOB} AND field = ?", cluster, *key, name)), None)


def leave(db: sqlite3.Connection, cluster: str, keys: Iterable[JobKey]) -> None:
    """These jobs left the queue; their rows wait for a requeue."""
    db.executemany(
        f"UPDATE owned SET gone = 1 WHERE {_JOB}",  # noqa: S608
        [(cluster, *key) for key in keys],
    )


def close_gone(db: sqlite3.Connection, cluster: str, pending: Collection[JobKey]) -> int:
    """The jobs that are pending no longer have left the queue; how many those are."""
    held = db.execute(
        "SELECT DISTINCT job_id, submitted_at FROM owned WHERE cluster = ? AND NOT gone",
        (cluster,),
    )
    gone = [key for key in held.fetchall() if key not in pending]
    leave(db, cluster, gone)
    return len(gone)


# -- jobs that are back -----------------------------------------------------------------------


def array_of(job: PendingJob) -> JobId | None:
    """The array that a record was parted from; None = it is no task, or the array's own record."""
    if job.array is None or job.array.array_job_id == job.job_id:
        return None
    return job.array.array_job_id


def carried(job: PendingJob) -> list[tuple[Field, Value]]:
    """Fields in which a job shows a value that no row explains, and the values."""
    return [(kind, value) for kind in OWNED.values() if (value := kind.carried(job)) is not None]


def hides(job: PendingJob) -> bool:
    """Whether it may have a site factor that Slurm does not show, and no row explains it."""
    return job.site_factor is None and job.owned is None


def _lost_with_it(job: PendingJob) -> tuple[Field, ...]:
    """Fields in which a task may have lost, or may hide, something owned that shows no value."""
    if array_of(job) is None or job.owned is not None:
        return ()
    without_nice = job.nice == 0 and job.live
    return (*((PRIORITY,) if without_nice else ()), *((SITE_FACTOR,) if hides(job) else ()))


def may_carry(job: PendingJob) -> bool:
    """Whether it shows, or may hide, a value that no row explains."""
    return bool(carried(job) or hides(job) or _lost_with_it(job))


def reclaim(
    db: sqlite3.Connection, cluster: str, pending: Iterable[PendingJob], at: float
) -> list[JobKey]:
    """Own again what jobs carry that were missing from a look, that were requeued, or that left
    their array: of each value the job. See Journal.reclaim.
    """
    held: dict[int, set[float]] = {}
    for job_id, submitted_at, gone in db.execute(
        "SELECT job_id, submitted_at, gone FROM owned WHERE cluster = ?", (cluster,)
    ):
        here = held.setdefault(job_id, set())
        if not gone:
            here.add(submitted_at)
    odd = [
        job for job in pending
        if (job.job_id in held or array_of(job) in held)
        and (
            job.taken_over if job.owned is not None
            else job.submitted_at not in held.get(job.job_id, ()) or may_carry(job)
        )
    ]  # fmt: skip
    if not odd:
        return []
    ids = {number for job in odd for number in (job.job_id, array_of(job)) if number is not None}
    found_rows = _of_ids(db, cluster, ids)
    known = {number: list(of) for number, of in groupby(found_rows, lambda row: row.job_id)}
    taken: list[JobKey] = []
    for job in odd:
        found = _found(known, job)
        for row, how in found:
            take(db, replace(row, at=at, gone=0, ended_at=None), how)
        taken += [job.key] * len(found)
    return taken


def _found(known: Mapping[int, list[OwnedRow]], job: PendingJob) -> list[tuple[OwnedRow, str]]:
    """Rows that the job is to have, and how each came about; "" = it had it already."""
    mine = [row for row in known.get(job.job_id, ()) if row.submitted_at == job.submitted_at]
    before = [row for row in known.get(job.job_id, ()) if row.submitted_at < job.submitted_at]
    array = [r for r in known.get(array_of(job) or 0, ()) if r.submitted_at <= job.submitted_at]
    if job.owned is not None:
        return [one for row in mine for one in _no_guess(row, job, before)]
    gone = [(row, "") for row in mine if row.gone]
    if gone:
        return gone if any(row.writes for row, _ in gone) else []
    new = [one for one in carried(job) if all(row.field != one[0].name for row in mine)]
    found = [_taken(row, job) for one in new for row in _requeued(before, array, *one)]
    if any(not OWNED[row.field].words for row, _ in found):
        return found
    number = next((one for one in new if one[0].orders), None)
    parted = [] if mine else _parted(array, job, number)
    if parted or not hides(job) or any(row.field == SITE_FACTOR.name for row in mine):
        return found + parted
    latest = max((row.submitted_at for row in before), default=None)
    hidden = [row for row in before if row.submitted_at == latest and row.writes]
    return found + [_taken(r, job, guessed=1) for r in hidden if r.field == SITE_FACTOR.name]


def _requeued(
    before: list[OwnedRow], array: list[OwnedRow], kind: Field, value: Value
) -> list[OwnedRow]:
    """The row of the same job before it was requeued, if the value was written to that last. Words
    that a task took along from its array count as well.
    """
    rows_of = [row for row in (*before, *(array if kind.words else ())) if row.field == kind.name]
    last = max(rows_of, key=lambda row: row.at, default=None)
    return [last] if last is not None and last.value == value else []


def _taken(row: OwnedRow, job: PendingJob, guessed: int = 0) -> tuple[OwnedRow, str]:
    """A row of another record of the same job, as this record's."""
    how = "requeued" if row.job_id == job.job_id else "parted from its array"
    job_id, submitted_at = job.key
    same = replace(row, job_id=job_id, submitted_at=submitted_at, address=job.address)
    return replace(same, guessed=guessed), how


def _parted(
    array: list[OwnedRow], job: PendingJob, number: tuple[Field, Value] | None
) -> list[tuple[OwnedRow, str]]:
    """What a task took along from its array, which shows as a value that was written to it, or, as
    a lost nice or a hidden site factor, by its being younger than the first write.
    """
    kind, value = number or (SITE_FACTOR, None)
    epochs = [(row, one) for row in array if row.field == kind.name for one in row.epochs]
    for row, epoch in reversed(epochs if value is not None else []):
        if value != epoch.original and (same := _writes_of(epoch, value)):
            return [_taken(_in_epoch(row, epoch._replace(writes=same), []), job)]
    for kind in _lost_with_it(job):
        for row in (row for row in reversed(array) if row.field == kind.name):
            # only of a record that is younger than a write: an older one has a nice of its own
            last = [one for one in row.epochs[-1:] if row.writes and one.nice]
            of_kind = last if kind is PRIORITY else row.epochs
            younger = [one for one in of_kind if (one.newest_id or 0) < job.job_id]
            if younger:
                return [_taken(_in_epoch(row, younger[-1], younger[:-1]), job, guessed=1)]
    return []


def _writes_of(epoch: _Epoch, value: Value | None) -> list[Write]:
    """The last write of a value, if there was one."""
    return [write for write in epoch.writes if write[1] == value][-1:]


def _in_epoch(row: OwnedRow, epoch: _Epoch, past: list[_Epoch]) -> OwnedRow:
    """A row as it was in that epoch."""
    original, nice, rest, newest_id, writes = epoch
    return replace(
        row, original=original, nice=nice, rest=rest, newest_id=newest_id, writes=writes, past=past
    )


def _no_guess(row: OwnedRow, job: PendingJob, before: list[OwnedRow]) -> list[tuple[OwnedRow, str]]:
    """The row, now that the job shows its value: one of those that the guess had, or that of the
    same job before it was requeued; empty = nothing is new.
    """
    if not row.guessed or row.field != SITE_FACTOR.name or job.site_factor is None:
        return []
    for epoch in reversed(row.epochs):
        if same := _writes_of(epoch, job.site_factor):
            return [(replace(_in_epoch(row, epoch._replace(writes=same), []), guessed=0), "")]
    return [_taken(one, job) for one in _requeued(before, [], SITE_FACTOR, job.site_factor)]


# -- another daemon ---------------------------------------------------------------------------


def take(db: sqlite3.Connection, row: OwnedRow, how: str) -> None:
    """Own what a row says; how: for the diary, empty = it owned that already."""
    put(db, row)
    if how:
        db.execute(
            "INSERT INTO diary (cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
            " nice, result, detail) VALUES (0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.at, row.cluster, *row.key, row.address, row.field, row.original, row.value,
                row.nice, TAKEN_OVER, how,
            ),
        )  # fmt: skip


def forget(db: sqlite3.Connection, cluster: str) -> None:
    """Own nothing of a cluster any more: another daemon has taken it over."""
    db.execute("DELETE FROM owned WHERE cluster = ?", (cluster,))


# -- clearing out -----------------------------------------------------------------------------


def note_ended(db: sqlite3.Connection, cluster: str, known: Collection[int], now: float) -> None:
    """Note jobs that Slurm shows no more, in any state. known: ids of jobs and arrays at `now`."""
    ids = json.dumps(sorted(known))
    here = "gone AND cluster = ? AND job_id {}IN (SELECT value FROM json_each(?))"
    db.execute(f"UPDATE owned SET ended_at = NULL WHERE {here.format('')}", (cluster, ids))  # noqa: S608
    db.execute(
        f"UPDATE owned SET ended_at = ? WHERE ended_at IS NULL AND {here.format('NOT ')}",  # noqa: S608
        (now, cluster, ids),
    )
