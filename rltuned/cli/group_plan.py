"""What `rltuned groups plan` plans, from a file or from the groups now, and what it prints."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rltuned.core.groups import node_of
from rltuned.core.heft import (
    GroupPlan,
    PlanGraph,
    Planner,
    PlanNode,
    PlanTask,
    heft,
    lower_bound_s,
    upward_ranks,
)
from rltuned.daemon.groups import GroupsStatus
from rltuned.domain.groups import JobPhase
from rltuned.domain.hostlist import expand_hosts
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.durable import refuse_device
from rltuned.errors import TraceError
from rltuned.report.gantt import Bar, gantt
from rltuned.text import first_flaw

PlannerName = Literal["heft", "woa", "ddqn", "woa-ddqn"]
Job = PendingJob | RunningJob
_MOST_NODES: Final = 10_000
_CHOICE: Final = re.compile(r"constraint=(?P<features>[\w.-]+(?:\|[\w.-]+)+)", re.ASCII)
"""A constraint that is nothing but a choice of features: `-C "a100|v100"`."""
_Name = Annotated[str, Field(min_length=1)]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A pending job's constraint: a choice of features, and the one of them that a plan takes."""

    job: str
    address: str
    before: str
    planned: str

    def command(self, wanted: str) -> str:
        return f"scontrol update JobId={self.address} Features='{wanted}'"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _PlanNode(_Table):
    name: _Name
    gpu_type: str = ""
    gpus: Annotated[int, Field(ge=1)]


class _PlanJob(_Table):
    name: _Name
    run_s: _Seconds | dict[str, _Seconds]
    gpus: Annotated[int, Field(ge=0)] = 1
    types: list[_Name] = []
    after: list[_Name] = []
    transfer_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class _PlanFile(_Table):
    nodes: Annotated[list[_PlanNode], Field(min_length=1)]
    jobs: Annotated[list[_PlanJob], Field(min_length=1)]
    speeds: dict[str, _Seconds] = {}


def planner_of(name: PlannerName) -> Planner:
    """The planner of a name. All but HEFT need rltuned[train]."""
    if name == "heft":
        return heft
    if name == "woa":
        from rltuned.lab.train.whales import whales  # noqa: PLC0415 - the offline half

        return whales
    from rltuned.lab.train.group_dqn import double_dqn, whales_dqn  # noqa: PLC0415 - torch

    return double_dqn if name == "ddqn" else whales_dqn


def read_graph(path: Path) -> PlanGraph:
    """Jobs and nodes of a TOML file. Raises TraceError: names file and field."""
    try:
        refuse_device(path)
        found = _PlanFile.model_validate(tomllib.loads(path.read_text("utf-8-sig")))
        return _graph(found)
    except ValidationError as error:
        raise TraceError(f"{path}: {first_flaw(error)}") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise TraceError(f"{path}: {reason}") from None


def _graph(found: _PlanFile) -> PlanGraph:
    nodes = [
        PlanNode(name, table.gpu_type, table.gpus)
        for table in found.nodes
        for name in expand_hosts(table.name, most=_MOST_NODES)
    ]
    place = {job.name: i for i, job in enumerate(found.jobs)}
    if len(place) < len(found.jobs) or len({node.name for node in nodes}) < len(nodes):
        raise ValueError("a name stands twice among the jobs or the nodes")
    types = {node.gpu_type for node in nodes}
    unknown = (set(found.speeds) | {t for job in found.jobs for t in job.types}) - types
    if unknown:
        raise ValueError(f"no node has GPUs of type {', '.join(sorted(unknown))}")
    tasks = []
    for job in found.jobs:
        strange = set(job.after) - place.keys()
        if strange:
            raise ValueError(f"job {job.name}: after: no job {', '.join(sorted(strange))}")
        run_s = (
            job.run_s if isinstance(job.run_s, dict) else _by_type(job.run_s, types, found.speeds)
        )
        kept = {t: s for t, s in run_s.items() if not job.types or t in job.types}
        tasks.append(
            PlanTask(job.name, kept, job.gpus, {place[p]: job.transfer_s for p in job.after})
        )
    return PlanGraph(tuple(tasks), tuple(nodes))


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


def graph_of(
    seen: Snapshot, status: GroupsStatus, asked: int, speeds: Mapping[str, float]
) -> PlanGraph:
    """What is left of the group of a job, on the nodes of its partitions as if all were free.
    Raises TraceError: there is no such group, or a job of it cannot be planned.
    """
    group = next((one for one in status.open if asked in one.jobs), None)
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


def type_changes(made: GroupPlan, seen: Snapshot) -> list[TypeChange]:
    """What gives pending jobs the types of a plan where their users allow several, by start."""
    pending = {str(node_of(job)): job for job in seen.pending if job.array is None}
    found = []
    for i, run in sorted(made.runs.items(), key=lambda one: one[1].start_s):
        name = made.graph.tasks[i].name
        job = pending.get(name)
        names = [] if job is None else features_of(job)
        by_feature = _types_by_feature(seen, set() if job is None else {*job.partitions})
        fit = [one for one in names if by_feature.get(one) == {run.node.gpu_type}]
        if job is not None and len(fit) == 1:
            found.append(TypeChange(name, job.address, "|".join(names), fit[0]))
    return found


def drawn(made: GroupPlan) -> str:
    """The Gantt chart of a plan, its critical path marked."""
    path = set(made.critical_path())
    bars = [
        Bar(task.name, run.node.name, task.gpus, run.start_s, run.end_s, i in path)
        for i, run in made.runs.items()
        for task in [made.graph.tasks[i]]
    ]
    return gantt([(node.name, node.gpus) for node in made.graph.nodes], bars)


def plan_document(made: GroupPlan, planner: str) -> dict[str, Any]:
    """A plan for JSON, jobs in the order of their starts; seconds from now."""
    graph, ranks = made.graph, upward_ranks(made.graph)
    runs = sorted(made.runs.items(), key=lambda one: (one[1].start_s, one[1].end_s, one[0]))
    return {
        "planner": planner,
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
    }
