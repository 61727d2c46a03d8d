"""The planners for study keep the rules of a plan, and their seeds."""

from collections.abc import Callable

import pytest

from scripts.studies import group_dqn
from scripts.studies.group_dqn import double_dqn, whales_dqn
from scripts.studies.heft import GroupPlan, PlanGraph, heft
from scripts.studies.whales import whales
from tests.group_plans import check, published


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
