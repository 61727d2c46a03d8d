"""Graphs to plan, and what every plan must keep."""

from itertools import pairwise

import pytest
from hypothesis import strategies as st

from scripts.studies.heft import GroupPlan, PlanGraph, PlanNode, PlanTask, lower_bound_s

RUN_S = (
    (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
    (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
)  # fmt: skip
EDGES = {
    (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23,
    (4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
}  # fmt: skip


def published() -> PlanGraph:
    """The example of the article: ten jobs, three processors."""
    tasks = tuple(
        PlanTask(
            str(n),
            dict(zip("abc", map(float, run_s), strict=True)),
            parents={p - 1: float(s) for (p, c), s in EDGES.items() if c == n},
        )
        for n, run_s in enumerate(RUN_S, start=1)
    )
    return PlanGraph(tasks, tuple(PlanNode(name, name, 1) for name in "abc"))


def check(plan: GroupPlan) -> None:
    """Every job once, behind its parents, on a node that it may use, which is never too full."""
    graph = plan.graph
    assert sorted(plan.runs) == list(range(len(graph.tasks)))
    for i, run in plan.runs.items():
        task = graph.tasks[i]
        assert run.node in graph.hosts(task)
        assert run.end_s - run.start_s == pytest.approx(task.run_s[run.node.gpu_type])
        for parent, transfer_s in task.parents.items():
            before = plan.runs[parent]
            moved_s = 0.0 if before.node == run.node else transfer_s
            assert run.start_s >= before.end_s + moved_s - 1e-6
        beside = [
            graph.tasks[k].gpus
            for k, other in plan.runs.items()
            if other.node == run.node and other.start_s <= run.start_s + 1e-6 < other.end_s
        ]
        assert sum(beside) <= run.node.gpus
    assert plan.makespan_s >= lower_bound_s(graph) - 1e-6
    path = plan.critical_path()
    assert all(a in graph.tasks[b].parents for a, b in pairwise(path))
    assert plan.runs[path[-1]].end_s == plan.makespan_s


@st.composite
def graphs(draw: st.DrawFn) -> PlanGraph:
    types = ("x", "y", "z")[: draw(st.integers(1, 3))]
    nodes = tuple(
        PlanNode(f"{kind}{n}", kind, draw(st.integers(2, 4)))
        for kind in types
        for n in range(draw(st.integers(1, 2)))
    )
    tasks = []
    for n in range(draw(st.integers(1, 10))):
        allowed = draw(st.lists(st.sampled_from(types), min_size=1, unique=True))
        parents = draw(st.sets(st.integers(0, n - 1))) if n else set[int]()
        run_s = {kind: float(draw(st.integers(1, 90))) for kind in allowed}
        linked = {p: float(draw(st.integers(0, 20))) for p in parents}
        tasks.append(PlanTask(str(n), run_s, draw(st.integers(1, 2)), linked))
    return PlanGraph(tuple(tasks), nodes)
