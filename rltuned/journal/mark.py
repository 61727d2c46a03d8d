"""A small file beside the journal that says how far it went, so that a lost part of it shows.

The journal notes with every intent a number and a random word, and the same goes into this file
before anything is sent. A journal that is behind the file has lost what was written last: it is an
older copy, or its file was cut. One that is ahead is whole: its process ended in between.

A second such file lies outside the folder, where it can: an older copy of the whole folder brings
its own mark along. It is gone when the machine is started again, and a new journal begins without
it.
"""

import secrets
import sqlite3
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rltuned.durable import write_whole
from rltuned.errors import JournalError, JournalLostError
from rltuned.journal import named_values
from rltuned.journal.storage import hand_to_folder_owner
from rltuned.journal.trust import REMEDY
from rltuned.trusted import flaw_of, owner_of, read_trusted

_MOST_BYTES: Final = 1024


class MarkRecord(BaseModel):
    """number: of the intents so far. word: of the last one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    number: int = Field(ge=0)
    word: str


def mark_path(journal: Path) -> Path:
    """Beside the journal, so that it is moved away with the journal's other files."""
    return journal.with_name(f"{journal.name}-mark")


def advance(db: sqlite3.Connection, at: float) -> MarkRecord:
    """Note in the journal that there is one more intent."""
    before = _noted(db)
    mark = MarkRecord(number=before.number + 1 if before else 1, word=secrets.token_hex(8))
    named_values.put(db, named_values.MARK, mark.model_dump(), at)
    return mark


def leave(journal: Path, mark: MarkRecord) -> None:
    """Put it beside the journal, durably. Raises JournalError: nothing may be sent then."""
    path = mark_path(journal)
    try:
        folder = path.parent.stat()
        write_whole(
            path,
            mark.model_dump_json().encode(),
            prepare=lambda file: hand_to_folder_owner(file, folder),
        )
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from None


def outside(folder: Path, journal: Path) -> Path:
    """Of this journal in another folder."""
    name = sha256(str(journal.absolute()).encode()).hexdigest()[:12]
    return folder / f"journal-mark-{name}"


def leave_outside(path: Path, journal: Path, mark: MarkRecord) -> None:
    """Put it there too, if that folder is there and takes it."""
    with suppress(OSError):  # one that is behind, or none, says nothing
        folder = path.parent.stat()
        if flaw_of(path.parent, folder, also=owner_of(journal.parent)) is None:
            write_whole(
                path,
                mark.model_dump_json().encode(),
                prepare=lambda file: hand_to_folder_owner(file, folder),
            )


def check_outside(path: Path, journal: Path, db: sqlite3.Connection) -> None:
    """Raises JournalLostError: the journal is behind that file; one that is not fit is none."""
    try:
        raw, _ = read_trusted(path, _MOST_BYTES, also=owner_of(journal.parent))
        left = MarkRecord.model_validate_json(raw)
    except (OSError, ValidationError):
        return
    _compare(journal, db, left)


def check(journal: Path, db: sqlite3.Connection) -> None:
    """Raises JournalLostError: the journal is behind the file, or the file is damaged."""
    path = mark_path(journal)
    try:
        raw, _ = read_trusted(path, _MOST_BYTES, also=owner_of(path.parent))
        left = MarkRecord.model_validate_json(raw)
    except FileNotFoundError:
        return
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is damaged"
        raise JournalLostError(f"{path}: {reason}; {REMEDY}") from None
    _compare(journal, db, left)


def _compare(journal: Path, db: sqlite3.Connection, left: MarkRecord) -> None:
    noted = _noted(db)
    behind = noted is None or noted.number < left.number
    if behind or (noted is not None and noted.number == left.number and noted.word != left.word):
        raise JournalLostError(
            f"{journal}: is an older copy, or has lost its end: what rltuned wrote last is not in "
            f"it; {REMEDY}"
        )


def _noted(db: sqlite3.Connection) -> MarkRecord | None:
    found = named_values.get(db, named_values.MARK)
    return None if found is None else MarkRecord.model_validate(found)
