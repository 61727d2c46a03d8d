"""What must outlive the process and is no change to Slurm: one JSON value under each name."""

import json
import sqlite3
from typing import Final

SETTINGS: Final = "settings"
"""Those that this host's daemon last ran with."""
SALT: Final = "switchback_salt"
"""Of this host's daemon. All but these two goes along with what is ours."""


def get(db: sqlite3.Connection, name: str) -> object:
    """The value noted last; None = none was."""
    row = db.execute("SELECT value FROM states WHERE name = ?", (name,)).fetchone()
    return None if row is None else json.loads(row[0])


def portable(db: sqlite3.Connection) -> list[tuple[str, str, float]]:
    """Name, value as JSON text, and time of all that a daemon on another host goes on with."""
    return db.execute(
        "SELECT name, value, at FROM states WHERE name NOT IN (?, ?) ORDER BY name",
        (SETTINGS, SALT),
    ).fetchall()


def put(db: sqlite3.Connection, name: str, value: object, at: float) -> None:
    """Note a value in place of the last one.

    Raises:
        TypeError, ValueError: it is no JSON.
    """
    put_text(db, name, json.dumps(value, allow_nan=False, sort_keys=True), at)


def put_text(db: sqlite3.Connection, name: str, text: str, at: float) -> None:
    """The same with a value that is JSON text already."""
    db.execute(
        "INSERT INTO states (name, value, at) VALUES (?, ?, ?) ON CONFLICT (name)"
        " DO UPDATE SET value = excluded.value, at = excluded.at",
        (name, text, at),
    )
