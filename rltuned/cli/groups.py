"""`rltuned groups`: jobs that wait for each other, how long, and when each group ends."""

import json

import typer

from rltuned.cli import flags
from rltuned.cli.plan import look
from rltuned.core.groups import MOST_EDGES
from rltuned.daemon.groups import documents, edges_left_out
from rltuned.text import when

app = typer.Typer()


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
    if as_json:
        document = {
            "taken_at": made.snapshot.taken_at,
            "cluster": made.snapshot.cluster,
            "edges_left_out": left_out,
            "groups": found,
        }
        flags.say(json.dumps(document, indent=2, allow_nan=False))
        return
    for one in found:
        ended = sum(job["state"] == "ended" for job in one["jobs"])
        partly = "" if one["understood"] else " (partly understood)"
        end = "unknown" if one["end_at"] is None else when(one["end_at"])
        flags.say(
            f"group {one['group']} of {one['user'] or 'nobody'}: {one['state']}{partly}, "
            f"{ended} of {len(one['jobs'])} jobs ended, {one['depth'] or 'unknown'} steps, "
            f"expected end {end}"
        )
    if not found and not left_out:
        flags.say("no job waits for another")
    if left_out:
        flags.warn(f"{left_out} dependencies are left out: {MOST_EDGES} are kept of a cluster")
