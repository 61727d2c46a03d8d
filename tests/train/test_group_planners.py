"""The planners for study, HEFT on cases by hand: they keep the rules of a plan, and their seeds."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from scripts.studies import group_dqn
from scripts.studies.group_dqn import double_dqn, whales_dqn
from scripts.studies.heft import (
    GroupPlan,
    PlanGraph,
    PlanNode,
    PlanTask,
    heft,
    upward_ranks,
)
from scripts.studies.whales import whales
from tests.group_plans import check, graphs, published


def test_the_example_of_the_article() -> None:
    graph = published()
    ranks = (108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667)
    assert upward_ranks(graph) == pytest.approx(ranks, abs=1e-3)
    plan = heft(graph)
    check(plan)
    assert plan.makespan_s == 80


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


@pytest.mark.parametrize("planner", [whales, double_dqn, whales_dqn])
def test_a_seed_gives_one_plan_that_can_be_carried_out(
    planner: Callable[[PlanGraph, int], GroupPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_dqn, "EPISODES", 5)  # what it learns is no matter here
    graph = published()
    plan = planner(graph, 7)
    check(plan)
    assert plan.runs == planner(graph, 7).runs
    if planner is not double_dqn:  # HEFT's plan is among the first whales
        assert plan.makespan_s <= heft(graph, 0).makespan_s
