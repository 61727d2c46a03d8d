"""`rltuned groups`: jobs that wait for each other."""

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rltuned.cli import flags, group_plan
from rltuned.cli.plan import STANDING_STILL, grouped, predicting
from rltuned.cli.tables import Column, console, show_table
from rltuned.cli.world import open_world
from rltuned.core.groups import MOST_EDGES
from rltuned.core.heft import heft
from rltuned.daemon.groups import Groups, documents, edges_left_out
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.journal import Journal
from rltuned.text import span, when

app = typer.Typer(invoke_without_command=True)

PLAN_COLUMNS: Final = (
    Column("job"),
    Column("GPUs", right=True),
    Column("type"),
    Column("node", goes=1, least=6),
    Column("start", right=True),
    Column("end", right=True),
)

COLUMNS: Final = (
    Column("group", right=True),
    Column("state"),
    Column("user", goes=3, least=6),
    Column("jobs", right=True),
    Column("ended", right=True),
    Column("steps", right=True, goes=2),
    Column("expected end"),
)


@app.callback()
def groups(
    ctx: typer.Context,
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
    if ctx.invoked_subcommand is not None:
        return
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


@app.command("plan")
def plan(
    group: Annotated[int, typer.Option(help="Any job of the group.")],
    *,
    speed: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE=X", help="A GPU type runs jobs X times as fast."),
    ] = None,
    config: flags.ConfigOption = None,
    as_json: flags.JsonOption = False,
) -> None:
    """Plan one group alone on typed nodes, by HEFT: which job on which GPU type, in which order.

    Nothing is written to Slurm. It shows the commands that give a type to jobs that may run on
    several (-C "a100|v100"), and those that undo it.

    Exit codes: 0 = planned; 1 = the cluster gave no usable answer; 2 = the group or the settings
    cannot be used.
    """
    seen, status = _seen(config, flags.BackendChoice.SLURM)
    made = heft(group_plan.graph_of(seen, status, group, group_plan.speeds_of(speed or [])))
    document = group_plan.plan_document(made, seen)
    if as_json:
        flags.say(json.dumps(document, indent=2, allow_nan=False))
    else:
        _show_plan(document)


def _show_plan(document: dict[str, Any]) -> None:
    flags.say(
        f"{document['planner']}: {span(document['makespan_s'])}, at least "
        f"{span(document['lower_bound_s'])}; critical path: {', '.join(document['critical_path'])}"
    )
    rows = [
        (
            one["job"],
            str(one["gpus"]),
            one["gpu_type"],
            one["node"],
            span(one["start_s"]),
            span(one["end_s"]),
        )
        for one in document["jobs"]
    ]
    show_table(console(), PLAN_COLUMNS, rows)
    for one in document["commands"]:
        flags.say(f"{one['apply']}    # undo: {one['undo']}")


def _seen(config: Path | None, backend: flags.BackendChoice) -> tuple[Snapshot, Groups]:
    loaded = flags.in_force(config)
    place = open_world(backend, seed=0, speed=STANDING_STILL)
    snapshot = place.backend(loaded).observe()
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
