"""`rltuned groups`: jobs that wait for each other, and what `groups plan` plans of a group now."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rltuned.cli import flags
from rltuned.cli.plan import STANDING_STILL, grouped, predicting
from rltuned.cli.tables import Column, console, show_table
from rltuned.cli.world import open_world
from rltuned.core.groups import MOST_EDGES, node_of
from rltuned.core.heft import (
    GroupPlan,
    PlanGraph,
    PlanNode,
    PlanTask,
    heft,
    lower_bound_s,
    upward_ranks,
)
from rltuned.daemon.groups import Groups, documents, edges_left_out, open_of
from rltuned.domain.groups import JobPhase
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import TraceError
from rltuned.journal.journal import Journal
from rltuned.text import span, when

app = typer.Typer(invoke_without_command=True)

Job = PendingJob | RunningJob
_CHOICE: Final = re.compile(r"constraint=(?P<features>[\w.-]+(?:\|[\w.-]+)+)", re.ASCII)
"""A constraint that is nothing but a choice of features: `-C "a100|v100"`."""
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
    made = heft(graph_of(seen, status, group, speeds_of(speed or [])))
    document = plan_document(made, seen)
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


# -- the plan of a group --------------------------------------------------------------------------


def speeds_of(given: Iterable[str]) -> dict[str, float]:
    """TYPE=X, as numbers by type. Raises TraceError: of another form, or X is not above 0."""
    found: dict[str, float] = {}
    for text in given:
        name, _, value = text.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = 0.0
        if not name or not (found[name] > 0 and isfinite(found[name])):
            raise TraceError(f"--speed {text}: not of the form TYPE=X with X above 0")
    return found


def graph_of(seen: Snapshot, groups: Groups, asked: int, speeds: Mapping[str, float]) -> PlanGraph:
    """What is left of the group of a job, on the nodes of its partitions as if all were free.
    Raises TraceError: there is no such group, or a job of it cannot be planned.
    """
    group = next((one for one in open_of(groups) if asked in one.jobs), None)
    if group is None:
        raise TraceError(f"job {asked} is in no group of dependent jobs that has not ended")
    every: list[Job] = [*seen.pending, *seen.running]
    shown = {node_of(job): job for job in every}
    left = [n for n, job in group.jobs.items() if job.phase is not JobPhase.ENDED]
    if missing := [n for n in left if n not in shown]:
        raise TraceError(f"job {missing[0]} is neither pending nor running now")
    partitions = {p for n in left for p in _partitions(shown[n])}
    nodes = tuple(
        PlanNode(
            f"{node.name}:{count.gpu_type}" if len(node.gpus) > 1 else node.name,
            count.gpu_type,
            count.total,
        )
        for node in seen.nodes
        if node.schedulable and partitions.intersection(node.partitions)
        for count in node.gpus
    )
    types = {node.gpu_type for node in nodes}
    by_feature = _types_by_feature(seen, partitions)
    tasks = []
    for n in left:
        job, run_s = shown[n], group.ends_at[n] - group.starts_at[n]
        if not isfinite(run_s):
            raise TraceError(f"job {n}: its run time is not known: it has no limit")
        chosen = (by_feature.get(feature, set()) for feature in features_of(job))
        allowed = _types(job) or set[str]().union(*chosen) or types
        usable = sorted(types.intersection(allowed))
        by_type = {one: max(run_s, 1.0) / speeds.get(one, 1.0) for one in usable}
        parents = {left.index(p): 0.0 for p in group.jobs[n].parents if p in left}
        tasks.append(PlanTask(str(n), by_type, job.request.size.gpus, parents))
    try:
        return PlanGraph(tuple(tasks), nodes)
    except ValueError as error:
        raise TraceError(str(error)) from None


def _partitions(job: Job) -> tuple[str, ...]:
    return (job.partition,) if isinstance(job, RunningJob) else job.partitions


def _types(job: Job) -> set[str]:
    """Those that it may use; of a job that runs, those that it has. Empty = any."""
    if isinstance(job, RunningJob):
        return {share.gpu_type for share in job.shares if share.gpu_type is not None}
    return set(job.request.gpu_types)


def features_of(job: Job) -> list[str]:
    """The features among which its user lets Slurm choose; empty = no such choice."""
    found = filter(None, map(_CHOICE.fullmatch, job.request.outside))
    return [name for match in found for name in match["features"].split("|")]


def _types_by_feature(seen: Snapshot, partitions: set[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in seen.nodes:
        if partitions.intersection(node.partitions):
            for feature in node.features:
                found.setdefault(feature, set()).update(count.gpu_type for count in node.gpus)
    return found


def commands(made: GroupPlan, seen: Snapshot) -> list[dict[str, str]]:
    """What gives pending jobs the types of a plan where their users allow several, by start, and
    what undoes it.
    """
    pending = {str(node_of(job)): job for job in seen.pending if job.array is None}
    found = []
    for i, run in sorted(made.runs.items(), key=lambda one: one[1].start_s):
        name = made.graph.tasks[i].name
        job = pending.get(name)
        names = [] if job is None else features_of(job)
        by_feature = _types_by_feature(seen, set() if job is None else {*job.partitions})
        fit = [one for one in names if by_feature.get(one) == {run.node.gpu_type}]
        if job is not None and len(fit) == 1:
            update = f"scontrol update JobId={job.address} Features="
            undo = f"{update}'{'|'.join(names)}'"
            found.append({"job": name, "apply": f"{update}'{fit[0]}'", "undo": undo})
    return found


def plan_document(made: GroupPlan, seen: Snapshot) -> dict[str, Any]:
    """A plan for JSON, jobs in the order of their starts; seconds from now."""
    graph, ranks = made.graph, upward_ranks(made.graph)
    runs = sorted(made.runs.items(), key=lambda one: (one[1].start_s, one[1].end_s, one[0]))
    return {
        "planner": "heft",
        "makespan_s": made.makespan_s,
        "lower_bound_s": lower_bound_s(graph),
        "critical_path": [graph.tasks[i].name for i in made.critical_path()],
        "jobs": [
            {
                "job": graph.tasks[i].name,
                "gpus": graph.tasks[i].gpus,
                "gpu_type": run.node.gpu_type,
                "node": run.node.name,
                "start_s": run.start_s,
                "end_s": run.end_s,
                "rank_s": ranks[i],
            }
            for i, run in runs
        ],
        "commands": commands(made, seen),
    }
