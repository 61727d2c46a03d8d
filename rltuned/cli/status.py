"""`rltuned status`: one look at the daemon, also when it is down; `rltuned history`.

The daemon need not answer, and only its owner and root may read the journal. Either is of use
without the other.
"""

import json
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from rltuned.cli.asking import ask_daemon, is_private
from rltuned.cli.flags import (
    AllOption,
    ConfigOption,
    JsonOption,
    instances,
    say,
    settings_of,
    warn,
)
from rltuned.daemon.breaker import BREAKERS
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.documents import Document
from rltuned.daemon.state import Condition, HealthState
from rltuned.daemon.words import lines_of
from rltuned.errors import JournalError, SettingsError
from rltuned.journal import cycles, owned, store
from rltuned.policies.generations import would_it_help
from rltuned.report import render
from rltuned.settings import Loaded
from rltuned.slurm.values import asked_job

app, history_app = typer.Typer(), typer.Typer()

CHANGES: Final = 8
"""Last changes that are shown."""


@app.command()
def status(
    *,
    config: ConfigOption = None,
    every_one: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the daemon's state: its cycles, stage, circuit breakers, last changes, model, journal.

    Asks the daemon over its socket and reads the journal; asks Slurm nothing. With --all
    there is a line for each daemon of this machine.

    Exit codes: 0 = it works; 1 = it is down, does not work, or a circuit breaker is open; 2 =
    settings cannot be used. With --all the worst of all.
    """
    if not every_one:
        found = ask(settings_of(config))
        text, code = in_words(found, SystemClock().now()), 0 if found["ok"] else 1
    else:
        rows = list[Document]()
        for path, loaded in instances(config):
            told: Document = {"ok": False, "error": str(loaded), "state": [str(loaded)]}
            told = told if isinstance(loaded, SettingsError) else ask(loaded)
            rows.append({"instance": path.stem, "settings": str(path), **told})
        code = max(2 if "error" in row else 0 if row["ok"] else 1 for row in rows)
        found = {"ok": not code, "instances": rows}
        text = "\n".join(f"{row['instance']}: {'; '.join(row['state'])}" for row in rows)
    say(json.dumps(found, indent=2, allow_nan=False) if as_json else text)
    raise typer.Exit(code)


def ask(loaded: Loaded) -> Document:
    """All that can be found out, for JSON; nothing that fails here is an error. daemon: its
    /status.json, else `daemon_silent` says why not; journal, else `journal_unread`. Single jobs are
    in `rltuned plan --json`.
    """
    state_dir = loaded.settings.daemon.state_dir
    daemon, silent = ask_daemon(loaded.settings)
    kept, unread = None, ""
    try:
        with store.reading(state_dir / store.FILE_NAME) as db:
            kept = _journal(db)
    except JournalError as error:
        private = daemon is not None and is_private(state_dir)
        unread = "private; changes are not shown" if private else str(error)
    said = [f"the daemon does not answer: {silent}"] if daemon is None else []
    said += [f"the journal cannot be read: {unread}"] if daemon is None and kept is None else []
    found = [] if daemon is None else list(daemon["conditions"])
    if kept is not None:
        # a breaker may have been closed since the last cycle: the journal has the last word
        found = [one for one in found if one["state"] != HealthState.BREAKER_OPEN]
        names = ", ".join(one["partition"] for one in kept["breakers"])
        said += [Condition(HealthState.BREAKER_OPEN, names).sentence] if names else []
    now = SystemClock().now()
    week = daemon["last_week"] if daemon else would_it_help(state_dir, now)
    troubles = said + [one["sentence"] for one in found if one["trouble"]]
    return {
        "ok": not troubles,
        "state": troubles + [one["sentence"] for one in found if not one["trouble"]],
        "troubles": troubles,
        "stage": daemon["stage"] if daemon else loaded.settings.ladder.stage,
        "last_week": week and week["sentence"],
        "daemon": daemon,
        "daemon_silent": silent or None,
        "journal": kept,
        "journal_unread": unread or None,
    }


def _journal(db: sqlite3.Connection) -> Document:
    """carrying: jobs that may still carry a value of rltuned's. breakers: the open ones."""
    cycle = cycles.last_row(db)
    return {
        "cycle": cycle and {**asdict(cycle), "skip": cycle.skipped},
        "carrying": len(owned.carrying(db)),
        "changes": [one._asdict() for one in cycles.latest(db, CHANGES)],
        "breakers": [
            {"cluster": cluster, "partition": name, **asdict(found)}
            for cluster, those in sorted(BREAKERS.of(store.get(db, BREAKERS.name)).items())
            for name, found in sorted(those.items())
            if found.is_open
        ],
    }


def in_words(found: Document, now: float) -> str:
    """The same for people. now: Unix time."""
    text = render("status.txt", found=found, now=now)
    return "\n".join(filter(None, text.splitlines()))


@history_app.command()
def history(
    job: Annotated[str, typer.Argument(metavar="JOBID", help="Its number, or 12_3 of an array.")],
    *,
    config: ConfigOption = None,
    journal: Annotated[Path | None, typer.Option(help="Another than that of the settings.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what rltuned has changed of a job: when, by which cycle, why, and the outcome.

    Reads the journal only; the last changes to all jobs are in `rltuned status`.

    Exit codes: 0 = there were changes; 1 = none are kept, or the journal cannot be read; 2 =
    settings cannot be used.
    """
    loaded = settings_of(config)
    path = journal or loaded.settings.daemon.state_dir / store.FILE_NAME
    try:
        asked = asked_job(job)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with store.reading(path) as db:
        changes = cycles.changes_of(db, asked)
    if as_json:
        say(json.dumps({"job": job, "changes": [c._asdict() for c in changes]}, indent=2))
    else:
        for line in lines_of(changes):
            say(line)
    if not changes:
        warn(f"{path} knows of no change to job {job}")
        raise typer.Exit(1)
