"""GPU types that a plan suggests, written on request to jobs that may run on several; and undone.

It runs with the rights of the user who asks. No daemon has a part in it: a file keeps the undo.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from rltuned.errors import BackendError, TraceError
from rltuned.slurm.commands import Commands
from rltuned.text import first_flaw


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A pending job's constraint: a choice of features, and the one of them that a plan takes."""

    job: str
    address: str
    before: str
    planned: str

    def command(self, wanted: str) -> str:
        """For a shell."""
        return f"scontrol update JobId={self.address} Features='{wanted}'"

    def write(self, commands: Commands, *, undo: bool) -> tuple[bool, str]:
        """Exchange one constraint for the other; whether it was done, and what came of it.

        A job that does not wait any more, or whose constraint is neither of the two, is left alone.
        """
        expected, wanted = self.before, self.planned
        if undo:
            expected, wanted = wanted, expected
        try:
            shown = self._shown(commands)
            if shown not in {expected, wanted}:
                why = f"its constraint is {shown}" if shown else "it does not wait any more"
                return undo and not shown, f"left alone: {why}"
            if shown == expected:
                commands.ask("scontrol", "update", f"JobId={self.address}", f"Features={wanted}")
            now = self._shown(commands)
        except BackendError as error:
            return False, str(error)
        return now == wanted, f"constraint {now or 'not shown'}"

    def _shown(self, commands: Commands) -> str:
        """As squeue has it; empty = no such job waits."""
        answer = commands.call("squeue", "-h", "-a", "-tPD", f"-j{self.address}", "-o%f")
        return next(iter(answer.stdout.split()), "")


_FILE: Final = TypeAdapter(tuple[TypeChange, ...])


def note(file: Path, changes: Sequence[TypeChange]) -> None:
    """Keep what undoes the changes, before the first is made. Raises TraceError: it cannot."""
    try:
        with file.open("xb") as out:
            out.write(_FILE.dump_json(tuple(changes), indent=1) + b"\n")
    except OSError as error:
        raise TraceError(f"{file}: cannot be written: {error.strerror}") from None


def noted(file: Path) -> tuple[TypeChange, ...]:
    """What `note` has kept. Raises TraceError: names the file and what is wrong with it."""
    try:
        return _FILE.validate_json(file.read_bytes())
    except OSError as error:
        raise TraceError(f"{file}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise TraceError(f"{file}: {first_flaw(error)}") from None
