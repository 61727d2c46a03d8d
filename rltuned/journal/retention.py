"""Clearing out the journal: by age, and by size, what no one needs to give anything back.

What a pending job carries stays: a restore needs it. A job that left the queue with something owned
brings it back when it is requeued. So its rows stay, whatever age and size, while Slurm shows the
job in any state, and ENDED_S longer.
"""

import sqlite3
from dataclasses import dataclass
from typing import Final

AT_ONCE: Final = 1_000
"""Rows of a table that one cycle clears out at most."""
SNAPSHOTS_AT_ONCE: Final = 50
"""The same of snapshots, so that a lowered limit does not stop the cycle."""
NUMBERED: Final = 1_000
"""Latest cycles whose rows stay whatever the size: the numbers go on from them."""
ENDED_S: Final = 86_400.0
"""A job that Slurm has not shown for so long is never requeued: it has forgotten it (MinJobAge)."""
_DAY_S: Final = 86_400.0
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long things are kept, and how much: the older give way first, snapshots before rows."""

    days: float = 90.0
    max_mib: float = 1024.0


def rotate(db: sqlite3.Connection, keeping: Keeping, cluster: str, now: float) -> None:
    """Clear out some of what is too old or too much, in a transaction. cluster: the watched one."""
    before = now - keeping.days * _DAY_S
    old = db.execute(
        "SELECT cycle FROM (SELECT cycle, at FROM cycles WHERE cycle <"
        " (SELECT max(cycle) FROM cycles) ORDER BY cycle LIMIT ?) WHERE at < ?",
        (AT_ONCE, before),
    ).fetchall()
    for (cycle,) in old:
        _drop_snapshot(db, cycle)
        db.execute("DELETE FROM cycles WHERE cycle = ?", (cycle,))
    db.execute(
        "DELETE FROM diary WHERE id IN (SELECT id FROM (SELECT id, at FROM diary ORDER BY id"
        " LIMIT ?) WHERE at < ?)",
        (AT_ONCE, before),
    )
    # a job that Slurm has forgotten is never requeued: without these the table stays small
    db.execute(
        "DELETE FROM owned WHERE gone AND ended_at < ? OR at < ? AND (writes = '[]'"
        " OR gone AND cluster != ?)",
        (now - ENDED_S, before, cluster),
    )
    _by_size(db, int(keeping.max_mib * _MIB))


def _by_size(db: sqlite3.Connection, most_bytes: int) -> None:
    """First the oldest snapshots and plans, then the oldest rows, and what was restored."""
    for _ in range(SNAPSHOTS_AT_ONCE):
        if used_bytes(db) <= most_bytes:
            return
        (oldest,) = db.execute(
            "SELECT min(cycle) FROM cycles WHERE snapshot IS NOT NULL"
        ).fetchone()
        if oldest is None:
            db.execute("DELETE FROM snapshots")  # no cycle names them any more
            db.execute(
                "DELETE FROM cycles WHERE cycle IN (SELECT cycle FROM cycles WHERE cycle <="
                " (SELECT max(cycle) FROM cycles) - ? ORDER BY cycle LIMIT ?)",
                (NUMBERED, AT_ONCE),
            )
            which = "id IN (SELECT id FROM diary ORDER BY id LIMIT ?)"
            db.execute(f"DELETE FROM diary WHERE {which}", (AT_ONCE,))  # noqa: S608
            db.execute("DELETE FROM owned WHERE writes = '[]'")
            return
        _drop_snapshot(db, oldest)


def _drop_snapshot(db: sqlite3.Connection, cycle: int) -> None:
    """Forget what a cycle saw and planned; a snapshot that another cycle shares stays."""
    (digest,) = db.execute("SELECT snapshot FROM cycles WHERE cycle = ?", (cycle,)).fetchone()
    db.execute("UPDATE cycles SET snapshot = NULL WHERE cycle = ?", (cycle,))
    db.execute("DELETE FROM plans WHERE cycle = ?", (cycle,))
    db.execute(
        "DELETE FROM snapshots WHERE digest = :digest"
        " AND NOT EXISTS (SELECT 1 FROM cycles WHERE snapshot = :digest)",
        {"digest": digest},
    )


def shrink(db: sqlite3.Connection, keeping: Keeping) -> None:
    """Give cleared pages back but a tenth of the limit; outside a transaction."""
    slack = int(keeping.max_mib * _MIB) // 10 // _pragma(db, "page_size")
    spare = _pragma(db, "freelist_count") - slack
    if spare > 0:
        # execute() would step once, which is one page
        db.executescript(f"PRAGMA incremental_vacuum({spare});")


def used_bytes(db: sqlite3.Connection) -> int:
    """What the file would need without the pages that are free to be used again."""
    pages = _pragma(db, "page_count") - _pragma(db, "freelist_count")
    return pages * _pragma(db, "page_size")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    (value,) = db.execute(f"PRAGMA {name}").fetchone()
    return int(value)
