"""`rltuned restore`: give back what rltuned changed. Needs no numpy, no torch and no daemon."""

import math
import os
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from rltuned import errors
from rltuned.cli.flags import ConfigOption, say, warn
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.ha.leader import after_restore, before_restore, open_lease
from rltuned.daemon.ha.lease import Fence, Lease
from rltuned.daemon.kept_settings import last_settings
from rltuned.daemon.restore import EVERYTHING, Shown, Wanted, give_back_shown, shown
from rltuned.daemon.restore import restore as give_back
from rltuned.daemon.restore_patience import Effort, persist
from rltuned.daemon.signals import SignalFlags, listening
from rltuned.domain.snapshot import Remnants
from rltuned.journal.journal import Journal
from rltuned.journal.ownership import Restored, is_complete
from rltuned.settings.service import Rescue
from rltuned.settings.source import load_rescue
from rltuned.slurm.job_selector import AskedJob, asked_job, asked_moment
from rltuned.slurm.undoer import SlurmUndoer

app = typer.Typer()

STATE_VARIABLE: Final = "STATE_DIRECTORY"
"""Set by systemd for every command of a service that has a StateDirectory."""
IN_SCRIPTS_S: Final = 600.0
LOST: Final = 3
"""Exit code: the journal is missing or cannot be trusted."""


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
    """Give the jobs that rltuned changed their own priority back.

    A job is given back in whole: it gets what it had before rltuned first wrote to it. A value
    that others have changed since is left alone, and a held job is never released; both are
    reported. A live daemon must be paused or stopped first. It continues while slurmctld is slow,
    away or limits requests, and says on standard error how far it is; SIGTERM or SIGINT ends it
    after the change that is under way.

    Exit codes: 0 = no number of rltuned is left, or only what others changed or hold; 1 = something
    could not be given back, or it was stopped before; 2 = settings cannot be used; 3 = the journal
    is missing or cannot be trusted: see what it says of the jobs.
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
    with (
        closing(Journal(settings.daemon.state_dir, settings.journal.keeping())) as journal,
        listening(orders, lambda stop: clock.wake(stop=stop)),
    ):
        work = _Work(settings, clock, journal, effort, wanted, zero=as_shown, fixed=fixed_too)
        raise typer.Exit(work.run())


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
        try:
            items = self._by_journal()
        except errors.JournalLostError as error:
            warn(str(error))
            self._without(known=True)
            return LOST
        _report(items)
        code = 0 if is_complete(items) else 1
        if self.zero:
            code = max(code, self._without(known=False))
        elif not items:
            say("nothing to give back")
            self._hint()
        return code

    def _by_journal(self) -> tuple[Restored, ...]:
        if self.journal.is_lost():
            raise errors.JournalLostError(f"{self.journal.path}: is missing, and was there before")
        ha = self.settings.ha
        lease = open_lease(ha, self.settings.slurm.timeout_s, self.clock)
        if lease is not None and ha.lease_dir is not None:
            elsewhere = before_restore(ha.lease_dir, lease.host, self.journal)
            if elsewhere:
                warn(f"what {elsewhere} has taken over is given back there")
        undoer = self._undoer(lease, sizes=self.journal.has_narrowed())
        items = give_back(undoer, self.journal, self.clock, self.wanted, self.effort)
        if lease is not None and ha.lease_dir is not None:
            after_restore(ha.lease_dir, lease, self.journal)
        return items

    def _undoer(self, lease: Lease | None, *, sizes: bool = False) -> SlurmUndoer:
        holds = (lease.elsewhere,) if lease else ()
        fence = Fence(self.clock.readings, self.settings.daemon.max_snapshot_age_s, *holds)
        return SlurmUndoer(self.settings.slurm.cli(), self.clock.now, sizes=sizes, fence=fence)

    def _without(self, *, known: bool) -> int:
        """Give back what Slurm shows; the exit code. known: rltuned did write from this folder."""
        job = self._job()
        lease = open_lease(self.settings.ha, self.settings.slurm.timeout_s, self.clock)
        undoer = self._undoer(lease)
        if self.settings.daemon.state_dir.is_dir():
            self.journal.claim()  # not beside a live daemon
        found = shown(self._look(undoer), job)
        for line in found.unknown():
            warn(line)
        if not self._may_zero(found, known=known):
            return 1
        items = give_back_shown(undoer, self.clock, self.effort, job=job, fixed=self.fixed)
        _report(items)
        if found.fixed and not self.fixed:
            warn(f"{found.fixed} jobs have a fixed priority; --as-shown --fixed-too releases them")
        return 0 if is_complete(items) else 1

    def _look(self, undoer: SlurmUndoer) -> Remnants:
        seen: list[Remnants] = []

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
        question = f"{found.site_factors} site factors are not 0; {owner}; zero them?"
        if sys.stdin.isatty():
            return typer.confirm(question)
        warn(f"{question} Nothing was done: --as-shown does it")
        return False

    def _hint(self) -> None:
        """Where no journal ever was, what Slurm shows may still be from one that was put away."""
        if self.journal.path.exists():
            return
        try:
            found = shown(self._undoer(None).look())
        except (errors.BackendError, errors.SnapshotError):
            return
        if not found.is_clean:
            warn(
                f"there is no journal; Slurm shows {found.site_factors} site factors other than 0 "
                f"and {found.fixed} fixed priorities; if they are rltuned's, --as-shown zeroes them"
            )


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
        warn("giving back by the settings that the daemon last ran with")
        return settings


def _wanted(job: str | None, since: str | None, now: float) -> Wanted:
    try:
        if job is not None:
            return Wanted(job=asked_job(job))
        return EVERYTHING if since is None else Wanted(since=asked_moment(since, now))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
