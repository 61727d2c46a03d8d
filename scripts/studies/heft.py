"""Plans of one group alone on typed nodes: which job where and when, by HEFT.

Heterogeneous Earliest Finish Time (Topcuoglu, Hariri, Wu 2002): jobs in falling upward rank, each
where it ends first, in a gap if there is one. A job takes its GPUs on one node. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rltuned.core.groups import children, levels, topological

_SLACK_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class PlanNode:
    """gpu_type: what run times go by."""

    name: str
    gpu_type: str
    gpus: int


@dataclass(frozen=True, slots=True)
class PlanTask:
    """A job of the group. run_s: expected, by the GPU types that are allowed. parents: by place
    among the tasks, the seconds that their data takes to another node.
    """

    name: str
    run_s: Mapping[str, float]
    gpus: int = 1
    parents: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanGraph:
    """Raises ValueError where no plan can be made of it; names the job."""

    tasks: tuple[PlanTask, ...]
    nodes: tuple[PlanNode, ...]

    def __post_init__(self) -> None:
        if topological(self.parents) is None:
            raise ValueError("the jobs wait for each other in a circle")
        for task in self.tasks:
            if not all(run_s > 0 for run_s in task.run_s.values()):
                raise ValueError(f"job {task.name}: a run time is not above 0")
            if not self.hosts(task):
                raise ValueError(
                    f"job {task.name}: no node has {task.gpus} GPUs of a type that it may use"
                )

    @property
    def parents(self) -> dict[int, tuple[int, ...]]:
        return {i: tuple(task.parents) for i, task in enumerate(self.tasks)}

    def hosts(self, task: PlanTask) -> list[PlanNode]:
        return [n for n in self.nodes if n.gpu_type in task.run_s and n.gpus >= task.gpus]

    def types(self, task: PlanTask) -> list[str]:
        return sorted({node.gpu_type for node in self.hosts(task)})


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """Where and when a job runs, in seconds from now."""

    node: PlanNode
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """runs: by place among the tasks, in the order in which they were placed."""

    graph: PlanGraph
    runs: Mapping[int, PlannedRun]

    @property
    def makespan_s(self) -> float:
        return max((run.end_s for run in self.runs.values()), default=0.0)

    def critical_path(self) -> list[int]:
        """The last job, before it the parent that ended last, and so on; first to last."""
        if not self.runs:
            return []
        path = [max(self.runs, key=lambda i: self.runs[i].end_s)]
        while parents := self.graph.tasks[path[-1]].parents:
            path.append(max(parents, key=lambda i: self.runs[i].end_s))
        return path[::-1]


class PartialPlan:
    """A plan that grows job by job, each behind its parents."""

    def __init__(self, graph: PlanGraph) -> None:
        self.graph = graph
        self.runs: dict[int, PlannedRun] = {}
        self._busy: dict[str, list[tuple[float, float, int]]] = {n.name: [] for n in graph.nodes}

    def best(self, i: int, gpu_type: str | None = None) -> PlannedRun:
        """Where a job would end first, on nodes of one type or of any."""
        task = self.graph.tasks[i]
        hosts = self.graph.hosts(task)
        found = (self.on(i, n) for n in hosts if gpu_type in {None, n.gpu_type})
        return min(found, key=lambda run: run.end_s)

    def place(self, i: int, run: PlannedRun) -> None:
        self.runs[i] = run
        self._busy[run.node.name].append((run.start_s, run.end_s, self.graph.tasks[i].gpus))

    def done(self) -> GroupPlan:
        return GroupPlan(self.graph, dict(self.runs))

    def on(self, i: int, node: PlanNode) -> PlannedRun:
        task = self.graph.tasks[i]
        arrived = [
            self.runs[p].end_s + (0.0 if self.runs[p].node == node else transfer_s)
            for p, transfer_s in task.parents.items()
        ]
        ready_s, run_s = max(arrived, default=0.0), task.run_s[node.gpu_type]
        busy = [one for one in self._busy[node.name] if one[1] > ready_s]
        for start_s in sorted({ready_s, *(end_s for _, end_s, _ in busy)}):
            if _peak(busy, start_s, start_s + run_s) + task.gpus <= node.gpus:
                break
        return PlannedRun(node, start_s, start_s + run_s)


def _peak(busy: Iterable[tuple[float, float, int]], start_s: float, end_s: float) -> int:
    """The most GPUs in use within a time."""
    near = [one for one in busy if one[0] < end_s - _SLACK_S and one[1] > start_s + _SLACK_S]
    moments = {start_s, *(begin_s for begin_s, _, _ in near if begin_s > start_s)}
    return max(
        sum(g for begin_s, stop_s, g in near if begin_s <= at + _SLACK_S and stop_s > at + _SLACK_S)
        for at in moments
    )


def upward_ranks(graph: PlanGraph) -> list[float]:
    """Of each task: its mean run time over the nodes, plus the costliest way to the end."""
    below, order = children(graph.parents), topological(graph.parents) or []
    ranks = [0.0] * len(graph.tasks)
    for i in reversed(order):
        hosts = graph.hosts(graph.tasks[i])
        own = sum(graph.tasks[i].run_s[n.gpu_type] for n in hosts) / len(hosts)
        on = (graph.tasks[c].parents[i] + ranks[c] for c in below[i])
        ranks[i] = own + max(on, default=0.0)
    return ranks


def by_rank(graph: PlanGraph) -> list[int]:
    """The tasks in falling upward rank, each behind its parents."""
    ranks, level = upward_ranks(graph), levels(graph.parents, topological(graph.parents) or [])
    return sorted(range(len(ranks)), key=lambda i: (-ranks[i], level[i], i))


def heft(graph: PlanGraph, seed: int = 0) -> GroupPlan:  # noqa: ARG001 - as every planner
    """The plan of HEFT."""
    return in_order(graph, by_rank(graph))


def in_order(
    graph: PlanGraph, order: Sequence[int], types: Mapping[int, str] | None = None
) -> GroupPlan:
    """Each job where it ends first, one after the other. types: to which each is bound."""
    plan = PartialPlan(graph)
    for i in order:
        plan.place(i, plan.best(i, None if types is None else types[i]))
    return plan.done()


def lower_bound_s(graph: PlanGraph) -> float:
    """No plan is shorter: the longest path and the whole work, every job on its fastest type."""
    path: dict[int, float] = {}
    work = 0.0
    for i in topological(graph.parents) or []:
        task = graph.tasks[i]
        least_s = min(task.run_s[t] for t in graph.types(task))
        path[i] = least_s + max((path[p] for p in task.parents), default=0.0)
        work += least_s * task.gpus
    return max(max(path.values(), default=0.0), work / sum(node.gpus for node in graph.nodes))
