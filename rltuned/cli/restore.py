"""`rltuned restore`: give back what rltuned changed. Needs no torch and no running daemon."""

from typing import Annotated

import typer

from rltuned.cli.flags import ConfigOption, World, say, settings_of
from rltuned.cli.world import open_world
from rltuned.daemon.journal import Journal
from rltuned.daemon.restore import Restored, is_complete
from rltuned.daemon.restore import restore as give_back
from rltuned.domain.units import JobId

app = typer.Typer()


@app.command()
def restore(
    *,
    job: Annotated[
        int | None, typer.Option("--job", min=1, help="Only this job.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every job.")] = False,
    config: ConfigOption = None,
) -> None:
    """Give the jobs that rltuned changed their own priority back.

    A value that somebody else has changed since is left alone, and a held job is never released;
    both are reported. A live daemon must be paused or stopped first.

    Exit codes: 0 = nothing of ours is left, or only what others changed or hold; 1 = something
    could not be given back; 2 = settings cannot be used.
    """
    if everything == (job is not None):
        raise typer.BadParameter("say either --job JOBID or --all")
    loaded = settings_of(config)
    place = open_world(World.SLURM)
    journal = Journal(loaded.settings.daemon.state_dir)
    try:
        items = give_back(
            place.backend(loaded), journal, place.clock, JobId(job) if job is not None else None
        )
    finally:
        journal.close()
    for item in items:
        say(_line(item))
    if not items:
        say("nothing to give back")
    raise typer.Exit(0 if is_complete(items) else 1)


def _line(item: Restored) -> str:
    return f"job {item.claim.target.job_id}: {item.fate}: {item.detail}"
