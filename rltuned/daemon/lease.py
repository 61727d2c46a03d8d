"""Of two daemons, one beside each slurmctld, the one that may write. ADR 0012 argues for it.

A small file in a folder that both hosts share is a row with a term, which says who holds the lease.
No clocks of two machines are compared: the holder renews by counting up, and the other takes over
only after it has itself watched the count stand still for the whole time. The holder stops writing
before that time is over by its own clocks, and reads the file again right before every batch. What
rltuned owns in Slurm lies beside it, for the one that takes over: see journal/handover.
"""

import fcntl
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rltuned.daemon.clock import SystemClock
from rltuned.errors import JournalError
from rltuned.journal.handover import Handover, publish, published
from rltuned.journal.journal import Journal
from rltuned.settings.keys import Rescue, Settings
from rltuned.slurm.fence import Readings, longest_s
from rltuned.trusted import flaw_of

FILE: Final = "rltuned.lease"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_BYTES: Final = 512
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"


class LeaseRecord(BaseModel):
    """The file. term: counts changes of hands. word: of the daemon that holds it. beat: counts
    renewals. released: it is given up.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    term: int = Field(ge=0)
    holder: str = Field(pattern=f"^(?:{_NAME})?$", max_length=255)
    word: str = Field("", max_length=32)
    beat: int = Field(ge=0)
    released: bool


def open_lease(settings: Settings | Rescue, clock: SystemClock) -> "Lease | None":
    """This daemon's side of the lease; None = there is no other. It holds for three intervals, and
    in any case longer than a command and two intervals.
    """
    ha, timeout_s, daemon = settings.ha, settings.slurm.timeout_s, settings.daemon
    if ha.lease_dir is None:
        return None
    host = ha.host or socket.gethostname().partition(".")[0]
    lease_s = max(3 * daemon.interval_s, timeout_s + 2 * daemon.interval_s)
    word = _word_of(daemon.state_dir)
    return Lease(ha.lease_dir, host, lease_s, timeout_s, clock.readings, word=word)


def _word_of(state_dir: Path) -> str:
    """The same for every process of one machine with this folder, until that is started again:
    in such a folder the journal's lock lets only one write. Without them it is of this process.
    """
    try:
        folder, boot = state_dir.stat(), BOOT_ID.read_text()
    except OSError:
        return secrets.token_hex(8)
    return sha256(f"{boot} {folder.st_dev} {folder.st_ino}".encode()).hexdigest()[:16]


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
        self.folder = folder
        self.host = host
        self._path = folder / FILE
        self._lease_s = lease_s
        self._margin_s = margin_s
        self._readings = readings
        self._word = word
        self._term: int | None = None  # of our turn, while we hold it
        self._renewed: tuple[float, ...] = ()
        self._watched: tuple[tuple[int, int], tuple[float, ...]] | None = None
        self._left: Handover | None = None  # what we published last

    def take(self, acting: str, journal: Journal, cluster: str) -> str:
        """Be the one that writes, if the slurmctld here acts; why it is not, empty = it is."""
        refused, given = self.claim(acting), self._of_another()
        took = given if given is not None and given.cluster == cluster else None
        if refused:
            if took is not None:
                journal.leave(cluster)
            return refused
        if took is not None:
            journal.unpack(took)
        self.publish(journal, cluster)
        return f"took over from {took.holder}; the next cycle writes" if took is not None else ""

    def publish(self, journal: Journal, cluster: str) -> None:
        """Leave for a successor what this daemon holds; to be done before anything is written."""
        if self._term is None:
            raise JournalError("this daemon does not hold the lease")
        held = journal.pack(cluster, self.host, self._term)
        if held == self._left:
            return
        # locked: one who is stopped right here must not overwrite its successor's file later
        if not self._publish(held):
            raise JournalError("the lease was taken by another daemon")
        self._left = held

    def before_restore(self, journal: Journal) -> str:
        """Let go of what another daemon has taken over, which gives it back; its host, empty = none
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
            self._publish(journal.pack(given.cluster, self.host, given.term))

    def _of_another(self) -> Handover | None:
        given = published(self.folder)
        return None if given is None or given.holder == self.host else given

    def _publish(self, held: Handover) -> bool:
        with self._locked() as file:
            still = _read(file).term == held.term
            if still:
                publish(self.folder, held)
        return still

    def claim(self, acting: str) -> str:
        """Take or renew the lease when the slurmctld here acts, else give it up; why nothing may be
        written, empty = it may.
        """
        try:
            with self._locked() as file:
                return self._claimed(file, acting)
        except JournalError as error:
            return str(error)

    def _claimed(self, file: int, acting: str) -> str:
        now, seen = self._readings(), _read(file)
        mark = (seen.term, seen.beat)
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
        term = seen.term if seen.term == self._term else seen.term + 1
        record = LeaseRecord(
            term=term, holder=self.host, word=self._word, beat=seen.beat + 1, released=False
        )
        _write(file, record)
        self._term, self._renewed = term, now
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
        if seen.released or seen.holder in {"", self.host}:
            return ""
        return f"not sent: {seen.holder} holds the lease"

    def close(self) -> None:
        """Give it up, so that the other need not wait. What fails here, time corrects."""
        if self._term is None:
            return
        try:
            with self._locked() as file:
                self._give_up(file, _read(file))
        except JournalError:
            self._term = None

    def _look(self) -> LeaseRecord | str:
        """What the file says, or why it cannot be read."""
        try:
            with self._locked() as file:
                return _read(file)
        except JournalError as error:
            return str(error)

    def _is_ours(self, seen: LeaseRecord) -> bool:
        return (seen.holder, seen.word) == (self.host, self._word)

    def _give_up(self, file: int, seen: LeaseRecord) -> None:
        if seen.term == self._term and self._is_ours(seen):
            _write(file, seen.model_copy(update={"released": True}))
        self._term = None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The open file, locked: on a network file system the lock also drops cached content."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                for at, status in (self._path, os.fstat(file)), (self.folder, self.folder.stat()):
                    flaw = flaw_of(at, status)
                    if flaw is not None:
                        raise PermissionError(0, flaw.reason)
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield file
            finally:
                os.close(file)
        except (OSError, ValidationError) as error:
            raise JournalError(f"{self._path}: {_reason(error)}") from None


def _read(file: int) -> LeaseRecord:
    """What it says; an empty file is a lease that was never held."""
    raw = os.pread(file, 2 * _BYTES, 0)
    if not raw:
        return LeaseRecord(term=0, holder="", word="", beat=0, released=True)
    return LeaseRecord.model_validate_json(raw)


def _write(file: int, record: LeaseRecord) -> None:
    # always as long, so that no truncation comes first: a full disk leaves the old record
    os.pwrite(file, record.model_dump_json().encode().ljust(_BYTES), 0)
    os.fsync(file)


def _reason(error: OSError | ValidationError) -> str:
    if isinstance(error, ValidationError):
        return "is not a lease; when no other daemon runs, remove it"
    if isinstance(error, BlockingIOError):
        return "the other daemon is at it; next cycle again"
    return error.strerror or str(error)
