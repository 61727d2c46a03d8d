"""`rltuned groups`: jobs that wait for each other."""

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rltuned.cli import flags, group_plan
from rltuned.cli.outputs import check_file, write_text
from rltuned.cli.plan import STANDING_STILL, grouped, predicting
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
    found = status.documents()
    if as_json:
        document = {"taken_at": snapshot.taken_at, "cluster": snapshot.cluster, "groups": found}
        flags.say(json.dumps(document, indent=2, allow_nan=False))
    elif found:
        show_table(console(), COLUMNS, [_row(group) for group in found])
    else:
        flags.say("no job waits for another")


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
    planner: Annotated[group_plan.PlannerName, typer.Option(help="What makes the plan.")] = "heft",
    seed: flags.SeedOption = 0,
    gantt: Annotated[Path | None, typer.Option(help="Draw the plan to this SVG file.")] = None,
    config: flags.ConfigOption = None,
    as_json: flags.JsonOption = False,
) -> None:
    """Plan one group alone on typed nodes: which job on which GPU type, in which order.

    Nothing is written to Slurm. With --group it shows the commands that give a type to jobs that
    may run on several (-C "a100|v100"), and those that undo it. HEFT is the planner to use; the
    others are for study and need rltuned[train].

    Exit codes: 0 = planned; 1 = the cluster gave no usable answer; 2 = the file, the group or the
    settings cannot be used.
    """
    _check_options(file, group, speed)
    check_file(gantt)
    changes: list[group_plan.TypeChange] = []
    if file is not None:
        made = group_plan.planner_of(planner)(group_plan.read_graph(file), seed)
    else:
        seen, status = _seen(config, flags.BackendChoice.SLURM)
        made = group_plan.planner_of(planner)(
            group_plan.graph_of(seen, status, group or 0, group_plan.speeds_of(speed or [])), seed
        )
        changes = group_plan.type_changes(made, seen)
    if gantt is not None:
        write_text(gantt, group_plan.drawn(made))
    document = group_plan.plan_document(made, planner)
    if file is None:
        document["commands"] = [
            {"job": c.job, "apply": c.command(c.planned), "undo": c.command(c.before)}
            for c in changes
        ]
    if as_json:
        flags.say(json.dumps(document, indent=2, allow_nan=False))
    else:
        _show_plan(document)


def _check_options(file: Path | None, group: int | None, speed: list[str] | None) -> None:
    if (file is None) == (group is None):
        raise typer.BadParameter("give a FILE or --group ID")
    if speed and group is None:
        raise typer.BadParameter("--speed needs --group ID")


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
    for one in document.get("commands", ()):
        flags.say(f"{one['apply']}    # undo: {one['undo']}")


def _seen(config: Path | None, backend: flags.BackendChoice) -> tuple[Snapshot, GroupsStatus]:
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
        "" if group["error_s"] is None else span(group["error_s"]),
    )
