"""Of two daemons, one beside each slurmctld, the one that may write. ADR 0012 argues for it.

A small file in a folder that both hosts share is a row with a term, which says who holds the lease.
No clocks of two machines are compared: the holder renews by counting up, and the other takes over
only after it has itself watched the count stand still for the whole time. The holder stops writing
before that time is over by its own clocks, and reads the file again right before every batch.

Journals are local: SQLite is not safe on a file system that two hosts share. So the holder writes
what its journal owns into a file beside the lease, before it writes to Slurm; the one that takes
the lease puts that into its own journal first. A change thus has one owner at every time, and
`rltuned restore` of that one restores it.
"""

import fcntl
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rltuned.daemon.clock import SystemClock
from rltuned.errors import JournalError
from rltuned.files import write_whole
from rltuned.journal.journal import Journal
from rltuned.settings.keys import Rescue, Settings
from rltuned.slurm.run import Readings, longest_s
from rltuned.trusted import flaw_of, read_trusted

FILE: Final = "rltuned.lease"
HANDOVER_FILE: Final = "rltuned.handover"
GONE_JOBS: Final = 1000
"""So many rows of jobs that have left the queue go along, in case they are requeued."""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_BYTES: Final = 512
_MOST_BYTES: Final = 256 * 1024 * 1024
_STRICT: Final = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class LeaseRecord(BaseModel):
    """The file. term: counts changes of hands. word: of the daemon that holds it. beat: counts
    renewals. released: it is given up.
    """

    model_config = _STRICT

    term: int = Field(ge=0)
    holder: str
    word: str = ""
    beat: int = Field(ge=0)
    released: bool


class Handover(BaseModel):
    """Everything that changes hands, and whose it was. owned: rows of that table, by column.
    states: what the journal remembers, such as an open circuit breaker: name, JSON text, time.
    """

    model_config = _STRICT

    holder: str
    term: int = Field(ge=1)
    cluster: str
    owned: tuple[dict[str, Any], ...] = ()
    states: tuple[tuple[str, str, float], ...] = ()


def published(folder: Path) -> Handover | None:
    """What the last holder left there; None = nothing was written. Raises JournalError."""
    path = folder / HANDOVER_FILE
    try:
        return Handover.model_validate_json(read_trusted(path, _MOST_BYTES)[0])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise JournalError(f"{path}: is not a handover: {error.errors()[0]['msg']}") from None


def pack(journal: Journal, cluster: str, holder: str, term: int) -> Handover:
    """What a journal holds of a cluster, for another daemon to go on with."""
    rows, states = journal.pack(cluster, GONE_JOBS)
    return Handover(holder=holder, term=term, cluster=cluster, owned=rows, states=states)


def unpack(journal: Journal, given: Handover) -> None:
    """Go on with what another daemon held. Raises JournalError."""
    journal.unpack(given.cluster, given.owned, given.states)


def open_lease(settings: Settings | Rescue, clock: SystemClock) -> "Lease | None":
    """This daemon's side of the lease; None = there is no other. It holds for three intervals, and
    in any case longer than a command and two intervals.
    """
    ha, timeout_s, daemon = settings.ha, settings.slurm.timeout_s, settings.daemon
    if ha.lease_dir is None:
        return None
    host = ha.host or socket.gethostname().partition(".")[0]
    lease_s = max(3 * daemon.interval_s, timeout_s + 2 * daemon.interval_s)
    # the same for every process of one machine with this folder, until that is started again: in
    # such a folder the journal's lock lets only one write
    word = secrets.token_hex(8)
    with suppress(OSError):
        folder, boot = daemon.state_dir.stat(), BOOT_ID.read_text()
        word = sha256(f"{boot} {folder.st_dev} {folder.st_ino}".encode()).hexdigest()[:16]
    return Lease(ha.lease_dir, host, lease_s, timeout_s, clock.readings, word=word)


class Lease:
    """One daemon's side of the lease. host: this machine's name, as SlurmctldHost has it. lease_s:
    how long a renewal is good. margin_s: so long before its end writing stops: what one batch may
    take. readings: see Fence; the first two must never be set. word: of this daemon, as two
    settings files may name the same host.

    What takes a journal raises JournalError when lease, handover or journal cannot be used: then it
    is not known what rltuned wrote, or nothing can be handed over, and nothing is written.
    """

    def __init__(
        self,
        folder: Path,
        host: str,
        lease_s: float,
        margin_s: float,
        readings: Readings,
        *,
        word: str,
    ) -> None:
        self.folder, self.host = folder, host
        self._path, self._word = folder / FILE, word
        self._lease_s, self._margin_s, self._readings = lease_s, margin_s, readings
        self._term: int | None = None  # of our turn, while we hold it
        self._renewed: tuple[float, ...] = ()
        self._watched: tuple[tuple[int, int], tuple[float, ...]] | None = None
        self._left: Handover | None = None  # what we published last

    # -- what changes hands -----------------------------------------------------------------------

    def take(self, acting: str, journal: Journal, cluster: str) -> str:
        """Be the one that writes, if the slurmctld here acts; why it is not, empty = it is."""
        refused, given = self.claim(acting), self._of_another()
        took = given if given is not None and given.cluster == cluster else None
        if refused:
            if took is not None:
                journal.leave(cluster)
            return refused
        if took is not None:
            unpack(journal, took)
        self.publish(journal, cluster)
        return f"took over from {took.holder}; the next cycle writes" if took is not None else ""

    def publish(self, journal: Journal, cluster: str) -> None:
        """Leave for a successor what this daemon holds; to be done before anything is written."""
        if self._term is None:
            raise JournalError("this daemon does not hold the lease")
        held = pack(journal, cluster, self.host, self._term)
        if held != self._left:
            self._publish(held)
            self._left = held

    def before_restore(self, journal: Journal) -> str:
        """Let go of what another daemon has taken over, which restores it; its host, empty = none
        has.
        """
        given = self._of_another()
        if given is None:
            return ""
        journal.leave(given.cluster)
        return given.holder

    def after_restore(self, journal: Journal) -> None:
        """Leave for a successor that all has been restored."""
        given = published(self.folder)
        if given is not None and given.holder == self.host:
            with suppress(_TakenError):
                self._publish(pack(journal, given.cluster, self.host, given.term))

    def _of_another(self) -> Handover | None:
        given = published(self.folder)
        return None if given is None or given.holder == self.host else given

    def _publish(self, held: Handover) -> None:
        """Put it beside the lease, durably, and locked: one who is stopped right here must not
        overwrite its successor's file later.
        """
        path = self.folder / HANDOVER_FILE
        with self._locked() as (_, seen):
            if seen.term != held.term:
                raise _TakenError("the lease was taken by another daemon")
            write_whole(path, held.model_dump_json().encode())

    # -- who may write ----------------------------------------------------------------------------

    def claim(self, acting: str) -> str:
        """Take or renew the lease when the slurmctld here acts, else give it up; why nothing may be
        written, empty = it may.
        """
        try:
            with self._locked() as (file, seen):
                return self._claimed(file, seen, acting)
        except JournalError as error:
            return str(error)

    def _claimed(self, file: int, seen: LeaseRecord, acting: str) -> str:
        now, mark = self._readings(), (seen.term, seen.beat)
        if self._watched is None or self._watched[0] != mark:
            self._watched = (mark, now)
        if acting != self.host:
            self._give_up(file, seen)
            return f"the slurmctld on {acting} acts, and this is {self.host}"
        # what has gone by for certain: the wall clock, which people set, left out
        stood_s = min(b - a for a, b in zip(self._watched[1][:2], now[:2], strict=True))
        is_free = not seen.holder or seen.released or stood_s > self._lease_s
        if not (is_free or self._is_ours(seen)):
            self._term = None
            another = " (another daemon of this name)" if seen.holder == self.host else ""
            return f"{seen.holder}{another} holds the lease"
        self._term, self._renewed = seen.term + (seen.term != self._term), now
        _write(
            file,
            LeaseRecord(
                term=self._term, holder=self.host, word=self._word, beat=seen.beat + 1,
                released=False,
            ),
        )  # fmt: skip
        return ""

    def trouble(self) -> str:
        """Why the file cannot be used; empty = it can. Changes nothing in it."""
        found = self._look()
        return found if isinstance(found, str) else ""

    def lost(self) -> str:
        """Why a batch may not be sent now; empty = this daemon holds the lease."""
        if self._term is None:
            return "not sent: this daemon does not hold the lease"
        age_s = longest_s(self._renewed, self._readings())
        if age_s > self._lease_s - self._margin_s:
            return f"not sent: the lease was renewed {age_s:.0f} s ago"
        seen = self._look()
        if isinstance(seen, str):
            return f"not sent: {seen}"
        if not self._is_ours(seen) or seen.term != self._term or seen.released:
            return f"not sent: {seen.holder} has taken the lease"
        return ""

    def elsewhere(self) -> str:
        """Why a restore, which never takes the lease, may not send a batch; empty = it may."""
        seen = self._look()
        if isinstance(seen, str):
            return f"not sent: {seen}"
        is_free = seen.released or seen.holder in {"", self.host}
        return "" if is_free else f"not sent: {seen.holder} holds the lease"

    def close(self) -> None:
        """Give it up, so that the other need not wait. What fails here, time corrects."""
        if self._term is not None:
            with suppress(JournalError), self._locked() as (file, seen):
                self._give_up(file, seen)
            self._term = None

    def _look(self) -> LeaseRecord | str:
        """What the file says, or why it cannot be read."""
        try:
            with self._locked() as (_, seen):
                return seen
        except JournalError as error:
            return str(error)

    def _is_ours(self, seen: LeaseRecord) -> bool:
        return (seen.holder, seen.word) == (self.host, self._word)

    def _give_up(self, file: int, seen: LeaseRecord) -> None:
        if seen.term == self._term and self._is_ours(seen):
            _write(file, seen.model_copy(update={"released": True}))
        self._term = None

    @contextmanager
    def _locked(self) -> Iterator[tuple[int, LeaseRecord]]:
        """The open file, locked, and what it says: an empty file is a lease that was never held. On
        a network file system the lock also drops cached content.
        """
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                for at, status in (self._path, os.fstat(file)), (self.folder, self.folder.stat()):
                    if (flaw := flaw_of(at, status)) is not None:
                        raise PermissionError(0, flaw.reason)
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                never = b'{"term": 0, "holder": "", "beat": 0, "released": true}'
                yield file, LeaseRecord.model_validate_json(os.pread(file, 2 * _BYTES, 0) or never)
            finally:
                os.close(file)
        except BlockingIOError:
            why = "the other daemon is at it; next cycle again"
            raise JournalError(f"{self._path}: {why}") from None
        except ValidationError:
            why = "is not a lease; when no other daemon runs, remove it"
            raise JournalError(f"{self._path}: {why}") from None
        except OSError as error:
            place = error.filename or self._path
            raise JournalError(f"{place}: {error.strerror or error}") from None


class _TakenError(JournalError):
    """Another daemon has taken the lease."""


def _write(file: int, record: LeaseRecord) -> None:
    # always as long, so that no truncation comes first: a full disk leaves the old record
    os.pwrite(file, record.model_dump_json().encode().ljust(_BYTES), 0)
    os.fsync(file)
