"""The real Slurm: the Backend port of the daemon, and the Undoer port of `rltuned restore`."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from rltuned.domain.jobs import JobRun, PendingJob
from rltuned.domain.kinds import Digester
from rltuned.domain.plan import Outcome, Plan
from rltuned.domain.snapshot import RememberedBy, Snapshot, Unreadable, nothing
from rltuned.domain.units import UnixTime
from rltuned.errors import BackendError, SnapshotError
from rltuned.run import Call
from rltuned.slurm.accounting import ended_jobs
from rltuned.slurm.columns import Marks
from rltuned.slurm.priority import FairShares
from rltuned.slurm.pyslurm import ReaderChoice
from rltuned.slurm.reader import Reader
from rltuned.slurm.run import Commands, Fence, SlurmCli
from rltuned.slurm.site import (
    JobCounts,
    Load,
    acting_host,
    ask_controllers,
    clock_off_s,
    parse_counts,
    parse_sdiag,
)
from rltuned.slurm.writer import write

MOST_LOOKS: Final = 64
"""At the load are kept: the last of them before a count, which is half a minute old at most."""


class SlurmBackend(Reader):
    """Watches and changes one Slurm cluster through its own commands.

    Every method but `apply` raises BackendError when a command fails or gives no answer in time,
    and SnapshotError when an answer cannot be read.

    now: Unix seconds, of every snapshot. on_call: called with every finished command. fence: knows
    of every read of the cluster, and is asked before every batch of updates. Else as Reader.
    """

    def __init__(
        self,
        cli: SlurmCli,
        now: Callable[[], float],
        *,
        on_call: Callable[[Call], None] = lambda _call: None,
        environ: Mapping[str, str] = os.environ,
        marks: Marks | None = None,
        fair_shares: bool = False,
        fence: Fence | None = None,
        pyslurm: Path | None = None,
        on_reading: Callable[[ReaderChoice], None] = lambda _reading: None,
        digester: Digester | None = None,
    ) -> None:
        self._fence = fence
        self._counts: JobCounts | None = None  # of a look at the load since the last observe
        self._looks: tuple[JobCounts, ...] = ()
        self._limited = 0  # since the last look at the load
        self._in_utc = Commands(cli, on_call, {**environ, "TZ": "UTC"})

        def count(call: Call) -> None:
            self._limited += call.limited
            on_call(call)

        super().__init__(
            Commands(cli, count, environ),
            now,
            marks,
            fair_shares=fair_shares,
            pyslurm=pyslurm,
            on_reading=on_reading,
            digester=digester,
        )

    def observe(self, remembered: RememberedBy = nothing) -> Snapshot:
        """Read the cluster: one squeue, one sinfo, one sprio. See domain/plan.Backend. Where it
        shows fewer jobs than slurmctld counted, by a look at the load just before, any job may be
        there.
        """
        if self._fence is not None:
            self._fence.look()
        seen = self.snapshot()
        seen = seen.marked(remembered(seen.cluster, seen.taken_at))
        counts, self._counts = self._counts, None
        shown = seen.others + len(seen.running) + _tasks(seen.pending)
        why = counts.lacking(self._looks, shown) if counts is not None else ""
        return replace(seen, unreadable=(*seen.unreadable, *_missing(why)))

    def look(self) -> Snapshot:
        """The pending jobs alone, as a restore needs them."""
        if self._fence is not None:
            self._fence.look()
        now, site = self._now(), self.site()
        queue, why = self.pending(), ""
        try:
            counts = parse_counts(self.commands.ask("sdiag"))
            if counts is not None and counts.pending > _tasks(queue.pending):
                # those that have started or ended since that count are shown for some minutes
                why = counts.lacking([counts._replace(at=0.0)], self.known())
        except (BackendError, SnapshotError, ValueError):
            pass  # the numbers of the jobs that are shown can be restored all the same
        try:
            return Snapshot(
                UnixTime(now),
                site.cluster,
                queue.pending,
                running=(),
                nodes=(),
                priorities=site.priorities,
                unreadable=(*queue.unreadable, *_missing(why)),
            )
        except ValueError as error:
            raise SnapshotError(f"squeue: {error}") from error

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Carry out a plan: one outcome per action, in the same order. Never raises per action."""
        return write(self, self._fence, plan)

    def load(self) -> Load:
        """How busy slurmctld is: one sdiag, one RPC."""
        asked_at, self._counts = self._now(), None
        answer = self.commands.ask("sdiag")
        self._counts = counts = parse_counts(answer)
        if counts is not None:
            earlier = (one for one in self._looks[-MOST_LOOKS:] if one.at < counts.at)
            self._looks = (*earlier, counts)
        limited, self._limited = self._limited, 0
        off_s = self.ahead_s = clock_off_s(answer, asked_at, self._now())
        return replace(parse_sdiag(answer), rate_limited=limited, clock_off_s=off_s)

    def clock_off_s(self) -> float | None:
        """How far slurmctld's clock is ahead of this host's, by the last look; None = not known."""
        return self.ahead_s

    def acting(self) -> str:
        """Host of the slurmctld that acts, as SlurmctldHost has it: one `scontrol ping`."""
        return acting_host(self.controllers())

    def controllers(self) -> dict[str, bool]:
        """Every slurmctld, in the order of SlurmctldHost; at least one of them answers."""
        return ask_controllers(self.commands)

    def ended_jobs(self, since: float, until: float) -> list[JobRun] | None:
        """Jobs that ended by themselves between two moments, by some sacct; None = no slurmdbd.
        Takes long; may be called from another thread than the others. Raises TraceError too.
        """
        if not self.site().accounts:
            return None
        return ended_jobs(self._in_utc, since, until, self._digester)

    def qos(self) -> dict[str, int]:
        """The priority of every QOS, by one sacctmgr."""
        answer = self.commands.ask("sacctmgr", "-nP", "show", "qos", "format=name,priority")
        pairs = (line.strip().rpartition("|") for line in answer.splitlines())
        return {name: int(points) for name, _, points in pairs if name and points.isdecimal()}

    def fair_shares(self, jobs: Iterable[PendingJob]) -> tuple[float, ...]:
        """The different fair-share factors of these jobs' associations, by one sshare."""
        return FairShares(self.commands).factors(jobs, self._now())


def _tasks(jobs: Iterable[PendingJob]) -> int:
    return sum(job.array.tasks if job.array else 1 for job in jobs)


def _missing(why: str) -> tuple[Unreadable, ...]:
    return (Unreadable("job", "", why),) if why else ()
