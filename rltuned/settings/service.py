"""The tables that the daemon as a program reads: its loop, Slurm's commands, journal, port, log."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    ConfigDict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from rltuned.journal.snapshots import Keeping
from rltuned.settings.key import (
    FilePath,
    FolderPath,
    Keys,
    Names,
    OptionalFolder,
    OptionalPath,
    key,
)
from rltuned.slurm.run import SlurmCli
from rltuned.slurm.sdiag import Bounds

HTTP_PORT = 9841
"""Where /metrics listens; outside the ports that Slurm and the usual exporters take."""
_RENEWALS = 2
"""So many intervals a lease must hold at least, so that one late cycle does not lose it."""


class DaemonKeys(Keys):
    """The loop: when it runs and what it may do."""

    interval_s: float = key(60.0, "seconds", ge=1.0, le=3600.0)
    """From the start of one cycle to the start of the next. Slurm's own priorities move about as
    often; a shorter interval costs slurmctld more than it helps."""
    max_backoff_s: float = key(600.0, "seconds", ge=1.0, le=86400.0)
    """Longest pause between two tries while Slurm does not answer; it doubles up to this."""
    state_dir: FolderPath = Path("/var/lib/rltuned")
    """Folder of the journal. Without a writable journal nothing is written to Slurm, because
    nothing could be restored."""
    pause_file: FilePath = Path("/run/rltuned/PAUSE")
    """While this file exists nothing is written. It is checked right before every write. The
    socket over which plan, explain and status ask the daemon lies in the same folder."""
    max_snapshot_age_s: float = key(120.0, "seconds", ge=1.0, le=3600.0)
    """Nothing is written from an older snapshot than this: a daemon that was stopped must read the
    queue again first."""

    @property
    def socket(self) -> Path:
        """Where the daemon answers users of its machine."""
        return self.pause_file.with_name("socket")


class SlurmKeys(Keys):
    """How Slurm's commands are called."""

    bin_dir: OptionalPath = None
    """Folder of squeue, sinfo, sprio and scontrol; absent = found through PATH."""
    conf: OptionalPath = None
    """slurm.conf to use; absent = where Slurm was built to find it. SLURM_CONF of the environment
    is not used."""
    timeout_s: float = key(20.0, "seconds", ge=1.0, le=600.0)
    """Longest time that one command may take before it is ended."""
    reader: Literal["text", "pyslurm"] = "text"
    """The reader of jobs. text = squeue. pyslurm = what a job is and how it stands comes from
    pyslurm, and what it asks for from squeue; if pyslurm is missing or of another release than
    slurmctld, squeue replaces it."""
    pyslurm_python: OptionalPath = None
    """Python interpreter that has pyslurm; absent = the one that runs rltuned."""

    def pyslurm(self) -> Path | None:
        """The interpreter to read jobs with; None = they are read as text."""
        if self.reader == "text":
            return None
        return self.pyslurm_python or Path(sys.executable)

    def cli(self) -> SlurmCli:
        return SlurmCli(self.bin_dir, self.conf, self.timeout_s)


class LoadKeys(Keys):
    """When slurmctld counts as too busy. A bound of 0 does not count."""

    enabled: bool = True
    """Ask sdiag before every cycle (one RPC). false = never, and never back off."""
    max_server_threads: int = key(100, ge=0, le=256)
    """RPCs that slurmctld serves at this moment; its own bound is 256."""
    max_agent_queue: int = key(500, "messages", ge=0)
    """Messages to nodes that wait to be sent."""
    max_dbd_queue: int = key(5000, "messages", ge=0)
    """Messages to slurmdbd that wait to be sent; in write_mode = priority every change adds one.
    Slurm drops job records beyond MaxDBDMsgs (10000 and more)."""
    max_rpc_s: float = key(0.5, "seconds", ge=0.0)
    """Mean time of the RPCs of all users since the last cycle."""
    max_backfill_s: float = key(120.0, "seconds", ge=0.0)
    """Duration of the last backfill cycle. Set it above what is usual on your site."""

    def bounds(self) -> Bounds:
        return Bounds(
            self.max_server_threads,
            self.max_agent_queue,
            self.max_dbd_queue,
            self.max_rpc_s,
            self.max_backfill_s,
        )


class HaKeys(Keys):
    """A second daemon beside the backup slurmctld. Read at start only."""

    lease_dir: OptionalFolder = None
    """Folder that the hosts of all slurmctld share and where rltuned may write: not
    StateSaveLocation itself, but a place beside it. Only the daemon beside the acting slurmctld
    writes, while it holds the lease there. Absent = this is the only daemon."""
    host: str = key("", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")
    """This machine's name as SlurmctldHost has it; empty = its short host name."""
    lease_s: float = key(180.0, "seconds", ge=1.0, le=3600.0)
    """How long a lease holds after a cycle; the other daemon waits as long before it takes it."""


class JournalKeys(Keys):
    """How much of the past is kept. Read at start only."""

    keep_days: float = key(90.0, "days", ge=1.0, le=3650.0)
    """How long cycles, snapshots, plans and finished changes are kept."""
    max_mib: int = key(1024, "MiB", ge=16, le=1_048_576)
    """Beyond this the oldest snapshots and plans are removed, then the oldest finished changes. A
    cycle with 10,000 pending jobs takes half a MiB to one."""

    def keeping(self) -> Keeping:
        return Keeping(self.keep_days, self.max_mib)


class HttpKeys(Keys):
    """Metrics and health for Prometheus. Read at start only."""

    enabled: bool = True
    """Serve /metrics, /healthz, /readyz and the status page at /."""
    address: str = key("127.0.0.1", pattern=r"^[0-9A-Za-z:.%_-]{1,253}$")
    """Address to listen on. There is no login and no TLS: open it only to the network of your
    Prometheus, and put a proxy in front of it for others."""
    port: int = key(HTTP_PORT, ge=0, le=65535)
    """TCP port; 0 = any free one."""
    jobs: bool = False
    """Show single jobs on the status page: number, partition, GPUs, place and priority before and
    after. Every user who reaches the port sees them, also where Slurm's PrivateData hides jobs."""
    users: bool = False
    """Also show the users of these jobs."""


class LogKeys(Keys):
    """Log lines, on standard error. Read at start only."""

    format: Literal["json", "console"] = "console"
    """json: one object per line, for collectors. console: for people."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines below this level are dropped."""


class RescuedScope(Keys):
    """The partitions that the daemon manages; empty = all."""

    model_config = ConfigDict(extra="ignore")

    partitions: Names = key([])


def _or_all(table: object, check: ValidatorFunctionWrapHandler) -> RescuedScope:
    """Also where the table has an error."""
    try:
        found: RescuedScope = check(table)
    except ValidationError:
        return RescuedScope()
    return found


class Rescue(Keys):
    """What `rltuned restore` reads: where the journal lies, how Slurm is called, and the scope.

    An error in any other table stops the daemon, and must not stop the command that takes the
    daemon's changes back.
    """

    model_config = ConfigDict(extra="ignore")

    daemon: DaemonKeys = DaemonKeys()
    slurm: SlurmKeys = SlurmKeys()
    ha: HaKeys = HaKeys()
    journal: JournalKeys = JournalKeys()
    scope: Annotated[RescuedScope, WrapValidator(_or_all)] = RescuedScope()


def check_lease(ha: HaKeys, interval_s: float, timeout_s: float) -> None:
    """Refuse a lease of less than two intervals, or shorter than a command. Raises ValueError."""
    if ha.lease_dir is None:
        return
    if ha.lease_s < _RENEWALS * interval_s:
        raise ValueError(
            f"ha.lease_s = {ha.lease_s:g} is less than twice daemon.interval_s = {interval_s:g}"
        )
    if ha.lease_s <= timeout_s:
        raise ValueError(
            f"ha.lease_s = {ha.lease_s:g} must be more than slurm.timeout_s = {timeout_s:g}"
        )
