"""What `rltuned groups plan` plans of a group now, and what it prints."""

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final

from rltuned.core.groups import node_of
from rltuned.core.heft import (
    GroupPlan,
    PlanGraph,
    PlanNode,
    PlanTask,
    lower_bound_s,
    upward_ranks,
)
from rltuned.daemon.groups import Groups, open_of
from rltuned.domain.groups import JobPhase
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import TraceError

Job = PendingJob | RunningJob
_CHOICE: Final = re.compile(r"constraint=(?P<features>[\w.-]+(?:\|[\w.-]+)+)", re.ASCII)
"""A constraint that is nothing but a choice of features: `-C "a100|v100"`."""


def _by_type(run_s: float, types: Iterable[str], speeds: Mapping[str, float]) -> dict[str, float]:
    return {one: run_s / speeds.get(one, 1.0) for one in sorted(types)}


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
        by_type = _by_type(max(run_s, 1.0), types.intersection(allowed), speeds)
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
