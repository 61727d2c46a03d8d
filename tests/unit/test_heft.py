"""HEFT on cases that were computed by hand, and plans of every planner against their own rules."""

import pytest
from hypothesis import given, settings

from rltuned.core.heft import (
    PlanGraph,
    PlanNode,
    PlanTask,
    by_rank,
    heft,
    lower_bound_s,
    upward_ranks,
)
from tests.group_plans import check, graphs, published


def test_the_example_of_the_article() -> None:
    graph = published()
    ranks = (108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667)
    assert upward_ranks(graph) == pytest.approx(ranks, abs=1e-3)
    plan = heft(graph)
    check(plan)
    assert plan.makespan_s == 80


def test_a_fork_on_two_types_by_hand() -> None:
    # a: 2 h, then b and c of 4 h and d of 1 h; the fast node takes half as long
    def task(name: str, hours: float, *parents: int, gpus: int = 1) -> PlanTask:
        run_s = {"slow": hours * 3_600, "fast": hours * 1_800}
        return PlanTask(name, run_s, gpus, dict.fromkeys(parents, 0.0))

    nodes = (PlanNode("f1", "fast", 1), PlanNode("s1", "slow", 2))
    graph = PlanGraph((task("a", 2), task("b", 4, 0), task("c", 4, 0), task("d", 1, 0)), nodes)
    plan = heft(graph)
    # a on f1 until 1 h; b on f1 until 3 h; c ends at 5 h on either, and f1 comes first;
    # d, which would wait on f1, fits on s1 until 2 h
    assert {graph.tasks[i].name: (r.node.name, r.end_s / 3_600) for i, r in plan.runs.items()} == {
        "a": ("f1", 1.0), "b": ("f1", 3.0), "c": ("f1", 5.0), "d": ("s1", 2.0),
    }  # fmt: skip
    assert by_rank(graph) == [0, 1, 2, 3]
    assert lower_bound_s(graph) == 3 * 3_600


def test_a_gap_is_used() -> None:
    wide = PlanTask("wide", {"x": 10.0}, 2)
    graph = PlanGraph(
        (
            PlanTask("long", {"x": 30.0}),
            PlanTask("first", {"x": 12.0}),
            PlanTask("both", {"x": 15.0}, 2, {0: 0.0, 1: 0.0}),
            PlanTask("small", {"x": 11.0}),
            wide,
        ),
        (PlanNode("n", "x", 2),),
    )
    plan = heft(graph)
    check(plan)
    assert plan.runs[3].end_s == 23  # beside `long`, behind `first`
    assert plan.makespan_s == 55


@pytest.mark.parametrize(
    ("tasks", "word"),
    [
        ((PlanTask("a", {"x": 1.0}, 9),), "no node has 9 GPUs"),
        ((PlanTask("a", {"y": 1.0}),), "of a type that it may use"),
        ((PlanTask("a", {"x": 0.0}),), "not above 0"),
        (
            (
                PlanTask("a", {"x": 1.0}, parents={1: 0.0}),
                PlanTask("b", {"x": 1.0}, parents={0: 0.0}),
            ),
            "in a circle",
        ),
    ],
)
def test_what_cannot_be_planned(tasks: tuple[PlanTask, ...], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        PlanGraph(tasks, (PlanNode("n", "x", 2),))


@settings(deadline=None)
@given(graphs())
def test_heft_keeps_the_rules(graph: PlanGraph) -> None:
    check(heft(graph))
