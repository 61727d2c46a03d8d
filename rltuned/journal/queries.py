"""What the journal knows of a job and of a cycle. Only reads, also while the daemon writes.

What is kept and cannot be read is a JournalError.
"""

import re
import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from rltuned.errors import JournalError
from rltuned.journal.cycles import CycleObservation, Document, unpack_plan
from rltuned.journal.inputs import Recipe, decoded
from rltuned.journal.snapshots import unpack
from rltuned.slurm.job_selector import AskedJob, asked_job


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


_CHANGES = """
SELECT w.cycle, w.at, w.cluster, job_id, submitted_at, address, field, old, new, nice,
    result, detail, finished_at, w.snapshot,
    CASE WHEN w.snapshot IS NULL THEN '' ELSE ifnull(c.mode, '') END AS mode,
    CASE WHEN w.snapshot IS NULL THEN '' ELSE ifnull(c.policy, '') END AS policy, p.body
FROM diary AS w LEFT JOIN cycles AS c ON c.cycle = w.cycle
LEFT JOIN plans AS p ON p.cycle = w.cycle AND w.snapshot IS NOT NULL AND c.mode = 'live'
"""
_OF_JOB = " WHERE job_id = ? OR address GLOB ? OR address GLOB ?"

_TASK = re.compile(r"[1-9][0-9]*_[0-9]+")


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
    prefixes = (asked.job_id, f"{asked.job_id}[_]*", f"{asked.job_id}+*")
    rows = db.execute(_CHANGES + _OF_JOB, prefixes).fetchall()
    changes = (_change(row) for row in rows if asked.named(row[3], row[5]))
    return [change for change in changes if asked.is_on(change.cluster)]


def _change(row: tuple[Any, ...]) -> JobChange:
    *values, body = row
    reason = None if body is None else unpack_plan(body)["reasons"].get(str(row[3]))
    return JobChange._make((*values, reason))


_CYCLE = (
    "SELECT c.cycle, at, mode, skipped, taken_at, s.digest, s.body, r.body, p.body FROM cycles AS c"
    " LEFT JOIN snapshots AS s ON s.digest = c.snapshot"
    " LEFT JOIN recipes AS r ON r.digest = c.recipe LEFT JOIN plans AS p ON p.cycle = c.cycle"
)


def last_seen(db: sqlite3.Connection) -> CycleObservation | None:
    """What the last cycle saw; None = none is kept. Raises JournalError, SnapshotError."""
    row = db.execute(
        f"{_CYCLE} WHERE s.digest IS NOT NULL ORDER BY c.cycle DESC LIMIT 1"
    ).fetchone()
    return None if row is None else _observation(row)


def decided(db: sqlite3.Connection, cycle: int) -> tuple[CycleObservation, Recipe, Document]:
    """What a cycle saw, its settings, its plan. Raises JournalError, SnapshotError."""
    row = db.execute(f"{_CYCLE} WHERE c.cycle = ?", (cycle,)).fetchone()
    if row is None:
        raise JournalError(f"cycle {cycle} is not in the journal; {_span(db)}")
    if row[4] is None or row[7] is None:
        raise JournalError(f"cycle {cycle} came to no decision ({row[3] or row[2]}); {_span(db)}")
    if row[6] is not None and row[8] is not None:
        found = _observation(row)
        if found.recipe is not None and found.plan is not None:
            return found, found.recipe, found.plan
    raise JournalError(f"the snapshot of cycle {cycle} has been cleared out; {_span(db)}")


def _observation(row: tuple[Any, ...]) -> CycleObservation:
    cycle, at, mode, _, taken_at, digest, body, recipe, plan = row
    return CycleObservation(
        cycle,
        at,
        mode,
        *unpack(digest, body, taken_at),
        None if recipe is None else decoded(recipe),
        None if plan is None else unpack_plan(plan),
    )


def _span(db: sqlite3.Connection) -> str:
    first, last = db.execute(
        "SELECT min(cycle), max(cycle) FROM cycles"
        " WHERE snapshot IS NOT NULL AND recipe IS NOT NULL"
    ).fetchone()
    return "no cycle can be decided again" if first is None else f"{first} to {last} are kept"


def differences(recorded: Document, again: Document) -> Iterator[str]:
    """What two plans say differently, a line per action; none when they are the same."""
    before, after = (
        {(a["action"], f"{a['address']}"): a for a in plan["actions"]} for plan in (recorded, again)
    )
    for key in [*before, *(k for k in after if k not in before)]:
        old, new = before.get(key), after.get(key)
        if old != new:
            yield f"job {key[1]}: {key[0]}: was {_values(old)}, is {_values(new)}"
    if list(before) != list(after) and before == after:
        yield "the same actions in another order"


def _values(action: Document | None) -> str:
    if action is None:
        return "nothing"
    shown = {k: v for k, v in action.items() if k not in {"action", "job_id", "address"}}
    return ", ".join(f"{k} {v}" for k, v in shown.items() if k != "submitted_at")
