"""What must outlive the process and is no change to Slurm: one JSON value under each name (table
`states`), read and changed whole.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rltuned.errors import JournalError
from rltuned.text import first_flaw

T = TypeVar("T")

SETTINGS: Final = "settings"
"""Those that the daemon last ran with."""
SALT: Final = "switchback_salt"
STATE: Final = "state"
"""See daemon/state."""
MARK: Final = "mark"
"""Of the last intent, see journal/storage."""
OWN: Final = (SETTINGS, SALT, STATE, MARK)
"""Of this host's daemon; all others are handed over."""


class Recall(Protocol):
    """The named values, to read."""

    def recall(self, name: str) -> object: ...


class Memory(Recall, Protocol):
    """The same, to read and to change."""

    def alter(self, name: str, change: Callable[[object], object], at: float) -> None: ...


class Kept(Generic[T]):
    """What the journal keeps under a name as one JSON object. what: it is, for a message."""

    def __init__(self, name: str, kind: Any, what: str, config: ConfigDict | None = None) -> None:
        self.name = name
        self._what = what
        self._adapter: TypeAdapter[dict[str, T]] = TypeAdapter(dict[str, kind], config=config)

    def read(self, memory: Recall) -> Mapping[str, T]:
        """All of it; empty = nothing was kept yet. Raises JournalError."""
        return self.of(memory.recall(self.name))

    def of(self, kept: object) -> dict[str, T]:
        """The same from what the journal has; names the first wrong field in a JournalError."""
        try:
            return self._adapter.validate_python({} if kept is None else kept)
        except ValidationError as error:
            raise JournalError(f"{self._what} in the journal: {first_flaw(error)}") from None

    def alter(
        self, memory: Memory, change: Callable[[dict[str, T]], Mapping[str, T]], at: float
    ) -> None:
        """Put what `change` makes of it in its place, in one piece; raises as read."""

        def put(kept: object) -> object:
            before = self.of(kept)
            after = change(dict(before))
            same = after == before
            return kept if same else self._adapter.dump_python(dict(after), mode="json")

        memory.alter(self.name, put, at)

    def change(self, memory: Memory, key: str, alter: Callable[[T | None], T], at: float) -> T:
        """The same with one value, None = it is not there yet; returns what is there now."""
        found: list[T] = []

        def put(every: dict[str, T]) -> Mapping[str, T]:
            found[:] = [alter(every.get(key))]
            nothing = not found[0] and key not in every
            return every if nothing or every.get(key) == found[0] else {**every, key: found[0]}

        self.alter(memory, put, at)
        return found[0]


def get(db: sqlite3.Connection, name: str) -> object:
    """The value noted last; None = none was."""
    row = db.execute("SELECT value FROM states WHERE name = ?", (name,)).fetchone()
    return None if row is None else json.loads(row[0])


def portable(db: sqlite3.Connection) -> list[tuple[str, str, float]]:
    """Name, value as JSON text, and time of all that a daemon on another host goes on with."""
    return db.execute(
        "SELECT name, value, at FROM states WHERE name NOT IN (?, ?, ?, ?) ORDER BY name", OWN
    ).fetchall()


def put(db: sqlite3.Connection, name: str, value: object, at: float) -> None:
    """Note a value in place of the last one. Raises TypeError, ValueError: it is no JSON."""
    put_text(db, name, json.dumps(value, allow_nan=False, sort_keys=True), at)


def put_text(db: sqlite3.Connection, name: str, text: str, at: float) -> None:
    """The same with a value that is JSON text already."""
    db.execute(
        "INSERT INTO states (name, value, at) VALUES (?, ?, ?) ON CONFLICT (name)"
        " DO UPDATE SET value = excluded.value, at = excluded.at",
        (name, text, at),
    )
