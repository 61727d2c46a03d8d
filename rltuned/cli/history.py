"""`rltuned history`: every change to one job, from the journal."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rltuned.cli import flags
from rltuned.daemon.words import lines_of
from rltuned.journal.cycles import changes_of
from rltuned.journal.store import FILE_NAME, reading
from rltuned.slurm.values import asked_job

app = typer.Typer()


@app.command()
def history(
    job: Annotated[str, typer.Argument(metavar="JOBID", help="Its number, or 12_3 of an array.")],
    *,
    config: flags.ConfigOption = None,
    journal: Annotated[
        Path | None, typer.Option(help="Another journal than that of the settings.")
    ] = None,
    as_json: flags.JsonOption = False,
) -> None:
    """Show what rltuned has changed of a job: when, by which cycle, why, and the outcome.

    Reads the journal only; the last changes to all jobs are in `rltuned status`.

    Exit codes: 0 = there were changes; 1 = none are kept, or the journal cannot be read; 2 =
    settings cannot be used.
    """
    loaded = flags.settings_of(config)
    path = journal or loaded.settings.daemon.state_dir / FILE_NAME
    try:
        asked = asked_job(job)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with reading(path) as db:
        changes = changes_of(db, asked)
    if as_json:
        flags.say(json.dumps({"job": job, "changes": [c._asdict() for c in changes]}, indent=2))
    else:
        for line in lines_of(changes):
            flags.say(line)
    if not changes:
        flags.warn(f"{path} knows of no change to job {job}")
        raise typer.Exit(1)
