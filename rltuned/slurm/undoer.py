"""What `rltuned restore` reads and writes of a Slurm cluster: the Undoer port.

One squeue of the pending records with a few columns, one sprio, one sdiag, the configuration; a
second squeue where the first shows fewer jobs than slurmctld counts. No sinfo, no node and no
request is read, so that nothing of these can keep a job frozen.
"""

from collections.abc import Callable
from dataclasses import replace

from rltuned.domain.plan import Outcome, Plan
from rltuned.domain.snapshot import Snapshot, Unreadable
from rltuned.domain.units import UnixTime
from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm.columns import UNDO_COLUMNS, Marks
from rltuned.slurm.fence import Fence
from rltuned.slurm.reader import Reader
from rltuned.slurm.run import Commands, SlurmCli
from rltuned.slurm.sdiag import parse_counts
from rltuned.slurm.site import read_priorities
from rltuned.slurm.writer import Writer


class SlurmUndoer:
    """Restores, through Slurm's own commands. fence: see Writer."""

    def __init__(
        self,
        cli: SlurmCli,
        now: Callable[[], float],
        *,
        marks: Marks | None = None,
        fence: Fence | None = None,
    ) -> None:
        self._now = now
        self._plugin: str | None = None
        self._fence = fence
        commands = Commands(cli)
        self._commands = commands
        self._reader = Reader(commands, marks)
        self._writer = Writer(commands, self._reader, now, fence)

    def look(self) -> Snapshot:
        if self._fence is not None:
            self._fence.look()
        now = self._now()
        site = self._reader.site(now)
        factors = self._reader.factors() if site.multifactor else {}
        queue = self._reader.pending(now, UNDO_COLUMNS, factors)
        why = self._lacking(now, sum(job.array.tasks if job.array else 1 for job in queue.pending))
        bad = (Unreadable("job", "", why),) if why else ()
        if self._plugin is None:
            self._plugin = read_priorities(self._reader.config()).plugin
        system = replace(site.priorities, site_factor_plugin=self._plugin)
        try:
            return Snapshot(
                UnixTime(now),
                site.cluster,
                queue.pending,
                running=(),
                nodes=(),
                priorities=system,
                unreadable=(*queue.unreadable, *bad),
            )
        except ValueError as error:
            raise SnapshotError(f"squeue: {error}") from error

    def _lacking(self, now: float, waiting: int) -> str:
        """Why more jobs may be pending than squeue shows; empty = nothing speaks for it."""
        try:
            counts = parse_counts(self._commands.ask("sdiag"))
            if counts is None or counts.pending <= waiting:
                return ""
            # those that have started or ended since that count are shown for some minutes
            return counts.lacking(counts, self._reader.known(now))
        except (BackendError, SnapshotError, ValueError):
            return ""  # the numbers of the jobs that are shown can be restored all the same

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        return self._writer.apply(plan)
