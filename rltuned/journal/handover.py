"""What one daemon holds of Slurm's jobs, for the one that takes over from it on another host.

Journals are local: SQLite is not safe on a file system that two hosts share. So the daemon that
holds the lease writes what its journal owns into a file beside the lease, before it writes to
Slurm; the one that takes the lease puts that into its own journal first. A change thus has one
owner at every time, and `rltuned restore` of that one gives it back.
"""

import json
import sqlite3
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from rltuned.domain.fields import OWNED
from rltuned.durable import write_whole
from rltuned.errors import JournalError
from rltuned.journal import named_values, owned
from rltuned.trusted import read_trusted

FILE: Final = "rltuned.handover"
GONE_JOBS: Final = 1000
"""So many rows of jobs that have left the queue go along, in case they are requeued."""
_MOST_BYTES: Final = 256 * 1024 * 1024


_STRICT: Final = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class StateRow(BaseModel):
    """What must outlive a process, such as an open circuit breaker; value is JSON."""

    model_config = _STRICT

    name: str
    value: str
    at: float


class Handover(BaseModel):
    """Everything that changes hands, and whose it was. owned: rows of that table, whole."""

    model_config = _STRICT

    format: Literal[2] = 2
    holder: str
    term: int = Field(ge=1)
    cluster: str
    owned: tuple[dict[str, Any], ...] = ()
    states: tuple[StateRow, ...] = ()

    @field_validator("owned")
    @classmethod
    def _rows_are_whole(cls, found: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for row in map(_row_of, found):
            kind = OWNED.get(row.field)
            if kind is None:
                raise ValueError(f"{row.field!r} is no field of this release")
            of_kind = str if kind.words else int
            values = [v for one in row.epochs for v in (one.original, *(w[1] for w in one.writes))]
            if row.job_id <= 0 or not all(isinstance(v, of_kind) for v in values):
                raise ValueError(f"{row.field} has values of another kind")
        return found


_ROW: Final = TypeAdapter(owned.OwnedRow)


def _row_of(found: dict[str, Any]) -> owned.OwnedRow:
    """A row of the table. Raises ValueError: it is none."""
    lists = {name: json.loads(str(found.get(name))) for name in ("writes", "past")}
    return _ROW.validate_python({**found, **lists})


def pack(db: sqlite3.Connection, cluster: str, holder: str, term: int) -> Handover:
    """What this journal holds of a cluster."""
    names = ", ".join(owned.COLUMNS)
    rows = db.execute(
        f"SELECT {names} FROM owned WHERE cluster = :cluster AND writes != '[]' AND (NOT gone"  # noqa: S608 - fixed names
        " OR at >= ifnull((SELECT at FROM owned WHERE cluster = :cluster AND gone"
        " ORDER BY at DESC LIMIT 1 OFFSET :gone), 0.0)) ORDER BY job_id, submitted_at, field",
        {"cluster": cluster, "gone": GONE_JOBS},
    )
    return Handover.model_construct(
        format=2,
        holder=holder,
        term=term,
        cluster=cluster,
        owned=tuple(dict(zip(owned.COLUMNS, row, strict=True)) for row in rows),
        states=tuple(StateRow(name=n, value=v, at=at) for n, v, at in named_values.portable(db)),
    )


def unpack(db: sqlite3.Connection, given: Handover) -> None:
    """Take over what another journal held; what this one held of the cluster was its already."""
    owned.forget(db, given.cluster)
    for row in given.owned:
        owned.take(db, _row_of(row), f"from {given.holder}")
    for state in given.states:
        if state.name not in named_values.OWN:
            named_values.put_text(db, state.name, state.value, state.at)


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
