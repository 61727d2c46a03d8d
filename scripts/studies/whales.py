"""Plans of one group by whale optimisation (Mirjalili, Lewis 2016), as WORL-RTGS pairs it with a
double DQN. For study: docs/groups.md says what it is worth.

The article's plan builder cannot be reproduced from what is public. Here a whale is a key and a
type for each job; jobs are placed in falling key, each behind its parents. The first whales are
plans of other planners, and the best one stays: the result is never worse than they are by the
expected run times.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from rltuned.core.features import FloatArray
from rltuned.core.groups import children
from scripts.studies.heft import GroupPlan, PlanGraph, heft, in_order

WHALES: Final = 12
ROUNDS: Final = 50
_EVENLY: Final = 0.5


def whales(graph: PlanGraph, seed: int = 0) -> GroupPlan:
    """The best plan of WHALES x ROUNDS, HEFT's among the first."""
    return search(graph, seed, [heft(graph)])


def search(graph: PlanGraph, seed: int, first: Sequence[GroupPlan]) -> GroupPlan:
    """The same with other first whales."""
    rng = np.random.default_rng(seed)
    pod = rng.random((WHALES, 2 * len(graph.tasks)))
    for row, known in zip(pod, first, strict=False):
        row[:] = _encoded(known)
    best = min(first, key=lambda plan: plan.makespan_s)
    leader = _encoded(best)
    for round_number in range(ROUNDS):
        for row in pod:
            found = _decoded(graph, row)
            if found.makespan_s < best.makespan_s:
                best, leader = found, row.copy()
        reach = 2.0 * (1 - round_number / ROUNDS)
        pod = np.array([_moved(row, leader, pod, reach, rng) for row in pod])
    return best


def _moved(
    row: FloatArray, leader: FloatArray, pod: FloatArray, reach: float, rng: np.random.Generator
) -> FloatArray:
    """Around the leader, in a spiral to it, or, while the reach is long, around any whale."""
    step, pull = reach * (2 * rng.random() - 1), 2 * rng.random()
    if rng.random() < _EVENLY:
        target = leader if abs(step) < 1 else pod[rng.integers(len(pod))]
        found = target - step * np.abs(pull * target - row)
    else:
        turn = rng.uniform(-1, 1)
        found = np.abs(leader - row) * np.exp(turn) * np.cos(2 * np.pi * turn) + leader
    return np.clip(found, 0.0, 1.0)


def _encoded(plan: GroupPlan) -> FloatArray:
    graph, count = plan.graph, len(plan.graph.tasks)
    row = np.empty(2 * count)
    for place, i in enumerate(plan.runs):
        types = graph.types(graph.tasks[i])
        row[i] = 1.0 - place / count
        row[count + i] = (types.index(plan.runs[i].node.gpu_type) + _EVENLY) / len(types)
    return row


def _decoded(graph: PlanGraph, row: FloatArray) -> GroupPlan:
    count, below = len(graph.tasks), children(graph.parents)
    types = {}
    for i, task in enumerate(graph.tasks):
        known = graph.types(task)
        types[i] = known[min(int(row[count + i] * len(known)), len(known) - 1)]
    left = [len(task.parents) for task in graph.tasks]
    free = [(-row[i], i) for i in range(count) if not left[i]]
    heapify(free)
    order = []
    while free:
        _, i = heappop(free)
        order.append(i)
        for child in below[i]:
            left[child] -= 1
            if not left[child]:
                heappush(free, (-row[child], child))
    return in_order(graph, order, types)
