"""Settings in the journal, which the service alone can read.

The switchback's salt is drawn once: a user who knew it could tell when delays will be on. And the
settings that the daemon last ran with: a file that was damaged while the daemon ran stops the next
start, and the service then restores everything; that must not fail for the same reason.
"""

import secrets
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from rltuned.core.ladder import Rung
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.store import SALT, SETTINGS
from rltuned.settings import Loaded, Settings
from rltuned.settings.keys import Rescue


def keep_settings(journal: Journal, settings: Settings, at: float) -> None:
    """Remember settings that are in force; a journal that cannot be used is reported elsewhere."""
    with suppress(JournalError):
        journal.remember(SETTINGS, settings.model_dump(mode="json"), at)


def last_settings(folder: Path) -> Rescue | None:
    """What `restore` needs of those in the journal of a folder; None = nothing that can be used."""
    with suppress(JournalError, ValidationError), closing(Journal(folder)) as journal:
        return Rescue.model_validate(journal.recall(SETTINGS))
    return None


def salted(loaded: Loaded, journal: Journal, at: float) -> Loaded:
    """Settings with the salt that is in force: that of the settings, else the kept one, drawn now
    if there is none. Where the journal cannot be used nothing is written, and any salt will do.
    """
    if (found := kept_salt(loaded, journal)) is not None:
        return found
    drawn = secrets.token_hex(16)
    with suppress(JournalError):
        journal.alter(SALT, lambda kept: kept or drawn, at)
    return kept_salt(loaded, journal) or _with(loaded, canary_salt=drawn)


def kept_salt(loaded: Loaded, journal: Journal) -> Loaded | None:
    """The same for a command that only looks: nothing is drawn; None = the salt is not known."""
    ladder = loaded.settings.ladder
    if ladder.canary_salt or ladder.switchback() is None:
        return loaded
    with suppress(JournalError):
        if found := journal.recall(SALT):
            return _with(loaded, canary_salt=str(found))
    return None


def as_if_on(loaded: Loaded) -> Loaded:
    """Settings under which delays are always on, where the blocks are not known."""
    return _with(loaded, stage=Rung.FULL.value, full_off_share=0.0)


def _with(loaded: Loaded, **changes: object) -> Loaded:
    ladder = loaded.settings.ladder.model_copy(update=changes)
    return replace(loaded, settings=loaded.settings.model_copy(update={"ladder": ladder}))
