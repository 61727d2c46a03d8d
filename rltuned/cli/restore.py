"""`rltuned restore`: restore what rltuned changed. Needs no numpy, no torch and no daemon."""

import json
import math
import os
import sys
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from rltuned import errors
from rltuned.cli.flags import ConfigOption, JsonOption, say, warn
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.foreign import NAMED, foreign, in_words
from rltuned.daemon.kept_settings import last_settings
from rltuned.daemon.lease import Lease, open_lease
from rltuned.daemon.restore import (
    UNDONE,
    Effort,
    Restored,
    asked_jobs,
    restore_shown,
    unknown_numbers,
)
from rltuned.daemon.restore import restore as restore_jobs
from rltuned.daemon.systemd import SignalFlags, is_paused, listening
from rltuned.domain.plan import PRIORITY
from rltuned.domain.priority import PriorityKind
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.journal import Journal
from rltuned.settings.keys import Rescue
from rltuned.settings.source import load_rescue
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import Fence
from rltuned.slurm.values import AskedJob, asked_job

app = typer.Typer()

STATE_VARIABLE: Final = "STATE_DIRECTORY"
"""Set by systemd for every command of a service that has a StateDirectory."""
IN_SCRIPTS_S: Final = 600.0
LEFT: Final = 3
"""Exit code: something is left, or it is not known that nothing is."""
HELD_S: Final = 1.0
"""Between two tries to be the writer in place of a paused daemon."""


@app.command()
def restore(
    *,
    job: Annotated[
        str | None,
        typer.Option(
            "--job", metavar="JOBID", help="Only this job, as squeue names it: 12, 12_3, 12+1."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every job.")] = False,
    as_shown: Annotated[
        bool,
        typer.Option(
            "--as-shown",
            help="After the journal, or without one: also zero every site factor and release every "
            "fixed priority that Slurm shows, also those that a person set.",
        ),
    ] = False,
    patience: Annotated[
        float | None,
        typer.Option(
            "--patience",
            metavar="SECONDS",
            help="End when Slurm has taken nothing for so long. Without it: 600 in a script, and "
            "at a terminal it continues until stopped.",
            min=0.0,
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
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
    if everything == (job is not None):
        raise typer.BadParameter("say one of --job JOBID and --all")
    try:
        asked = None if job is None else asked_job(job)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    settings, clock, orders = _settings(config), SystemClock(), SignalFlags()
    # a person can stop it; a package script would hang for as long as slurmctld is away
    unasked_s = math.inf if sys.stdin.isatty() else IN_SCRIPTS_S
    effort = Effort(unasked_s if patience is None else patience, tell=warn)
    daemon, marks = settings.daemon, settings.daemon.pause_file.parent
    lease = open_lease(settings, clock)
    holds = (lease.elsewhere,) if lease else ()
    fence = Fence(clock.readings, daemon.max_snapshot_age_s, *holds)
    undoer = SlurmBackend(settings.slurm.cli(), clock.now, fence=fence)
    with (
        closing(Journal(daemon.state_dir, settings.journal.keeping(), marks)) as journal,
        listening(orders, lambda stop: clock.wake(stop=stop)),
    ):
        work = _Work(settings, clock, journal, lease, undoer, effort, asked, as_shown, as_json)
        code = work.run()
        code = 1 if code and orders.stop else code
    if as_json:
        say(json.dumps({"exit_code": code, "jobs": work.jobs, "warnings": work.warnings}, indent=2))
    raise typer.Exit(code)


@dataclass(slots=True)
class _Work:
    """One restore. asked: of this job alone. jobs: what became of each; warnings: what was said."""

    settings: Rescue
    clock: SystemClock
    journal: Journal
    lease: Lease | None
    undoer: SlurmBackend
    effort: Effort
    asked: AskedJob | None
    as_shown: bool
    as_json: bool
    jobs: list[dict[str, object]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

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
                if waited_s < HELD_S:
                    warn(f"{error}; it is paused, and lets go at its next cycle: waiting for that")
                if self.clock.wait(HELD_S):
                    raise

    def _once(self) -> int:
        try:
            return self._by_journal()
        except errors.JournalHeldError:
            raise
        except errors.JournalError as error:
            self._warn(str(error))
            # the journal of another release may own nothing: whose the numbers are is not known
            known = not isinstance(error, errors.JournalOtherError)
            return max(LEFT, self._without(known=known))
        except (errors.BackendError, errors.SnapshotError) as error:
            self._warn(str(error))
            with suppress(errors.JournalError):  # it has been named
                if left := self.journal.carrying():
                    self._warn(f"not restored: what rltuned wrote to {_listed(left)}")
            return LEFT

    def _by_journal(self) -> int:
        if self.journal.is_lost():
            raise errors.JournalLostError(f"{self.journal.path}: is missing, and was there before")
        elsewhere = self.lease.before_restore(self.journal) if self.lease else ""
        if elsewhere:
            self._warn(f"what {elsewhere} has taken over is restored there")
        items = restore_jobs(self.undoer, self.journal, self.clock, self.asked, self.effort)
        if self.lease is not None:
            self.lease.after_restore(self.journal)
        code = self._report(items)
        if self.effort.unnoted:
            self._warn(f"restored, and not noted: {self.effort.unnoted}")
            code = LEFT
        if self.as_shown:
            return max(code, self._without(known=False))
        code = code if elsewhere else max(code, self._unexplained(items))
        if not items and not code and not self.as_json:
            say("nothing to restore")
        return code

    def _unexplained(self, items: tuple[Restored, ...]) -> int:
        """Compare with what Slurm shows: LEFT = numbers that the journal knows nothing of."""
        is_there = self.journal.is_there()
        try:
            seen = self.undoer.look()
        except (errors.BackendError, errors.SnapshotError) as error:
            # a service that only ever watched must stop even while Slurm is away
            owner = "the journal knows of nothing" if is_there else "no journal"
            self._warn(f"{owner}, and what Slurm shows is not known: {error}")
            return 0 if is_there else LEFT
        jobs = tuple(j for j in seen.pending if self.asked is None or self.asked.means(j))
        scope, kind = self.settings.scope.partitions, seen.priorities.kind
        found = unknown_numbers(self.journal, replace(seen, pending=jobs), items, scope)
        if found:
            self._warn(
                f"{len(found)} numbers in Slurm are not explained by {self.journal.path}: "
                f"{in_words(found)}; if they are rltuned's, --as-shown gives them back"
            )
        blind = kind != "multifactor" and not is_there
        if blind:
            self._warn(f"there is no journal, and priority/{kind} shows no site factor")
        others = self.journal.carrying(but=seen.cluster) if self.asked is None else ()
        if others:
            self._warn(f"of another cluster than {seen.cluster} the journal has {_listed(others)}")
        return LEFT if found or blind or others else 0

    def _without(self, *, known: bool) -> int:
        """Restore what Slurm shows; the exit code. known: rltuned did write from this folder."""
        scope, looks = self.settings.scope.partitions, list[Snapshot]()

        def look() -> list[Restored]:
            looks[:] = [self.undoer.look()]
            return []

        try:
            self.journal.claim()
        except errors.JournalHeldError:
            raise  # not beside a live daemon
        except errors.JournalError as error:  # a folder that cannot be opened is no live daemon's
            self._warn(str(error))
        try:
            self.effort.persist(look, self.clock)
            (seen,) = looks
            jobs, kind = asked_jobs(seen, self.asked, scope), seen.priorities.kind
            found = {j.key: (j.address, n) for j in jobs if (n := foreign(j, kind)) is not None}
            hidden = sum(job.site_factor is None for job in jobs)
            self._say_unknown(kind, hidden + sum(r.kind != "reservation" for r in seen.unreadable))
            plugin = seen.priorities.site_factor_plugin
            if found and not self.as_shown and (not known or plugin):
                owner = f"{plugin} owns site factors here" if plugin else "another may own them"
                self._warn(
                    f"{in_words(found)}: not known to be rltuned's; {owner}; nothing was done: "
                    "--as-shown does it"
                )
                return LEFT
            items = restore_shown(
                self.undoer, self.clock, self.effort, self.asked, scope, fixed=self.as_shown
            )
        except (errors.BackendError, errors.SnapshotError) as error:
            self._warn(f"nothing was restored: {error}")
            return LEFT
        fixed = sum(number[0] is PRIORITY for _, number in found.values())
        if fixed and not self.as_shown:
            self._warn(f"{fixed} jobs have a fixed priority; --as-shown releases them")
        return self._report(items)

    def _say_unknown(self, kind: PriorityKind, hidden: int) -> None:
        self._warn(
            "not known without the journal: who set a value, the nice that a fixed priority "
            "replaced, OverSubscribe flags, and what requeued jobs bring back"
        )
        if kind != "multifactor":
            self._warn(
                f"Slurm runs with priority/{kind}, which shows no site factor: once priority/"
                "multifactor runs again, `rltuned restore --all --as-shown` zeroes them"
            )
        elif hidden:
            self._warn(f"Slurm does not show the site factor of {hidden} pending jobs")

    def _report(self, items: tuple[Restored, ...]) -> int:
        """Say what became of each; LEFT = something owned is known to be left behind."""
        for item in items:
            address, of = item.claim.target.address, item.claim.field.name
            self.jobs.append(
                {"job": address, "field": of, "result": item.fate.value, "detail": item.detail}
            )
            if not self.as_json:
                say(f"job {address}: {item.fate}: {item.detail}")
        return LEFT if any(item.fate in UNDONE for item in items) else 0

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        warn(text)


def _listed(addresses: tuple[str, ...]) -> str:
    more = f" and {len(addresses) - NAMED} more" if len(addresses) > NAMED else ""
    return f"job {', '.join(addresses[:NAMED])}{more}"


def _settings(config: Path | None) -> Rescue:
    """Of the file; where it cannot be used and a service stops, those the daemon last ran with."""
    try:
        return load_rescue(config)
    except errors.SettingsError as error:
        folder = os.environ.get(STATE_VARIABLE, "").partition(":")[0]
        settings = last_settings(Path(folder)) if folder else None
        if settings is None:
            raise
        for line in (*str(error).splitlines(), "restoring by the settings of the last run"):
            warn(line)
        return settings
