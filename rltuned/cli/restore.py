"""`rltuned restore`: give back what rltuned changed. Needs no torch and no running daemon."""

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from rltuned.cli.flags import ConfigOption, World, say, settings_of, warn
from rltuned.cli.world import open_world
from rltuned.daemon.asked import asked_job, asked_moment
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.journal import Journal
from rltuned.daemon.lastgood import last_settings
from rltuned.daemon.lease import Bystander
from rltuned.daemon.restore import EVERYTHING, Restored, Wanted, is_complete
from rltuned.daemon.restore import restore as give_back
from rltuned.daemon.rig import open_lease
from rltuned.daemon.seat import after_restore, before_restore
from rltuned.errors import SettingsError
from rltuned.settings import Loaded

app = typer.Typer()

STATE_VARIABLE: Final = "STATE_DIRECTORY"
"""Set by systemd for every command of a service that has a StateDirectory."""


@app.command()
def restore(
    *,
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="JOBID",
            help="Only this job, as squeue names it: 12, 12_3, 12+1.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only jobs that rltuned wrote to since then: 2h, 30m, 2026-01-31T12:00.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every job.")] = False,
    config: ConfigOption = None,
) -> None:
    """Give the jobs that rltuned changed their own priority back.

    A job is given back in whole: it gets what it had before rltuned first wrote to it. A value
    that somebody else has changed since is left alone, and a held job is never released; both are
    reported. A live daemon must be paused or stopped first.

    Exit codes: 0 = nothing of ours is left, or only what others changed or hold; 1 = something
    could not be given back; 2 = settings cannot be used.
    """
    if [everything, job is not None, since is not None].count(True) != 1:
        raise typer.BadParameter("say one of --job JOBID, --since TIME and --all")
    loaded = _settings(config)
    lease, folder = open_lease(loaded.settings, SystemClock()), loaded.settings.ha.lease_dir
    place = open_world(World.SLURM, lease=Bystander(lease) if lease else None)
    wanted = _wanted(job, since, place.clock.now())
    journal = Journal(loaded.settings.daemon.state_dir, loaded.settings.journal.keeping())
    try:
        if lease is not None and folder is not None:
            elsewhere = before_restore(folder, lease.host, journal)
            if elsewhere:
                warn(f"what {elsewhere} has taken over is given back there")
        items = give_back(place.backend(loaded), journal, place.clock, wanted)
        if lease is not None and folder is not None:
            after_restore(folder, lease, journal)
    finally:
        journal.close()
    for item in items:
        say(_line(item))
    if not items:
        say("nothing to give back")
    raise typer.Exit(0 if is_complete(items) else 1)


def _settings(config: Path | None) -> Loaded:
    """The settings of the file; for the service that stops, those that the daemon last ran with
    stand in for a file that cannot be used.
    """
    try:
        return settings_of(config)
    except SettingsError as error:
        folder = os.environ.get(STATE_VARIABLE, "").partition(":")[0]
        settings = last_settings(Path(folder)) if folder else None
        if settings is None:
            raise
        for line in str(error).splitlines():
            warn(line)
        warn("giving back by the settings that the daemon last ran with")
        return Loaded(settings)


def _wanted(job: str | None, since: str | None, now: float) -> Wanted:
    try:
        if job is not None:
            return Wanted(job=asked_job(job))
        return EVERYTHING if since is None else Wanted(since=asked_moment(since, now))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _line(item: Restored) -> str:
    return f"job {item.claim.target.address}: {item.fate}: {item.detail}"
