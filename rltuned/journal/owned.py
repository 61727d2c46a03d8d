"""What rltuned owns in Slurm, one row for each job and field, and a diary of every write.

`owned` is the state: what a field held before the first write, what was written since, and what was
owned before the last restore, which a task that had left its array by then still carries. `diary`
is the history; no decision reads it but for the count of recent writes. Both are on the disk
before a command is sent; a write of unknown outcome counts as done. `old` and `new` are numbers in
the fields priority and site_factor, words in the others.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
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
    writes TEXT NOT NULL CHECK (json_valid(writes)),
    past TEXT NOT NULL CHECK (json_valid(past)),
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
HAS: Final = "writes != '[]'"
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
        return self[1:3]  # type: ignore[return-value]

    @property
    def value(self) -> Value | None:
        """What was written last; None = it was restored."""
        return self.writes[-1][1] if self.writes else None

    @property
    def epochs(self) -> list["OwnedRow"]:
        """All that is remembered, the oldest first, each as a row without a past."""
        now = [self.epoch] if self.writes else []
        return [
            self._replace(original=o, nice=n, rest=r, newest_id=i, writes=w, past=())
            for o, n, r, i, w in (*self.past, *now)
        ]

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

    def of(self, value: Value) -> list["OwnedRow"]:
        """The row as it was when a value was written last; empty = it never was."""
        for epoch in reversed(self.epochs):
            if same := [write for write in epoch.writes if write[1] == value][-1:]:
                return [epoch._replace(writes=same, guessed=0)]
        return []


def _ownership(
    name: str, original: Any, nice: int | None, rest: int | None, writes: Sequence[Any]
) -> Ownership:
    (_, value, at), earlier = writes[-1], {original}
    for old, new, _ in writes:
        earlier.update((old, new))
    earlier.discard(value)
    return Ownership(name, value, nice, original, tuple(sorted(earlier)), rest, at)


COLUMNS: Final = OwnedRow._fields
_PUT: Final = (
    f"INSERT OR REPLACE INTO owned ({', '.join(COLUMNS)})"  # noqa: S608 - fixed names
    f" VALUES (:{', :'.join(COLUMNS)})"
)


def columns(db: sqlite3.Connection, where: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows as the table has them, in the order of their keys."""
    asked = f"SELECT {', '.join(COLUMNS)} FROM owned WHERE {where} ORDER BY job_id, submitted_at"  # noqa: S608
    return db.execute(asked, values).fetchall()


def rows(db: sqlite3.Connection, where: str, *values: object) -> list[OwnedRow]:
    """The same, read."""
    found = columns(db, where, *values)
    # one text for all: quicker by far than one for each
    lists: list[Any] = [json.loads(f"[{','.join(row[i] for row in found)}]") for i in (9, 10)]
    return [
        OwnedRow._make((*row[:3], OWNED[row[3]], *row[4:9], *both, *row[11:]))
        for row, *both in zip(found, *lists, strict=True)
    ]


def put(db: sqlite3.Connection, every: Iterable[OwnedRow]) -> None:
    """Add rows, or put them in place of those of their jobs and fields."""
    db.executemany(
        _PUT,
        [
            {
                **row._asdict(), "field": row.field.name, "writes": json.dumps(row.writes),
                "past": json.dumps(row.past),
            }
            for row in every
        ],
    )  # fmt: skip


# -- questions --------------------------------------------------------------------------------


def claims(db: sqlite3.Connection, cluster: str, which: str = "NOT gone") -> list[OwnedRow]:
    """What jobs carry, by job id: words first, the number that was written last at the end."""
    found = rows(db, f"cluster = ? AND {HAS} AND {which}", cluster)
    if len(set(map(itemgetter(1, 2), found))) == len(found):
        return found  # quicker by far
    return sorted(found, key=lambda row: (*row.key, not row.field.words, row.writes[-1][2]))


def owned(db: sqlite3.Connection, cluster: str) -> dict[JobKey, Ownership]:
    """Of each pending job the number that was written last, without the rows: half of their time,
    in every cycle.
    """
    found: dict[JobKey, Ownership] = {}
    every = db.execute(
        "SELECT job_id, submitted_at, field, original, nice, rest, writes FROM owned WHERE"  # noqa: S608 - fixed names
        f" cluster = ? AND {HAS} AND NOT gone",
        (cluster,),
    ).fetchall()
    writes = json.loads(f"[{','.join(row[-1] for row in every)}]")
    for (job_id, at, name, original, nice, rest, _), noted in zip(every, writes, strict=True):
        before = found.get((job_id, at))
        if not OWNED[name].words and (before is None or before.written_at <= noted[-1][2]):
            found[job_id, at] = _ownership(name, original, nice, rest, noted)
    return found


def carrying(db: sqlite3.Connection, but: str = "") -> tuple[str, ...]:
    """Addresses of the jobs that carry something. but: the cluster whose jobs do not count."""
    found = rows(db, f"{HAS} AND NOT gone AND cluster != ?", but)
    return tuple(dict.fromkeys(row.address for row in found))


# -- writes -----------------------------------------------------------------------------------


def intend(
    db: sqlite3.Connection, actions: Collection[Action], origin: Mapping[str, Any]
) -> tuple[int, ...]:
    """Note what is about to be written; returns the ids of the diary's rows. origin: cluster,
    cycle, at, snapshot, and the highest job id shown, `newest`.
    """
    cluster, at = origin["cluster"], origin["at"]
    known = _of_ids(db, cluster, {action.target.job_id for action in actions})
    before = {(row.key, row.field): row for row in known}
    put(db, [_written(before.get((a.target.key, a.field)), a, origin) for a in actions
             if not a.field.releases])  # fmt: skip
    note = (
        "INSERT INTO diary (cycle, at, cluster, job_id, submitted_at, address, field, old, new,"
        " nice, snapshot) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    noted = [
        (
            origin["cycle"], at, cluster, *a.target.key, a.target.address, a.field.name, a.old,
            None if a.field.name == "release" else a.new, a.nice, origin["snapshot"],
        )
        for a in actions
    ]  # fmt: skip
    return tuple(db.execute(note, values).lastrowid or 0 for values in noted)


def _of_ids(db: sqlite3.Connection, cluster: str, ids: Iterable[int]) -> list[OwnedRow]:
    where = "cluster = ? AND job_id IN (SELECT value FROM json_each(?))"
    return rows(db, where, cluster, json.dumps([*ids]))


def _written(row: OwnedRow | None, action: Action, origin: Mapping[str, Any]) -> OwnedRow:
    """The row with one more write."""
    job, at = action.target, origin["at"]
    if row is None or not row.writes:
        row = OwnedRow(
            origin["cluster"], *job.key, action.field, job.address, action.old, action.nice,
            action.rest, origin["newest"], past=() if row is None else row.past,
        )  # fmt: skip
    # one more than KEPT, as the last may come to nothing
    writes = (*row.writes[-KEPT:], (action.old, action.new, at))
    return row._replace(writes=writes, address=job.address, at=at, guessed=0, gone=0, ended_at=None)


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
    for row in rows(db, f"{where} AND {HAS}", *which):
        if result in {Result.REFUSED, Result.WITHHELD} and not action.field.releases:
            put(db, [row._replace(writes=row.writes[:-1])])
        elif result is Result.APPLIED and (
            action.field.releases or (kind is not PRIORITY and row.original == action.new)
        ):
            put(db, [row._replace(past=(*row.past, row.epoch)[-KEPT:], writes=())])
    db.execute(f"DELETE FROM owned WHERE {where} AND writes = '[]' AND past = '[]'", which)  # noqa: S608


def leave(db: sqlite3.Connection, cluster: str, keys: Iterable[JobKey]) -> None:
    """These jobs left the queue; their rows wait for a requeue."""
    db.executemany(
        f"UPDATE owned SET gone = 1 WHERE {_JOB}",  # noqa: S608
        [(cluster, *key) for key in keys],
    )


def close_gone(db: sqlite3.Connection, cluster: str, pending: Collection[JobKey]) -> None:
    """The jobs that are pending no longer have left the queue."""
    held = db.execute(
        "SELECT DISTINCT job_id, submitted_at FROM owned WHERE cluster = ? AND NOT gone",
        (cluster,),
    )
    leave(db, cluster, [key for key in held.fetchall() if key not in pending])


def note_ended(db: sqlite3.Connection, cluster: str, known: Collection[int], now: float) -> None:
    """Note jobs that Slurm shows no more, in any state. known: ids of jobs and arrays at `now`."""
    db.execute(
        "UPDATE owned SET ended_at = iif(ended_at IS NULL, ?, NULL) WHERE gone AND cluster = ?"
        " AND (ended_at IS NULL) != (job_id IN (SELECT value FROM json_each(?)))",
        (now, cluster, json.dumps(sorted(known))),
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
        held.setdefault(job_id, set()).update(() if gone else (submitted_at,))
    odd = [
        job for job in pending
        if (job.job_id in held or array_of(job) in held)
        and (
            job.taken_over if job.owned is not None
            else job.submitted_at not in held.get(job.job_id, ()) or may_carry(job)
        )
    ]  # fmt: skip
    ids = {number for job in odd for number in (job.job_id, array_of(job)) if number is not None}
    known = defaultdict[int, list[OwnedRow]](list)
    for row in _of_ids(db, cluster, ids) if ids else ():
        known[row.job_id].append(row)
    taken: list[OwnedRow] = []
    for job in odd:
        job_id, submitted_at = job.key
        array = [r for r in known[array_of(job) or 0] if r.submitted_at <= submitted_at]
        mine: dict[str, Any] = {"job_id": job_id, "submitted_at": submitted_at, "at": at}
        mine |= {"address": job.address, "gone": 0, "ended_at": None}
        taken += [row._replace(**mine) for row in _found(known[job_id], array, job)]
    put(db, taken)
    return [row.key for row in taken]


def _found(same_id: list[OwnedRow], array: list[OwnedRow], job: PendingJob) -> list[OwnedRow]:
    """Rows of which the job is to have its own; of itself, of the same job before it was requeued,
    or of its array.
    """
    mine = [row for row in same_id if row.submitted_at == job.submitted_at]
    before = [row for row in same_id if row.submitted_at < job.submitted_at]
    if job.owned is not None:
        return _unguessed(mine, before, job)
    if gone := [row for row in mine if row.gone]:
        return gone if any(row.writes for row in gone) else []
    fields = {row.field for row in mine}
    shown = [(kind, value) for kind, value in carried(job) if kind not in fields]
    # words that a task took along from its array count as well
    found = [
        row
        for kind, value in shown
        for row in _last([*before, *(array if kind.words else ())], kind, value)
    ]
    if any(not row.field.words for row in found):
        return found
    parted = [] if mine else _parted(array, job, shown)
    if parted or not hides(job) or SITE_FACTOR in fields:
        return found + parted
    latest = max((row.submitted_at for row in before), default=None)
    hidden = [r for r in before if r.field is SITE_FACTOR and r.submitted_at == latest and r.writes]
    return found + [row._replace(guessed=1) for row in hidden]


def _last(every: Iterable[OwnedRow], kind: Field, value: Value) -> list[OwnedRow]:
    """The latest row of a field, if the value was written to that last."""
    latest = max((row for row in every if row.field is kind), key=lambda r: r.at, default=None)
    is_it = latest is not None and latest.value == value
    return [latest._replace(guessed=0)] if latest is not None and is_it else []


def _parted(
    array: list[OwnedRow], job: PendingJob, shown: list[tuple[Field, Value]]
) -> list[OwnedRow]:
    """What a task took along from its array, which shows as a value that was written to it, or, as
    a lost nice or a hidden site factor, by its being younger than the first write.
    """
    for kind, value in [one for one in shown if one[0].orders][:1]:
        written = [one for row in array if row.field is kind for one in row.of(value)]
        if written and written[-1].original != value:
            return written[-1:]
    for kind in _lost_with_it(job):
        for row in (row for row in reversed(array) if row.field is kind):
            # only of a record that is younger than a write: an older one has a nice of its own
            last = [one for one in row.epochs[-1:] if row.writes and one.nice]
            of_kind = last if kind is PRIORITY else row.epochs
            younger = [one for one in of_kind if (one.newest_id or 0) < job.job_id]
            if younger:
                past = [one.epoch for one in younger[:-1]]
                return [younger[-1]._replace(past=past, guessed=1)]
    return []


def _unguessed(mine: list[OwnedRow], before: list[OwnedRow], job: PendingJob) -> list[OwnedRow]:
    """The rows that were guessed, now that the job shows its value: one of those that the guess
    had, or that of the same job before it was requeued; empty = nothing is new.
    """
    shown = job.site_factor
    guessed = [row for row in mine if row.guessed and row.field is SITE_FACTOR]
    if shown is None or not guessed:
        return []
    return guessed[0].of(shown) or _last(before, SITE_FACTOR, shown)


def replace(db: sqlite3.Connection, cluster: str, every: Iterable[Mapping[str, Any]]) -> None:
    """Own of a cluster what another daemon owned, and nothing else. every: by column. Raises
    sqlite3.Error: a row is damaged.
    """
    db.execute("DELETE FROM owned WHERE cluster = ?", (cluster,))
    db.executemany(_PUT, every)
    try:
        rows(db, "cluster = ?", cluster)
    except (KeyError, ValueError) as error:
        raise sqlite3.DataError(f"a row is not of this release: {error!r}") from None
