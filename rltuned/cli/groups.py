"""`rltuned groups`: jobs that wait for each other."""

import json
from contextlib import closing
from typing import Any, Final

import typer

from rltuned.cli.flags import BackendChoice, ConfigOption, JsonOption, WorldOption, in_force, say
from rltuned.cli.plan import STANDING_STILL, foretold, grouped
from rltuned.cli.tables import Column, console, show_table
from rltuned.cli.world import open_world
from rltuned.journal.journal import Journal
from rltuned.text import span, when

app = typer.Typer(invoke_without_command=True)

COLUMNS: Final = (
    Column("group", right=True),
    Column("state"),
    Column("user", goes=3, least=6),
    Column("jobs", right=True),
    Column("ended", right=True),
    Column("steps", right=True, goes=2),
    Column("expected end"),
    Column("off by", right=True, goes=1),
)


@app.callback()
def groups(
    ctx: typer.Context,
    *,
    config: ConfigOption = None,
    backend: WorldOption = BackendChoice.SLURM,
    as_json: JsonOption = False,
) -> None:
    """Show groups of dependent jobs: what waits for what, how long, and when each group ends.

    Asks Slurm once, and the journal for edges that are satisfied: those Slurm shows no more. The
    expected end is that of a group whose jobs wait for nothing but each other.

    Exit codes: 0 = done; 1 = the cluster gave no usable answer; 2 = settings cannot be used.
    """
    if ctx.invoked_subcommand is not None:
        return
    loaded = in_force(config)
    place = open_world(backend, seed=0, speed=STANDING_STILL)
    snapshot = place.backend(loaded).observe()
    if backend is BackendChoice.SLURM:
        snapshot = foretold(snapshot, loaded)
    with closing(Journal(loaded.settings.daemon.state_dir)) as journal:
        found = grouped(snapshot, journal).documents()
    if as_json:
        document = {"taken_at": snapshot.taken_at, "cluster": snapshot.cluster, "groups": found}
        say(json.dumps(document, indent=2, allow_nan=False))
    elif found:
        show_table(console(), COLUMNS, [_row(group) for group in found])
    else:
        say("no job waits for another")


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
        "" if group["error_s"] is None else span(group["error_s"]),
    )
