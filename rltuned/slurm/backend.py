"""The real Slurm behind the Backend port."""

import os
from collections.abc import Callable, Mapping

from rltuned.domain.plan import Outcome, Plan
from rltuned.domain.snapshot import Snapshot
from rltuned.slurm.checks import Check, examine, gather
from rltuned.slurm.columns import Marks
from rltuned.slurm.commands import CallRecord, Commands, SlurmCli
from rltuned.slurm.reader import Reader
from rltuned.slurm.writer import Writer


def _uncounted(_: CallRecord) -> None:
    """Nobody counts."""


class SlurmBackend:
    """Watches and changes one Slurm cluster through its own commands.

    Args:
        cli: how they are called.
        now: Unix seconds; the time of every snapshot comes from here.
        on_call: told of every finished command, for the metrics.
        environ: see Commands.
        marks: see columns.Marks; None = a random mark.
    """

    def __init__(
        self,
        cli: SlurmCli,
        now: Callable[[], float],
        *,
        on_call: Callable[[CallRecord], None] = _uncounted,
        environ: Mapping[str, str] = os.environ,
        marks: Marks | None = None,
    ) -> None:
        self._now = now
        self._commands = Commands(cli, on_call, environ)
        self._reader = Reader(self._commands, marks)
        self._writer = Writer(self._commands, self._reader, now)

    def observe(self) -> Snapshot:
        """Read the cluster: one squeue, one sinfo, one sprio.

        Raises:
            BackendError: a command failed, timed out, or the controller is away.
            SnapshotError: an answer could not be read.
        """
        return self._reader.snapshot(self._now())

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Carry out a plan: one outcome per action, in the same order. Never raises per action."""
        return self._writer.apply(plan)

    def check(self) -> tuple[Check, ...]:
        """Judge the site's settings and our rights, without writing anything."""
        return examine(gather(self._commands, self._now()))
