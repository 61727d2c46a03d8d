"""`rltuned restore`: restore what rltuned changed. Needs no numpy, no torch and no daemon."""

import math
import os
import sys
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from rltuned import errors
from rltuned.cli.flags import ConfigOption, say, warn
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.ha.leader import after_restore, before_restore, open_lease
from rltuned.daemon.ha.lease import Lease
from rltuned.daemon.kept_settings import last_settings
from rltuned.daemon.restore import EVERYTHING, Wanted
from rltuned.daemon.restore import restore as give_back
from rltuned.daemon.restore_patience import Effort, persist
from rltuned.daemon.restore_shown import Shown, give_back_shown, shown
from rltuned.daemon.signals import SignalFlags, is_paused, listening
from rltuned.daemon.unexplained import in_words, unknown_numbers
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.journal import Journal
from rltuned.journal.ownership import Restored, is_complete
from rltuned.settings.service import Rescue
from rltuned.settings.source import load_rescue
from rltuned.slurm.fence import Fence
from rltuned.slurm.job_selector import AskedJob, asked_job, asked_moment
from rltuned.slurm.undoer import SlurmUndoer

app = typer.Typer()

STATE_VARIABLE: Final = "STATE_DIRECTORY"
"""Set by systemd for every command of a service that has a StateDirectory."""
IN_SCRIPTS_S: Final = 600.0
LEFT: Final = 3
"""Exit code: something is left, or it is not known that nothing is."""
HELD_S: Final = 1.0
"""Between two tries to be the writer in place of a paused daemon."""
NAMED: Final = 20
"""So many jobs are named in a line."""


JobOption = Annotated[
    str | None,
    typer.Option(
        "--job", metavar="JOBID", help="Only this job, as squeue names it: 12, 12_3, 12+1."
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only jobs that rltuned wrote to since then: 2h, 30m, 2026-01-31T12:00.",
    ),
]
AsShownOption = Annotated[
    bool,
    typer.Option(
        "--as-shown",
        help="After the journal, or without one: also zero every site factor that Slurm shows, "
        "also one that a person set.",
    ),
]
PatienceOption = Annotated[
    float | None,
    typer.Option(
        "--patience",
        metavar="SECONDS",
        help="End when Slurm has taken nothing for so long. Without it: 600 in a script, and "
        "at a terminal it continues until stopped.",
        min=0.0,
    ),
]


@app.command()
def restore(
    *,
    job: JobOption = None,
    since: SinceOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Every job.")] = False,
    as_shown: AsShownOption = False,
    fixed_too: Annotated[
        bool,
        typer.Option("--fixed-too", help="With --as-shown: also release every fixed priority."),
    ] = False,
    patience: PatienceOption = None,
    config: ConfigOption = None,
) -> None:
    """Restore the priority of the jobs that rltuned changed.

    A job gets what it had before rltuned first wrote to it. A value that others have changed since
    is left alone, and a held job is never released. A live daemon must be paused or stopped first;
    of one that is paused it waits for the end of the cycle. It continues while slurmctld is slow or
    away; SIGTERM or SIGINT ends it after this change.

    Exit codes: 0 = no number of rltuned is left, or only what others hold, or changed before a
    daemon's last look; 1 = it was stopped before the end, or a live daemon writes; 2 = settings
    cannot be used; 3 = a number of rltuned is left or may be, or the journal cannot be used: it
    says which, and what it did.
    """
    if [everything, job is not None, since is not None].count(True) != 1:
        raise typer.BadParameter("say one of --job JOBID, --since TIME and --all")
    if fixed_too and not as_shown:
        raise typer.BadParameter("--fixed-too needs --as-shown")
    settings, clock, orders = _settings(config), SystemClock(), SignalFlags()
    # a person can stop it; a package script would hang for as long as slurmctld is away
    unasked_s = math.inf if sys.stdin.isatty() else IN_SCRIPTS_S
    effort = Effort(unasked_s if patience is None else patience, tell=warn)
    wanted = _wanted(job, since, clock.now())
    daemon, marks = settings.daemon, settings.daemon.pause_file.parent
    with (
        closing(Journal(daemon.state_dir, settings.journal.keeping(), marks)) as journal,
        listening(orders, lambda stop: clock.wake(stop=stop)),
    ):
        work = _Work(settings, clock, journal, effort, wanted, zero=as_shown, fixed=fixed_too)
        code = work.run()
        raise typer.Exit(1 if code and orders.stop else code)


@dataclass(frozen=True, slots=True)
class _Work:
    """One restore. zero: also site factors that a person set. fixed: fixed priorities too."""

    settings: Rescue
    clock: SystemClock
    journal: Journal
    effort: Effort
    wanted: Wanted
    zero: bool
    fixed: bool

    def run(self) -> int:
        """The exit code. A paused daemon lets go within one cycle: for that it waits."""
        since_s = self.clock.monotonic()
        while True:
            try:
                return self._once()
            except errors.JournalHeldError as error:
                waited_s = self.clock.monotonic() - since_s
                paused = is_paused(self.settings.daemon.pause_file)
                if not paused or waited_s >= self.effort.patience_s:
                    raise
                if not waited_s >= HELD_S:
                    warn(f"{error}; it is paused, and lets go at its next cycle: waiting for that")
                if self.clock.wait(HELD_S):
                    raise

    def _once(self) -> int:
        try:
            return self._by_journal()
        except errors.JournalHeldError:
            raise
        except errors.JournalOtherError as error:
            warn(str(error))
            return max(LEFT, self._without(known=False))
        except errors.JournalError as error:
            warn(str(error))
            return max(LEFT, self._without(known=True))
        except (errors.BackendError, errors.SnapshotError) as error:
            warn(str(error))
            self._say_what_may_be_left()
            return LEFT

    def _by_journal(self) -> int:
        if self.journal.is_lost():
            raise errors.JournalLostError(f"{self.journal.path}: is missing, and was there before")
        ha, unnoted = self.settings.ha, list[str]()
        lease = self._lease()
        elsewhere = ""
        if lease is not None and ha.lease_dir is not None:
            elsewhere = before_restore(ha.lease_dir, lease.host, self.journal)
            if elsewhere:
                warn(f"what {elsewhere} has taken over is restored there")
        undoer = self._undoer(lease)
        effort = replace(self.effort, unnoted=unnoted.append)
        items = give_back(undoer, self.journal, self.clock, self.wanted, effort)
        if lease is not None and ha.lease_dir is not None:
            after_restore(ha.lease_dir, lease, self.journal)
        _report(items)
        code = 0 if is_complete(items) else LEFT
        if unnoted:
            warn(f"restored, and not noted: {unnoted[0]}")
            code = LEFT
        if self.zero:
            return max(code, self._without(known=False))
        code = code if elsewhere else max(code, self._unexplained(undoer, items))
        if not items and not code:
            say("nothing to restore")
        return code

    def _unexplained(self, undoer: SlurmUndoer, items: tuple[Restored, ...]) -> int:
        """Compare with what Slurm shows: LEFT = numbers that the journal knows nothing of."""
        if self.wanted.since != EVERYTHING.since:
            return 0
        try:
            seen = undoer.look()
        except (errors.BackendError, errors.SnapshotError) as error:
            # a service that only ever watched must stop even while Slurm is away
            owner = "the journal knows of nothing" if self.journal.is_there() else "no journal"
            warn(f"{owner}, and what Slurm shows is not known: {error}")
            return 0 if self.journal.is_there() else LEFT
        asked, scope = self.wanted.job, self.settings.scope.partitions
        jobs = tuple(j for j in seen.pending if asked is None or asked.means(j))
        found = unknown_numbers(self.journal, replace(seen, pending=jobs), items, scope)
        if found:
            warn(
                f"{len(found)} numbers in Slurm are not explained by {self.journal.path}: "
                f"{in_words(found)}; if they are rltuned's, --as-shown gives them back "
                "(with --fixed-too the priorities)"
            )
        blind = seen.priorities.kind != "multifactor" and not self.journal.is_there()
        if blind:
            warn(f"there is no journal, and priority/{seen.priorities.kind} shows no site factor")
        others = self.journal.carrying(but=seen.cluster) if asked is None else ()
        if others:
            warn(f"of another cluster than {seen.cluster} the journal has {_listed(others)}")
        return LEFT if found or blind or others else 0

    def _say_what_may_be_left(self) -> None:
        """What the journal counts as rltuned's, where Slurm could not be asked."""
        with suppress(errors.JournalError):  # it has been named
            left = self.journal.carrying()
            if left:
                warn(f"not restored: what rltuned wrote to {_listed(left)}")

    def _lease(self) -> Lease | None:
        keys = self.settings
        return open_lease(keys.ha, keys.slurm.timeout_s, self.clock, keys.daemon.state_dir)

    def _undoer(self, lease: Lease | None) -> SlurmUndoer:
        holds = (lease.elsewhere,) if lease else ()
        fence = Fence(self.clock.readings, self.settings.daemon.max_snapshot_age_s, *holds)
        return SlurmUndoer(self.settings.slurm.cli(), self.clock.now, fence=fence)

    def _without(self, *, known: bool) -> int:
        """Restore what Slurm shows; the exit code. known: rltuned did write from this folder."""
        job = self._job()
        try:
            undoer = self._undoer(self._lease())
            self._keep_others_out()
            scope = self.settings.scope.partitions
            found = shown(self._look(undoer), job, scope)
            for line in found.unknown():
                warn(line)
            if not self._may_zero(found, known=known):
                return LEFT
            items = give_back_shown(
                undoer, self.clock, self.effort, job=job, scope=scope, fixed=self.fixed
            )
        except (errors.BackendError, errors.SnapshotError) as error:
            warn(f"nothing was restored: {error}")
            return LEFT
        _report(items)
        if found.fixed and not self.fixed:
            warn(f"{found.fixed} jobs have a fixed priority; --as-shown --fixed-too releases them")
        return 0 if is_complete(items) else LEFT

    def _keep_others_out(self) -> None:
        """Not beside a live daemon. A folder that cannot be opened is no live daemon's."""
        try:
            self.journal.claim()
        except errors.JournalHeldError:
            raise
        except errors.JournalError as error:
            warn(str(error))

    def _look(self, undoer: SlurmUndoer) -> Snapshot:
        seen: list[Snapshot] = []

        def once() -> list[Restored]:
            seen[:] = [undoer.look()]
            return []

        persist(once, self.clock, self.effort)
        return seen[0]

    def _job(self) -> AskedJob | None:
        if self.wanted.since != EVERYTHING.since:
            raise errors.JournalError("without a journal it is not known what was written when")
        return self.wanted.job

    def _may_zero(self, found: Shown, *, known: bool) -> bool:
        """Whether the site factors may be zeroed: asked for, or most likely rltuned's own."""
        if self.zero or (known and not found.plugin) or found.is_clean:
            return True
        owner = f"{found.plugin} owns site factors here" if found.plugin else "another may own them"
        question = f"{found.named}: not known to be rltuned's; {owner}; zero the site factors?"
        if sys.stdin.isatty():
            return typer.confirm(question)
        warn(f"{question} Nothing was done: --as-shown does it")
        return False


def _listed(addresses: tuple[str, ...]) -> str:
    more = f" and {len(addresses) - NAMED} more" if len(addresses) > NAMED else ""
    return f"job {', '.join(addresses[:NAMED])}{more}"


def _report(items: tuple[Restored, ...]) -> None:
    for item in items:
        say(f"job {item.claim.target.address}: {item.fate}: {item.detail}")


def _settings(config: Path | None) -> Rescue:
    """Of the file; where it cannot be used and a service stops, those the daemon last ran with."""
    try:
        return load_rescue(config)
    except errors.SettingsError as error:
        folder = os.environ.get(STATE_VARIABLE, "").partition(":")[0]
        settings = last_settings(Path(folder)) if folder else None
        if settings is None:
            raise
        for line in str(error).splitlines():
            warn(line)
        warn("restoring by the settings that the daemon last ran with")
        return settings


def _wanted(job: str | None, since: str | None, now: float) -> Wanted:
    try:
        if job is not None:
            return Wanted(job=asked_job(job))
        return EVERYTHING if since is None else Wanted(since=asked_moment(since, now))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
