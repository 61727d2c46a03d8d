"""`rltuned history`: every change to one job, from the journal."""

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from rltuned.cli import flags
from rltuned.journal.cycles import JobChange, changes_of
from rltuned.journal.owned import TAKEN_OVER
from rltuned.journal.store import FILE_NAME, reading
from rltuned.slurm.values import asked_job
from rltuned.text import when

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


def lines_of(changes: list[JobChange]) -> Iterator[str]:
    """Changes for people, under a line for each record."""
    records = sorted(changes, key=lambda c: (c.cluster, c.job_id, c.submitted_at))
    for (cluster, _, submitted_at), rows in groupby(
        records, key=lambda c: (c.cluster, c.job_id, c.submitted_at)
    ):
        ordered = list(rows)
        yield f"job {ordered[-1].address} of {cluster}, submitted {when(submitted_at)}"
        for row in ordered:
            yield f"  {when(row.at)}  {what(row)}: {_result(row)}{_by(row)}"


def what(row: JobChange) -> str:
    """What changed, from which value to which."""
    if row.new is not None:
        return f"{row.field} {row.old} -> {row.new}"
    nice = f", nice {row.nice} set again" if row.nice else ""
    return f"priority {row.old} -> released{nice}"


def _result(row: JobChange) -> str:
    if row.result is None:
        return "unknown (the process ended before it was seen)"
    return f"{row.result} ({row.detail})" if row.detail else row.result


def _by(row: JobChange) -> str:
    if row.snapshot is None:
        return "" if row.result == TAKEN_OVER else "; by restore"
    who = row.policy if row.mode == "live" else f"mode {row.mode}" if row.mode else ""
    text = f"; cycle {row.cycle}" + (f" by {who}" if who else "")
    if row.reason is None:
        return text
    reason = row.reason
    return f"{text}: {reason['why']}; place {reason['rank_before']} -> {reason['rank_after']}"
