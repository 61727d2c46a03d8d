"""Whether the journal is still the file that was opened, and holds what was written last.

A file that a user deleted, replaced or damaged can go on being written to for days, and what was
written there can never be restored. So the journal is looked at, by its path and through a
connection of its own, before every intent.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from rltuned.errors import JournalError, JournalLostError

REMEDY: Final = (
    "nothing is written to Slurm; stop the daemon, restore what Slurm shows with `rltuned "
    "restore --all --as-shown`, put the files away, start it again (docs/runbook.md)"
)
_LATEST: Final = "SELECT * FROM changes ORDER BY id DESC LIMIT 64"
"""The last rows, more than a page of them."""

Place = tuple[int, int]
"""Device and inode of a file."""


class Trust:
    """Remembers which file a journal is and what its last rows are.

    Its methods raise JournalLostError where the journal is not what it was: deleted, replaced,
    damaged, or without what was written last. Once damaged, it stays so for this process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place: Place | None = None
        self._latest: int | None = None
        self._damage = ""

    def check_place(self) -> bool:
        """Whether the journal is there."""
        if self._damage:
            raise JournalLostError(self._damage)
        found = self._found(self._path)
        if self._place is None:
            return found is not None
        self._compare(self._path, self._place, found)
        return True

    def opened(self) -> None:
        """The journal was opened, for the first time or again."""
        place = self._found(self._path)
        if self._place is None:
            self._place = place
        self._compare(self._path, self._place, place)

    def written(self, db: sqlite3.Connection) -> None:
        """The own connection has written something, or seen what another process wrote."""
        self._latest = _digest(db)

    def check(self) -> None:
        """Look at the journal by its path, as a stranger would."""
        self.check_place()
        if self._latest is None:
            return
        try:
            with closing(stranger(self._path)) as db:
                found = _digest(db)
        except sqlite3.Error as error:
            raise JournalLostError(
                f"{self._path}: cannot be read back: {error}; {REMEDY}"
            ) from None
        if found != self._latest:
            self._damage = f"{self._path}: does not hold what was written last; {REMEDY}"
            raise JournalLostError(self._damage)

    def examine(self) -> None:
        """Check the whole file: seconds for a gigabyte."""
        try:
            with closing(stranger(self._path)) as db:
                (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.Error as error:
            verdict = str(error)
        if verdict != "ok":
            self._damage = f"{self._path}: is damaged: {verdict}; {REMEDY}"
            raise JournalLostError(self._damage)

    def _compare(self, path: Path, known: Place | None, found: Place | None) -> None:
        if found is None:
            raise JournalLostError(f"{path}: was deleted or moved while it was in use; {REMEDY}")
        if found != known:
            raise JournalLostError(f"{path}: is another file than the one in use; {REMEDY}")

    def _found(self, path: Path) -> Place | None:
        try:
            status = path.lstat()  # a link is no journal, wherever it leads
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}") from None
        return status.st_dev, status.st_ino


def stranger(path: Path) -> sqlite3.Connection:
    """A connection of its own to a journal, which cannot change it; raises sqlite3.Error."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _digest(db: sqlite3.Connection) -> int:
    return hash(tuple(db.execute(_LATEST)))
