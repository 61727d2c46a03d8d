"""The seat of the one daemon that writes: the lease, who is beside the acting slurmctld, and what
goes from hand to hand with it.

All but `open_lease` raise JournalError when lease, handover or journal cannot be used: then it is
not known what rltuned wrote, or nothing can be handed over, and nothing is written. A BackendError
of `take`: it is not known which slurmctld acts.
"""

import secrets
import socket
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

from rltuned.daemon.clock import SystemClock
from rltuned.daemon.ha.lease import Lease
from rltuned.errors import JournalError
from rltuned.journal.handover import Handover, publish, published
from rltuned.journal.journal import Journal
from rltuned.settings.service import HaKeys

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def open_lease(ha: HaKeys, timeout_s: float, clock: SystemClock, state_dir: Path) -> Lease | None:
    """This daemon's side of the lease; None = there is no other. timeout_s: of one command."""
    if ha.lease_dir is None:
        return None
    host = ha.host or socket.gethostname().partition(".")[0]
    word = _word_of(state_dir)
    return Lease(ha.lease_dir, host, ha.lease_s, timeout_s, clock.readings, word=word)


def _word_of(state_dir: Path) -> str:
    """The same for every process of one machine with this folder, until that is started again:
    in such a folder the journal's lock lets only one write. Without them it is of this process.
    """
    try:
        folder, boot = state_dir.stat(), BOOT_ID.read_text()
    except OSError:
        return secrets.token_hex(8)
    return sha256(f"{boot} {folder.st_dev} {folder.st_ino}".encode()).hexdigest()[:16]


class Seat:
    """One daemon's claim to be the one that writes. acting: host of the acting slurmctld."""

    def __init__(self, lease: Lease, acting: Callable[[], str]) -> None:
        self._folder = lease.folder
        self._lease = lease
        self._acting = acting
        self._left: Handover | None = None  # what we published last

    def take(self, journal: Journal, cluster: str) -> str:
        """Be the one that writes, if that is right now; why it is not, empty = it is."""
        refused = self._lease.claim(self._acting())
        took = take_in(self._folder, self._lease.host, journal, cluster, own=not refused)
        if refused:
            return refused
        self.publish(journal, cluster)
        return f"took over from {took}; the next cycle writes" if took else ""

    def publish(self, journal: Journal, cluster: str) -> None:
        """Leave for a successor what this daemon holds; to be done before anything is written."""
        term = self._lease.term
        if term is None:
            raise JournalError("this daemon does not hold the lease")
        held = journal.pack(cluster, self._lease.host, term)
        if held == self._left:
            return
        # locked: one who is stopped right here must not overwrite its successor's file later
        with self._lease.turn(term) as still:
            if not still:
                raise JournalError("the lease was taken by another daemon")
            publish(self._folder, held)
        self._left = held


def take_in(folder: Path, host: str, journal: Journal, cluster: str, *, own: bool) -> str:
    """Bring a journal into line with a handover; its host, empty = none. own: it is taken over."""
    given = published(folder)
    if given is None or given.holder == host or given.cluster != cluster:
        return ""
    if not own:
        journal.leave(cluster)
        return ""
    journal.unpack(given)
    return given.holder


def before_restore(folder: Path, host: str, journal: Journal) -> str:
    """Let go of what another daemon has taken over, which gives it back; its host, empty = none."""
    given = published(folder)
    if given is None or given.holder == host:
        return ""
    journal.leave(given.cluster)
    return given.holder


def after_restore(folder: Path, lease: Lease, journal: Journal) -> None:
    """Leave for a successor that all has been restored."""
    given = published(folder)
    if given is None or given.holder != lease.host:
        return
    with lease.turn(given.term) as still:
        if still:
            publish(folder, journal.pack(given.cluster, lease.host, given.term))
