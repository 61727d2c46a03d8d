"""What rltuned owns in Slurm, one row for each job and field, and a diary of every write.

`owned` is the state: what a field held before the first write, what was written since, and what was
owned before the last restore, which a task that had left its array by then still carries. `diary`
is the history; no decision reads it but for the count of recent writes. Both are on the disk
before a command is sent; a write of unknown outcome counts as done. `old` and `new` are numbers in
the fields priority and site_factor, words in the others.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import (
    OWNED,
    PRIORITY,
    SITE_FACTOR,
    Action,
    Field,
    Outcome,
    Result,
    Target,
    Value,
)
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
_JOB: Final = "cluster = ? AND job_id = ? AND submitted_at = ?"
_HAS: Final = "writes != '[]'"
"""Of a row that was not restored."""

Write = tuple[Value, Value, float]
"""Value before, value written, and when."""
Epoch = tuple[Value, int | None, int | None, int | None, Sequence[Write]]
"""What was written between two restores: original, nice, rest, newest_id and writes of a row."""


class OwnedRow(NamedTuple):
    """A row of `owned`, in the order of its columns. original, nice, rest: before the first write,
    see Ownership. newest_id: highest job id then. writes: since the last restore, empty = it is
    restored; past: what was owned before. guessed: which of them the job carries was not known when
    it was taken over. gone: whether the job left the queue; ended_at: since when Slurm shows it in
    no state. at: of the last write, Unix seconds.
    """

    cluster: str
    job_id: int
    submitted_at: float
    field: Field
    address: str
    original: Value
    nice: int | None = None
    rest: int | None = None
    newest_id: int | None = None
    writes: Sequence[Write] = ()
    past: Sequence[Epoch] = ()
    guessed: int = 0
    at: float = 0.0
    gone: int = 0
    ended_at: float | None = None

    @property
    def target(self) -> Target:
        return Target(JobId(self.job_id), UnixTime(self.submitted_at), self.address)

    @property
    def key(self) -> JobKey:
        return JobId(self.job_id), UnixTime(self.submitted_at)

    @property
    def value(self) -> Value | None:
        """What was written last; None = it was restored."""
        return self.writes[-1][1] if self.writes else None

    @property
    def epochs(self) -> list["OwnedRow"]:
        """All that is remembered, the oldest first, each as a row without a past."""
        before = [
            self._replace(original=o, nice=n, rest=r, newest_id=i, writes=w, past=())
            for o, n, r, i, w in self.past
        ]
        return [*before, *([self._replace(past=())] if self.writes else [])]

    @property
    def epoch(self) -> Epoch:
        return self.original, self.nice, self.rest, self.newest_id, self.writes

    @property
    def owned(self) -> Ownership:
        """A number that was not restored, as a decision knows it."""
        return _ownership(self.field.name, self.original, self.nice, self.rest, self.writes)

    def explains(self, actual: Value) -> bool:
        """Whether the value in force is rltuned's; of numbers see Ownership."""
        return actual == self.value if self.field.words else self.owned.explains(int(actual))


COLUMNS: Final = OwnedRow._fields
_PUT: Final = (
    f"INSERT OR REPLACE INTO owned ({', '.join(COLUMNS)})"  # noqa: S608 - fixed names
    f" VALUES ({', '.join('?' * len(COLUMNS))})"
)


def _ownership(
    name: str, original: Any, nice: int | None, rest: int | None, writes: Sequence[Any]
) -> Ownership:
    (_, value, at), earlier = writes[-1], {original}
    for old, new, _ in writes:
        earlier.update((old, new))
    earlier.discard(value)
    return Ownership(name, value, nice, original, tuple(sorted(earlier)), rest, at)


def rows(db: sqlite3.Connection, where: str, *values: object) -> list[OwnedRow]:
    """Rows of the table in the order of their keys."""
    found = db.execute(
        f"SELECT {', '.join(COLUMNS)} FROM owned WHERE {where} ORDER BY job_id, submitted_at",  # noqa: S608
        values,
    ).fetchall()
    # one text for all: quicker by far than one for each
    lists: list[Any] = [json.loads(f"[{','.join(row[i] for row in found)}]") for i in (9, 10)]
    return [
        OwnedRow._make((*row[:3], OWNED[row[3]], *row[4:9], *both, *row[11:]))
        for row, *both in zip(found, *lists, strict=True)
    ]


def put(db: sqlite3.Connection, row: OwnedRow) -> None:
    """Add a row, or put it in place of the one of its job and field."""
    db.execute(_PUT, columns_of(row))


def columns_of(row: OwnedRow) -> tuple[Any, ...]:
    """As the table has them."""
    writes, past = json.dumps(row.writes), json.dumps(row.past)
    return (*row[:3], row.field.name, *row[4:9], writes, past, *row[11:])


# -- questions --------------------------------------------------------------------------------


def claims(db: sqlite3.Connection, cluster: str, which: str = "NOT gone") -> list[OwnedRow]:
    """What jobs carry, by job id: words first, the number that was written last at the end."""
    found = rows(db, f"cluster = ? AND {_HAS} AND {which}", cluster)
    return sorted(found, key=lambda row: (*row.key, not row.field.words, row.writes[-1][2]))


def owned(db: sqlite3.Connection, cluster: str) -> dict[JobKey, Ownership]:
    """Of each pending job the number that was written last."""
    found: dict[JobKey, Ownership] = {}
    every = db.execute(
        "SELECT job_id, submitted_at, field, original, nice, rest, writes FROM owned WHERE"  # noqa: S608 - fixed names
        f" cluster = ? AND {_HAS} AND NOT gone",
        (cluster,),
    ).fetchall()
    writes = json.loads(f"[{','.join(row[-1] for row in every)}]")
    for (job_id, at, name, original, nice, rest, _), noted in zip(every, writes, strict=True):
        before = found.get((job_id, at))
        if not OWNED[name].words and (before is None or before.written_at <= noted[-1][2]):
            found[job_id, at] = _ownership(name, original, nice, rest, noted)
    return found


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
        f"SELECT max(address) FROM owned WHERE {_HAS} AND NOT gone AND cluster != ?"  # noqa: S608
        " GROUP BY cluster, job_id, submitted_at ORDER BY job_id, 1",
        (but,),
    )
    return tuple(address for (address,) in found)


def is_clean(db: sqlite3.Connection, which: str = _HAS) -> bool:
    """Whether no job carries anything, nor left the queue with it and may be requeued. which: TRUE
    = whether nothing was ever owned, or all of it is cleared out.
    """
    return not db.execute(f"SELECT EXISTS (SELECT 1 FROM owned WHERE {which})").fetchone()[0]  # noqa: S608


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
    db.executemany(_PUT, [_written(before.get((a.target.key, a.field)), a, origin) for a in writes])
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
    job, at = action.target, origin["at"]
    if row is None or not row.writes:
        row = OwnedRow(
            origin["cluster"], *job.key, action.field, job.address, action.old, action.nice,
            action.rest, origin["newest"], past=() if row is None else row.past,
        )  # fmt: skip
    # one more than KEPT, as the last may come to nothing
    writes = (*row.writes[-KEPT:], (action.old, action.new, at))
    return columns_of(
        row._replace(writes=writes, address=job.address, at=at, guessed=0, gone=0, ended_at=None)
    )


def settle(db: sqlite3.Connection, number: int, outcome: Outcome, at: float) -> None:
    """Note what came of an intent; FAILED keeps its value, as what is in force is not known."""
    action, result = outcome.action, outcome.result
    (cluster,) = db.execute(
        "UPDATE diary SET result = ?, detail = ?, finished_at = ? WHERE id = ? RETURNING cluster",
        (result.value, outcome.detail, at, number),
    ).fetchone()
    if result is Result.GONE:
        leave(db, cluster, [action.target.key])
        return
    kind = PRIORITY if action.field.releases else action.field
    where, which = f"{_JOB} AND field = ?", (cluster, *action.target.key, kind.name)
    for row in rows(db, f"{where} AND {_HAS}", *which):
        if result in {Result.REFUSED, Result.WITHHELD} and not action.field.releases:
            after = row._replace(writes=row.writes[:-1])
        elif result is Result.APPLIED and (
            action.field.releases or (kind is not PRIORITY and row.original == action.new)
        ):
            after = row._replace(past=(*row.past, row.epoch)[-KEPT:], writes=())
        else:
            continue
        if after.writes or after.past:
            put(db, after)
        else:
            db.execute(f"DELETE FROM owned WHERE {where}", which)  # noqa: S608


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


def note_ended(db: sqlite3.Connection, cluster: str, known: Collection[int], now: float) -> None:
    """Note jobs that Slurm shows no more, in any state. known: ids of jobs and arrays at `now`."""
    ids = json.dumps(sorted(known))
    here = "gone AND cluster = ? AND job_id {}IN (SELECT value FROM json_each(?))"
    db.execute(f"UPDATE owned SET ended_at = NULL WHERE {here.format('')}", (cluster, ids))  # noqa: S608
    db.execute(
        f"UPDATE owned SET ended_at = ? WHERE ended_at IS NULL AND {here.format('NOT ')}",  # noqa: S608
        (now, cluster, ids),
    )


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
    their array: of each value the job.

    A requeued job keeps its directly set priority, its site factor and its OverSubscribe flag,
    under a new submit time. It is known by its id together with exactly the value that rltuned
    wrote last; a task that became a record of its own, by its array's. Of one whose site factor
    does not show it is not known whether it has one.
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
            take(db, row._replace(at=at, gone=0, ended_at=None), how)
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
    new = [one for one in carried(job) if all(row.field is not one[0] for row in mine)]
    found = [_taken(row, job) for one in new for row in _requeued(before, array, *one)]
    if any(not row.field.words for row, _ in found):
        return found
    number = next((one for one in new if one[0].orders), None)
    parted = [] if mine else _parted(array, job, number)
    if parted or not hides(job) or any(row.field is SITE_FACTOR for row in mine):
        return found + parted
    latest = max((row.submitted_at for row in before), default=None)
    hidden = [row for row in before if row.submitted_at == latest and row.writes]
    return found + [_taken(row, job, guessed=1) for row in hidden if row.field is SITE_FACTOR]


def _requeued(
    before: list[OwnedRow], array: list[OwnedRow], kind: Field, value: Value
) -> list[OwnedRow]:
    """The row of the same job before it was requeued, if the value was written to that last. Words
    that a task took along from its array count as well.
    """
    rows_of = [row for row in (*before, *(array if kind.words else ())) if row.field is kind]
    last = max(rows_of, key=lambda row: row.at, default=None)
    return [last] if last is not None and last.value == value else []


def _taken(row: OwnedRow, job: PendingJob, guessed: int = 0) -> tuple[OwnedRow, str]:
    """A row of another record of the same job, as this record's."""
    how = "requeued" if row.job_id == job.job_id else "parted from its array"
    job_id, submitted_at = job.key
    same = row._replace(job_id=job_id, submitted_at=submitted_at, address=job.address)
    return same._replace(guessed=guessed), how


def _parted(
    array: list[OwnedRow], job: PendingJob, number: tuple[Field, Value] | None
) -> list[tuple[OwnedRow, str]]:
    """What a task took along from its array, which shows as a value that was written to it, or, as
    a lost nice or a hidden site factor, by its being younger than the first write.
    """
    if number is not None:
        kind, value = number
        epochs = [one for row in array if row.field is kind for one in row.epochs]
        for epoch in reversed(epochs):
            if value != epoch.original and (same := _writes_of(epoch, value)):
                return [_taken(epoch._replace(writes=same), job)]
    for kind in _lost_with_it(job):
        for row in (row for row in reversed(array) if row.field is kind):
            # only of a record that is younger than a write: an older one has a nice of its own
            last = [one for one in row.epochs[-1:] if row.writes and one.nice]
            of_kind = last if kind is PRIORITY else row.epochs
            younger = [one for one in of_kind if (one.newest_id or 0) < job.job_id]
            if younger:
                past = [one.epoch for one in younger[:-1]]
                return [_taken(younger[-1]._replace(past=past), job, guessed=1)]
    return []


def _writes_of(epoch: OwnedRow, value: Value | None) -> list[Write]:
    """The last write of a value, if there was one."""
    return [write for write in epoch.writes if write[1] == value][-1:]


def _no_guess(row: OwnedRow, job: PendingJob, before: list[OwnedRow]) -> list[tuple[OwnedRow, str]]:
    """The row, now that the job shows its value: one of those that the guess had, or that of the
    same job before it was requeued; empty = nothing is new.
    """
    if not row.guessed or row.field is not SITE_FACTOR or job.site_factor is None:
        return []
    for epoch in reversed(row.epochs):
        if same := _writes_of(epoch, job.site_factor):
            return [(epoch._replace(writes=same, guessed=0), "")]
    return [_taken(one, job) for one in _requeued(before, [], SITE_FACTOR, job.site_factor)]


def take(db: sqlite3.Connection, row: OwnedRow, how: str) -> None:
    """Own what a row says; how: for the diary, empty = it owned that already."""
    put(db, row)
    if how:
        db.execute(
            "INSERT INTO diary (cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
            " nice, result, detail) VALUES (0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.at, row.cluster, *row.key, row.address, row.field.name, row.original, row.value,
                row.nice, TAKEN_OVER, how,
            ),
        )  # fmt: skip


def forget(db: sqlite3.Connection, cluster: str) -> None:
    """Own nothing of a cluster any more: another daemon has taken it over."""
    db.execute("DELETE FROM owned WHERE cluster = ?", (cluster,))
