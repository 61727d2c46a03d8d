"""Settings in the journal, which the service alone can read.

The switchback's salt is drawn once: a user who knew it could tell when delays will be on, and
submit accordingly. Each of two daemons of one cluster has its own; blocks that end in a handover
are no evidence anyway. And the settings that the daemon last ran with: a file that was damaged
while the daemon ran stops the next start, and the service then restores everything; that must
not fail for the same reason.
"""

import secrets
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from rltuned.core.ladder import Rung
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.store import SALT, SETTINGS, Memory, Recall
from rltuned.settings import Loaded, Settings
from rltuned.settings.keys import Rescue

_BYTES: Final = 16


def keep_settings(journal: Journal, settings: Settings, at: float) -> None:
    """Remember settings that are in force; a journal that cannot be used is reported elsewhere."""
    with suppress(JournalError):
        journal.remember(SETTINGS, settings.model_dump(mode="json"), at)


def last_settings(folder: Path) -> Rescue | None:
    """What `restore` needs of those in the journal of a folder; None = nothing that can be used."""
    try:
        with closing(Journal(folder)) as journal:
            return Rescue.model_validate(journal.recall(SETTINGS))
    except (JournalError, ValidationError):
        return None


def salted(loaded: Loaded, memory: Memory, at: float) -> Loaded:
    """Settings with the salt that is in force: that of the settings, else the kept one.

    It is drawn when a switchback starts for the first time. A journal that cannot be used is
    reported elsewhere; nothing is written to Slurm meanwhile, so any salt will do.
    """
    if not _is_needed(loaded):
        return loaded
    drawn = secrets.token_hex(_BYTES)
    try:
        memory.alter(SALT, lambda kept: kept or drawn, at)
        return _with(loaded, canary_salt=str(memory.recall(SALT)))
    except JournalError:
        return _with(loaded, canary_salt=drawn)


def kept_salt(loaded: Loaded, memory: Recall) -> Loaded | None:
    """The same for a command that only looks: nothing is drawn; None = the salt is not known."""
    if not _is_needed(loaded):
        return loaded
    try:
        found = memory.recall(SALT)
    except JournalError:
        return None
    return _with(loaded, canary_salt=str(found)) if found else None


def as_if_on(loaded: Loaded) -> Loaded:
    """Settings under which delays are always on, where the blocks are not known."""
    return _with(loaded, stage=Rung.FULL.value, full_off_share=0.0)


def _is_needed(loaded: Loaded) -> bool:
    ladder = loaded.settings.ladder
    return not ladder.canary_salt and ladder.switchback() is not None


def _with(loaded: Loaded, **changes: object) -> Loaded:
    settings = loaded.settings
    ladder = settings.ladder.model_copy(update=changes)
    return replace(loaded, settings=settings.model_copy(update={"ladder": ladder}))
