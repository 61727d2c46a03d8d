"""What `rltuned restore` reads of the settings file: four tables, and none that needs numpy.

An error in any other table (a policy that does not exist, a bound out of range) stops the daemon,
and must not stop the command that takes the daemon's changes back.
"""

from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, ValidationError

from rltuned.errors import SettingsError
from rltuned.settings.controller import HaKeys, SlurmKeys
from rltuned.settings.keeping import JournalKeys
from rltuned.settings.key import Keys, table
from rltuned.settings.running import DaemonKeys
from rltuned.settings.source import tree_of


class Rescue(Keys):
    """The tables that say where the journal lies and how Slurm is called; others are not read."""

    model_config = ConfigDict(extra="ignore")

    daemon: DaemonKeys = table(DaemonKeys, "Where the journal is.")
    slurm: SlurmKeys = table(SlurmKeys, "How Slurm's commands are called.")
    ha: HaKeys = table(HaKeys, "A second daemon.")
    journal: JournalKeys = table(JournalKeys, "How much of the past is kept.")

    @classmethod
    def load(cls, path: Path | None) -> Self:
        """The tables of a settings file; None = the usual one where there is one.

        Raises:
            SettingsError: the file cannot be read, or a key of these tables cannot be used.
        """
        tree, found = tree_of(path)
        try:
            return cls.model_validate(tree)
        except ValidationError as error:
            lines = [f"{found}: {_explained(e)}" for e in error.errors(include_url=False)]
            raise SettingsError("\n".join(dict.fromkeys(lines))) from None


def _explained(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"])
    return f"{key}: {'unknown key' if error['type'] == 'extra_forbidden' else error['msg']}"
