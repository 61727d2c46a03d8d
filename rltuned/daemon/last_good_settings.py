"""The settings that the daemon last ran with, kept in its journal.

A file that was damaged while the daemon ran stops the next start, and the service then gives
everything back; that must not fail for the same reason.
"""

from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.named_values import SETTINGS
from rltuned.settings.service import Rescue

if TYPE_CHECKING:  # imports numpy, and `rltuned restore` does without
    from rltuned.settings import Settings


def keep_settings(journal: Journal, settings: "Settings", at: float) -> None:
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
