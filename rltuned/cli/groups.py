"""`rltuned groups`: jobs that wait for each other, how long, and when each group ends."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import typer

from rltuned.cli import flags
from rltuned.cli.asking import open_world
from rltuned.cli.plan import STANDING_STILL, grouped, predicting
from rltuned.cli.tables import Column, console, show_table
from rltuned.core.groups import MOST_EDGES
from rltuned.daemon.groups import Groups, documents, edges_left_out
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.journal import Journal
from rltuned.text import when

app = typer.Typer()

COLUMNS: Final = (
    Column("group", right=True),
    Column("state"),
    Column("user", goes=3, least=6),
    Column("jobs", right=True),
    Column("ended", right=True),
    Column("steps", right=True, goes=2),
    Column("expected end"),
)


@app.command()
def groups(
    *,
    config: flags.ConfigOption = None,
    backend: flags.WorldOption = flags.BackendChoice.SLURM,
    as_json: flags.JsonOption = False,
) -> None:
    """Show groups of dependent jobs: what waits for what, how long, and when each group ends.

    Asks Slurm once, and the journal for edges that Slurm shows no more. The expected end is that of
    a group whose jobs wait for nothing but each other.

    Exit codes: 0 = done; 1 = the cluster gave no usable answer; 2 = settings cannot be used.
    """
    snapshot, status = _seen(config, backend)
    found, left_out = documents(status), edges_left_out(status, snapshot)
    if as_json:
        document = {
            "taken_at": snapshot.taken_at,
            "cluster": snapshot.cluster,
            "edges_left_out": left_out,
            "groups": found,
        }
        flags.say(json.dumps(document, indent=2, allow_nan=False))
    elif found:
        show_table(console(), COLUMNS, [_row(group) for group in found])
    elif not left_out:
        flags.say("no job waits for another")
    if left_out:
        flags.warn(f"{left_out} dependencies are left out: {MOST_EDGES} are kept of a cluster")


def _seen(config: Path | None, backend: flags.BackendChoice) -> tuple[Snapshot, Groups]:
    loaded = flags.in_force(config)
    _, make = open_world(backend, seed=0, speed=STANDING_STILL)
    snapshot = make(loaded).observe()
    learner = predicting(loaded) if backend is flags.BackendChoice.SLURM else None
    run_times = {} if learner is None else learner.look(snapshot).run_times
    with closing(Journal(loaded.settings.daemon.state_dir)) as journal:
        return snapshot, grouped(snapshot, run_times, journal)


def _row(group: dict[str, Any]) -> tuple[str, ...]:
    state = group["state"] + ("" if group["understood"] else " (partly understood)")
    return (
        str(group["group"]),
        state,
        group["user"],
        str(len(group["jobs"])),
        str(sum(job["state"] == "ended" for job in group["jobs"])),
        str(group["depth"] or "unknown"),
        "unknown" if group["end_at"] is None else when(group["end_at"]),
    )
