"""What one daemon holds of Slurm's jobs, for the one that takes over from it on another host.

Journals are local: SQLite is not safe on a file system that two hosts share. So the daemon that
holds the lease writes what its journal owns into a file beside the lease, before it writes to
Slurm; the one that takes the lease puts that into its own journal first. A change thus has one
owner at every time, and `rltuned restore` of that one gives it back.
"""

import sqlite3
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rltuned.domain.fields import OWNED, STORED
from rltuned.durable import write_whole
from rltuned.errors import JournalError
from rltuned.journal import changes, named_values
from rltuned.trusted import read_trusted

FILE: Final = "rltuned.handover"
GONE_JOBS: Final = 1000
"""Of so many jobs that have left the queue the rows go along, in case they are requeued."""
_MOST_BYTES: Final = 256 * 1024 * 1024
_MOVED: Final = "handed over"


_STRICT: Final = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ChangeRow(BaseModel):
    """One row of the journal's table of changes; `gone` ones matter when their job is requeued."""

    model_config = _STRICT

    at: float
    job_id: int = Field(gt=0)
    submitted_at: float
    address: str
    field: str
    old: int | str
    new: int | str | None
    nice: int | None = None
    rest: int | None = None
    newest_id: int | None = None
    result: str | None
    detail: str
    finished_at: float | None
    closed: Literal["gone"] | None

    @model_validator(mode="after")
    def _values_are_of_the_field(self) -> Self:
        if self.field not in STORED:
            raise ValueError(f"{self.field!r} is no field of this release")
        kind = int if self.field in changes.NUMBERS else str
        is_release = self.field not in OWNED
        if not isinstance(self.old, kind) or not (is_release or isinstance(self.new, kind)):
            raise ValueError(f"{self.field} has values of another kind")
        return self


_COLUMNS: Final = tuple(ChangeRow.model_fields)
"""Of the table, all that is handed over."""


class StateRow(BaseModel):
    """What must outlive a process, such as an open circuit breaker; value is JSON."""

    model_config = _STRICT

    name: str
    value: str
    at: float


class Handover(BaseModel):
    """Everything that changes hands, and whose it was: numbers in writes, words in flags."""

    model_config = _STRICT

    format: Literal[1] = 1
    holder: str
    term: int = Field(ge=1)
    cluster: str
    writes: tuple[ChangeRow, ...] = ()
    flags: tuple[ChangeRow, ...] = ()
    states: tuple[StateRow, ...] = ()


def pack(db: sqlite3.Connection, cluster: str, holder: str, term: int) -> Handover:
    """What this journal holds of a cluster."""
    rows = _held(db, cluster)
    return Handover(
        holder=holder,
        term=term,
        cluster=cluster,
        writes=tuple(row for row in rows if row.field in changes.NUMBERS),
        flags=tuple(row for row in rows if row.field not in changes.NUMBERS),
        states=tuple(StateRow(name=n, value=v, at=at) for n, v, at in named_values.portable(db)),
    )


def unpack(db: sqlite3.Connection, given: Handover, cycle: int) -> None:
    """Take over what another journal held; what this one held of the cluster was its already."""
    leave(db, given.cluster)
    for row in (*given.flags, *given.writes):
        detail = f"from {given.holder}: {row.detail}".removesuffix(": ")
        known = {"cycle": cycle, "cluster": given.cluster, "detail": detail}
        changes.put(db, row.model_dump() | known)
    for state in given.states:
        if state.name not in named_values.OWN:
            named_values.put_text(db, state.name, state.value, state.at)


def leave(db: sqlite3.Connection, cluster: str) -> None:
    """Own nothing of a cluster any more: another daemon has taken it over."""
    db.execute(
        "UPDATE changes SET closed = ? WHERE cluster = ? AND (closed IS NULL OR closed = 'gone')",
        (_MOVED, cluster),
    )


def publish(folder: Path, given: Handover) -> None:
    """Put it beside the lease, durably. Raises JournalError: nothing may be written then."""
    path = folder / FILE
    try:
        write_whole(path, given.model_dump_json().encode())
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from None


def published(folder: Path) -> Handover | None:
    """What the last holder left there; None = nothing was written. Raises JournalError."""
    path = folder / FILE
    try:
        return Handover.model_validate_json(read_trusted(path, _MOST_BYTES)[0])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise JournalError(f"{path}: is not a handover: {error.errors()[0]['msg']}") from None


def _held(db: sqlite3.Connection, cluster: str) -> list[ChangeRow]:
    rows = db.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM changes WHERE cluster = :cluster"  # noqa: S608 - fixed names
        " AND (closed IS NULL OR closed = 'gone' AND (job_id, submitted_at) IN"
        " (SELECT job_id, submitted_at FROM changes WHERE cluster = :cluster AND closed = 'gone'"
        " GROUP BY job_id, submitted_at ORDER BY max(id) DESC LIMIT :jobs)) ORDER BY id",
        {"cluster": cluster, "jobs": GONE_JOBS},
    ).fetchall()
    return [ChangeRow.model_validate(dict(zip(_COLUMNS, row, strict=True))) for row in rows]
