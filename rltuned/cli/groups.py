"""`rltuned groups`: jobs that wait for each other."""

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rltuned.cli.flags import (
    BackendChoice,
    ConfigOption,
    JsonOption,
    SeedOption,
    WorldOption,
    in_force,
    say,
)
from rltuned.cli.group_plan import (
    PlannerName,
    commands,
    drawn,
    graph_of,
    plan_document,
    planner_of,
    read_graph,
    speeds_of,
)
from rltuned.cli.plan import STANDING_STILL, foretold, grouped
from rltuned.cli.tables import Column, console, show_table
from rltuned.cli.world import open_world
from rltuned.daemon.groups import GroupsStatus
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
    snapshot, status = _seen(config, backend)
    found = status.documents()
    if as_json:
        document = {"taken_at": snapshot.taken_at, "cluster": snapshot.cluster, "groups": found}
        say(json.dumps(document, indent=2, allow_nan=False))
    elif found:
        show_table(console(), COLUMNS, [_row(group) for group in found])
    else:
        say("no job waits for another")


@app.command("plan")
def plan(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Jobs and nodes, as docs/groups.md describes."),
    ] = None,
    *,
    group: Annotated[
        int | None, typer.Option(help="In place of a file: any job of a group.")
    ] = None,
    speed: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE=X", help="With --group: a GPU type runs jobs X times as fast."),
    ] = None,
    planner: Annotated[PlannerName, typer.Option(help="What makes the plan.")] = "heft",
    seed: SeedOption = 0,
    gantt: Annotated[Path | None, typer.Option(help="Draw the plan to this SVG file.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan one group alone on typed nodes: which job on which GPU type, in which order.

    Nothing is written to Slurm, and no other job is thought of. With --group it shows commands by
    which users apply it to jobs that may run on several types (-C "a100|v100"). HEFT is the planner
    to use; the others are for study and need rltuned[train].

    Exit codes: 0 = planned; 1 = the cluster gave no usable answer; 2 = the file, the group or the
    settings cannot be used.
    """
    if (file is None) == (group is None):
        raise typer.BadParameter("give a FILE or --group ID")
    seen = None
    if file is not None:
        graph = read_graph(file)
    else:
        seen, status = _seen(config, BackendChoice.SLURM)
        graph = graph_of(seen, status, group or 0, speeds_of(speed or []))
    made = planner_of(planner)(graph, seed)
    if gantt is not None:
        gantt.write_text(drawn(made), "utf-8")
    document = plan_document(made, planner)
    if seen is not None:
        document["commands"] = commands(made, seen)
    if as_json:
        say(json.dumps(document, indent=2, allow_nan=False))
        return
    say(
        f"{planner}: {span(document['makespan_s'])}, at least {span(document['lower_bound_s'])}; "
        f"critical path: {', '.join(document['critical_path'])}"
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
    for one in document.get("commands", ()):
        say(f"{one['apply']}    # undo: {one['undo']}")


def _seen(config: Path | None, backend: BackendChoice) -> tuple[Snapshot, GroupsStatus]:
    """The cluster now, and the groups in it."""
    loaded = in_force(config)
    place = open_world(backend, seed=0, speed=STANDING_STILL)
    snapshot = place.backend(loaded).observe()
    if backend is BackendChoice.SLURM:
        snapshot = foretold(snapshot, loaded)
    with closing(Journal(loaded.settings.daemon.state_dir)) as journal:
        return snapshot, grouped(snapshot, journal)


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
