"""What the last `rltuned report --keep` found, as a small file beside the journal.

Playing the past again costs minutes of processor time and needs the simulator, which the daemon
never imports. So a short-lived process of its own does it (rltuned-report.timer), and the daemon
reads the result: ADR 0015.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rltuned.errors import JournalError
from rltuned.trusted import flaw_of

FILE_NAME: Final = "report.json"
MAX_BYTES: Final = 64 * 1024
"""A larger file is not one of ours."""
AHEAD_S: Final = 300.0
"""So far a time of making may lie ahead of the clock."""

Seconds = Annotated[float, Field(ge=0.0, le=1e12)]
Moment = Annotated[float, Field(ge=0.0, le=1e11)]
Count = Annotated[int, Field(ge=0, le=10**12)]
Signed = Annotated[float, Field(ge=-1e12, le=1e12)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Interval(_Part):
    """A difference of mean waits in seconds, negative = rltuned's side waits less.

    low_s, high_s: its 95 % interval; None = too little for one.
    """

    mean_s: Signed
    low_s: Signed | None = None
    high_s: Signed | None = None

    @model_validator(mode="after")
    def _in_order(self) -> "Interval":
        if (self.low_s is None) != (self.high_s is None):
            raise ValueError("low_s and high_s need each other")
        if self.low_s is None or self.high_s is None:
            return self
        if not self.low_s <= self.mean_s <= self.high_s:
            raise ValueError("the mean lies outside its interval")
        return self


class Trial(_Part):
    """Treated against control. treated, control: jobs; difference: None = too little to say."""

    treated: Count
    control: Count
    difference: Interval | None = None


class Replay(_Part):
    """The record played again.

    Attributes:
        policy: whose order was played beside Slurm's own.
        order: what was played as Slurm's own order, and by whose weights, in words.
        jobs: that came within the record; their mean waits in the three worlds.
        ended, assumed: jobs whose run time was seen, and the others.
    """

    policy: str
    order: str
    jobs: Annotated[int, Field(ge=1)]
    ended: Count
    assumed: Count
    real_s: Seconds
    slurm_s: Seconds
    ours_s: Seconds
    difference: Interval


class Reckoning(_Part):
    """One report.

    Attributes:
        made_at, first, last: Unix seconds; first and last cycle that were read.
        took_s: how long it took.
        trial: None = there was no canary.
        replay: None = there is none, and not_replayed says why.
    """

    version: Literal[1] = 1
    made_at: Moment
    took_s: Seconds
    cluster: str
    first: Moment
    last: Moment
    cycles: Annotated[int, Field(ge=1)]
    trial: Trial | None
    replay: Replay | None
    not_replayed: str = ""


class State(StrEnum):
    """What there is to go by. Stale: shown, but older than the settings allow."""

    ABSENT = "absent"
    FRESH = "fresh"
    STALE = "stale"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class Kept:
    """The report that is kept. found: None = there is none to go by; why: of an unusable one."""

    state: State
    found: Reckoning | None = None
    why: str = ""


def keep(folder: Path, made: Reckoning) -> Path:
    """Put a report in the place of the last one: whole, or not at all; nobody else may read it.

    Raises:
        JournalError: it cannot be written.
    """
    path, new = folder / FILE_NAME, folder / f".{FILE_NAME}.new"
    try:
        new.unlink(missing_ok=True)  # of a run that was killed
        number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(number, "wb") as file:
            if os.geteuid() == 0:  # a person as root: the daemon's user is to read it
                owner = folder.stat()
                os.fchown(number, owner.st_uid, owner.st_gid)
            file.write(made.model_dump_json(indent=1).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise JournalError(f"{path}: cannot be written: {error.strerror}") from None
    return path


def read(path: Path) -> Reckoning:
    """The report in a file.

    Raises:
        FileNotFoundError: there is none.
        JournalError: it is not ours, others may write to it, or it is damaged; says which field.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise JournalError(f"{path}: cannot be opened: {error.strerror}") from None
    try:
        _check_owner(path, os.fstat(number))
        text = _all_of(number)
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror}") from None
    finally:
        os.close(number)
    if len(text) > MAX_BYTES:
        raise JournalError(f"{path}: is larger than {MAX_BYTES} bytes")
    try:
        return Reckoning.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise JournalError(f"{path}: {where or 'the whole'}: {first['msg']}") from None


def _all_of(number: int) -> bytes:
    """At most one byte more than allowed."""
    text = b""
    while len(text) <= MAX_BYTES and (piece := os.read(number, MAX_BYTES + 1 - len(text))):
        text += piece
    return text


def _check_owner(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise JournalError(f"{path}: is not a regular file")
    flaw = flaw_of(path, status)
    if flaw is not None:
        raise JournalError(str(flaw))


class Reader:
    """Looks for a new report, once per cycle.

    Args:
        folder: where it is kept.
        now: Unix seconds.
        stale_s: an older report is stale.
    """

    def __init__(self, folder: Path, now: Callable[[], float], stale_s: float) -> None:
        self._path = folder / FILE_NAME
        self._now = now
        self._stale_s = stale_s
        self._seen: tuple[int, ...] = ()
        self._found: Reckoning | None = None
        self._why = ""

    def look(self, cluster: str | None) -> Kept:
        """What is kept now.

        Args:
            cluster: that the daemon looks at; None = not known yet.
        """
        try:
            self._read_if_new()
        except FileNotFoundError:
            self._seen, self._found = (), None
            return Kept(State.ABSENT)
        found = self._found
        if found is None:
            return Kept(State.UNUSABLE, why=self._why)
        if cluster is not None and found.cluster != cluster:
            why = f"{self._path}: is of cluster {found.cluster[:60]!r}, not of {cluster!r}"
            return Kept(State.UNUSABLE, why=why)
        age_s = self._now() - found.made_at
        if age_s < -AHEAD_S:
            return Kept(State.UNUSABLE, why=f"{self._path}: was made {-age_s:.0f} s from now")
        return Kept(State.STALE if age_s > self._stale_s else State.FRESH, found)

    def _read_if_new(self) -> None:
        try:
            status = self._path.lstat()
            mark = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size,
                    status.st_mode, status.st_uid)  # fmt: skip
            if mark == self._seen:
                return
            self._found, self._why = read(self._path), ""
            self._seen = mark
        except FileNotFoundError:
            raise
        except JournalError as error:
            self._found, self._why, self._seen = None, str(error), mark
        except OSError as error:
            self._found, self._seen = None, ()
            self._why = f"{self._path}: cannot be looked at: {error.strerror}"
