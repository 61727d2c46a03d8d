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
        return f"scontrol update JobId={self.address} Features='{wanted}'"


def write_all(
    changes: Sequence[TypeChange], commands: Commands, *, undo: bool
) -> list[tuple[str, bool, str]]:
    """Exchange the constraints; of each job, whether it was done, and what came of it.

    A job that does not wait any more, or whose constraint is neither of the two, is left alone.
    Raises BackendError: squeue does not answer. Before a write nothing has been done; after it, the
    same call again finds what is done.
    """
    shown, left = _constraints(commands), dict[str, str]()
    for one in changes:
        expected, wanted = (one.planned, one.before) if undo else (one.before, one.planned)
        now = shown.get(one.address, "")
        if now not in {expected, wanted}:
            why = f"its constraint is {now}" if now else "it does not wait any more"
            left[one.job] = f"left alone: {why}"
        elif now == expected:
            try:
                commands.ask("scontrol", "update", f"JobId={one.address}", f"Features={wanted}")
            except BackendError as error:
                left[one.job] = str(error)
    shown = _constraints(commands) if len(left) < len(changes) else shown
    found = []
    for one in changes:
        wanted, now = one.before if undo else one.planned, shown.get(one.address, "")
        words = left.get(one.job, f"constraint {now or 'not shown'}")
        # a job that has started needs no undo
        found.append((one.job, now == wanted or (undo and not now), words))
    return found


def _constraints(commands: Commands) -> dict[str, str]:
    """As squeue has them, of the jobs that wait. Without -j: it fails for one that is gone."""
    answer = commands.ask("squeue", "-h", "-a", "-tPD", "-o", "%A %f")
    rows = (line.split(maxsplit=1) for line in answer.stdout.splitlines())
    return {row[0]: row[1].strip() for row in rows if len(row) > 1}


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
