"""`rltuned groups`: jobs that wait for each other, how long, and when each group ends."""

import json

import typer

from rltuned.cli import flags
from rltuned.cli.plan import look
from rltuned.cli.tables import Column, console, show_table
from rltuned.core.groups import MOST_EDGES
from rltuned.daemon.groups import documents, edges_left_out
from rltuned.text import when

app = typer.Typer()

COLUMNS = (
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
    made = look(flags.in_force(config), backend).look
    found, left_out = documents(made.groups or ()), edges_left_out(made.groups or (), made.snapshot)
    rows = [
        (
            str(one["group"]),
            one["state"] + ("" if one["understood"] else " (partly understood)"),
            one["user"],
            str(len(one["jobs"])),
            str(sum(job["state"] == "ended" for job in one["jobs"])),
            str(one["depth"] or "unknown"),
            "unknown" if one["end_at"] is None else when(one["end_at"]),
        )
        for one in found
    ]
    if as_json:
        document = {
            "taken_at": made.snapshot.taken_at,
            "cluster": made.snapshot.cluster,
            "edges_left_out": left_out,
            "groups": found,
        }
        flags.say(json.dumps(document, indent=2, allow_nan=False))
    elif rows:
        show_table(console(), COLUMNS, rows)
    elif not left_out:
        flags.say("no job waits for another")
    if left_out:
        flags.warn(f"{left_out} dependencies are left out: {MOST_EDGES} are kept of a cluster")
