"""`rltuned history`: every change to one job, from the journal alone."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of, warn
from rltuned.errors import JournalError
from rltuned.journal.queries import JobChange, changes_of
from rltuned.journal.snapshots import FILE_NAME, open_to_read
from rltuned.slurm.job_selector import AskedJob, asked_job
from rltuned.text import when

app = typer.Typer()

JournalOption = Annotated[
    Path | None,
    typer.Option(
        "--journal", help="Another journal than that of the settings.", show_default=False
    ),
]


@app.command()
def history(
    job: Annotated[str, typer.Argument(metavar="JOBID", help="Its number, or 12_3 of an array.")],
    *,
    config: ConfigOption = None,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what rltuned has changed of a job: when, by which cycle, why, and the outcome.

    Reads the journal only, also while the daemon writes; asks Slurm nothing.

    Exit codes: 0 = there were changes; 1 = none are kept, or the journal cannot be read;
    2 = settings cannot be used.
    """
    try:
        asked = asked_job(job)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    path = journal_path(config, journal)
    changes = read_changes(path, asked)
    if as_json:
        say(json.dumps({"job": job, "changes": [c._asdict() for c in changes]}, indent=2))
    else:
        for line in lines_of(changes):
            say(line)
    if not changes:
        warn(f"{path} knows of no change to job {job}")
        raise typer.Exit(1)


def journal_path(config: Path | None, journal: Path | None) -> Path:
    """The journal that is asked for, or that of the settings.

    Raises:
        SettingsError: the settings cannot be used.
    """
    return journal or settings_of(config).settings.daemon.state_dir / FILE_NAME


def read_changes(path: Path, asked: AskedJob) -> list[JobChange]:
    """What a journal keeps of a job, the oldest first.

    Raises:
        JournalError: it cannot be read.
    """
    with closing(open_to_read(path)) as db:
        try:
            return changes_of(db, asked)
        except sqlite3.Error as error:
            raise JournalError(f"{path}: cannot be read: {error}") from None


def lines_of(changes: list[JobChange]) -> Iterator[str]:
    """Changes for people, under a line for each record."""
    records = sorted(changes, key=lambda c: (c.cluster, c.job_id, c.submitted_at))
    for (cluster, _, submitted_at), rows in groupby(
        records, key=lambda c: (c.cluster, c.job_id, c.submitted_at)
    ):
        ordered = list(rows)
        yield f"job {ordered[-1].address} of {cluster}, submitted {when(submitted_at)}"
        for row in ordered:
            yield f"  {when(row.at)}  {_what(row)}: {_result(row)}{_by(row)}"


def _what(row: JobChange) -> str:
    if row.field != "release":
        return f"{row.field} {row.old} -> {row.new}"
    nice = f", nice {row.nice} set again" if row.nice else ""
    return f"priority {row.old} -> released{nice}"


def _result(row: JobChange) -> str:
    if row.result is None:
        return "unknown (the process ended before it was seen)"
    return f"{row.result} ({row.detail})" if row.detail else row.result


def _by(row: JobChange) -> str:
    if row.snapshot is None:
        return "; by restore"
    who = row.policy if row.mode == "live" else f"mode {row.mode}" if row.mode else ""
    text = f"; cycle {row.cycle}" + (f" by {who}" if who else "")
    if row.reason is None:
        return text
    reason = row.reason
    return f"{text}: {reason['why']}; rank {reason['rank_before']} -> {reason['rank_after']}"
