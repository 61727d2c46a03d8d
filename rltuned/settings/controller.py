"""The keys about slurmctld: how it is asked, how much of its time we take, which one is ours."""

import sys
from pathlib import Path
from typing import Literal

from rltuned.settings.key import AbsolutePath, Keys, OptionalPath, key
from rltuned.slurm.commands import SlurmCli
from rltuned.slurm.sdiag import Bounds

_RENEWALS = 2
"""So many intervals a lease must hold at least, so that one late cycle does not lose it."""


class SlurmKeys(Keys):
    """How Slurm's commands are called."""

    bin_dir: AbsolutePath = key(
        None,
        "",
        "Folder of squeue, sinfo, sprio and scontrol; absent = found through PATH.",
    )
    conf: AbsolutePath = key(
        None,
        "",
        "slurm.conf to use; absent = where Slurm was built to look. SLURM_CONF of the environment "
        "is not used, so that a stray export cannot point the daemon at another cluster.",
    )
    timeout_s: float = key(
        SlurmCli().timeout_s,
        "seconds",
        "Longest time that one command may take before it is ended; a controller that is away "
        "makes them hang.",
        ge=1.0,
        le=600.0,
    )
    chunk: int = key(
        SlurmCli().chunk,
        "jobs",
        "Most updates in one scontrol. Small, because each of them waits about ten seconds "
        "when the controller dies.",
        ge=1,
        le=SlurmCli().chunk,
    )
    reader: Literal["text", "pyslurm"] = key(
        "text",
        "",
        "The reader of jobs. text = squeue. pyslurm = what a job is and how it stands comes from "
        "pyslurm, in a process of its own, and what it asks for from squeue; if pyslurm is missing "
        "or of another release than slurmctld, squeue replaces it. Nodes, site factors and every "
        "write use Slurm's commands in both cases.",
    )
    pyslurm_python: AbsolutePath = key(
        None,
        "",
        "Python interpreter that has pyslurm; absent = the one that runs rltuned.",
    )

    def pyslurm(self) -> Path | None:
        """The interpreter to read jobs with; None = they are read as text."""
        if self.reader == "text":
            return None
        return self.pyslurm_python or Path(sys.executable)

    def cli(self) -> SlurmCli:
        return SlurmCli(self.bin_dir, self.conf, self.timeout_s, self.chunk)


class LoadKeys(Keys):
    """When slurmctld is left alone."""

    enabled: bool = key(
        True, "", "Ask sdiag before every cycle (one RPC). false = never, and never back off."
    )
    max_server_threads: int = key(
        Bounds().server_threads,
        "",
        "RPCs that slurmctld serves at this moment; its own bound is 256. 0 = does not count.",
        ge=0,
        le=256,
    )
    max_agent_queue: int = key(
        Bounds().agent_queue,
        "messages",
        "Messages to nodes that wait to be sent. 0 = does not count.",
        ge=0,
    )
    max_dbd_queue: int = key(
        Bounds().dbd_queue,
        "messages",
        "Messages to slurmdbd that wait to be sent; in write_mode = priority every change adds "
        "one. Slurm drops job records beyond MaxDBDMsgs (10000 and more). 0 = does not count.",
        ge=0,
    )
    max_rpc_s: float = key(
        Bounds().rpc_s,
        "seconds",
        "Mean time of the RPCs of all users since the last cycle. 0 = does not count.",
        ge=0.0,
    )
    max_backfill_s: float = key(
        Bounds().backfill_s,
        "seconds",
        "Duration of the last backfill cycle. Set it above what is usual on your site. 0 = does "
        "not count.",
        ge=0.0,
    )

    def bounds(self) -> Bounds:
        return Bounds(
            self.max_server_threads,
            self.max_agent_queue,
            self.max_dbd_queue,
            self.max_rpc_s,
            self.max_backfill_s,
        )


class HaKeys(Keys):
    """Two daemons, one beside each slurmctld."""

    lease_dir: OptionalPath = key(
        None,
        "",
        "Folder that the hosts of all slurmctld share and where rltuned may write: not "
        "StateSaveLocation itself, but a place beside it. With it, only the daemon beside the "
        "acting slurmctld writes, and only while it holds the lease there. Absent = this is the "
        "only daemon.",
    )
    host: str = key(
        "",
        "",
        "This machine's name as SlurmctldHost has it; empty = its short host name.",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$",
    )
    lease_s: float = key(
        180.0,
        "seconds",
        "How long a lease is valid after its renewal, which every cycle does. The other daemon "
        "waits as long before it takes the lease of a stopped one.",
        ge=1.0,
        le=3600.0,
    )


def check_lease(ha: HaKeys, interval_s: float, timeout_s: float) -> None:
    """Refuse a lease that ordinary cycles would lose, or one command outlive.

    Raises:
        ValueError: it is shorter than two intervals, or not longer than a command may take.
    """
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
