"""How large the journal is."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

TABLES: Final = ("cycles", "snapshots", "recipes", "plans", "writes", "flags", "states")


@dataclass(frozen=True, slots=True)
class Size:
    """bytes: with the write-ahead log. rows: by table."""

    bytes: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)


def measure(db: sqlite3.Connection, path: Path) -> Size:
    """Size of an open journal.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    rows = {table: _count(db, table) for table in TABLES}
    files = (path, path.with_name(f"{path.name}-wal"))
    return Size(sum(file.stat().st_size for file in files if file.exists()), rows)


def _count(db: sqlite3.Connection, table: str) -> int:
    (count,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - ours
    return int(count)
