"""Planners of one group alone: HEFT, whale optimisation, a double DQN, and both together.

    python -m scripts.studies.planners [--seeds 4]

Groups with the shapes of scripts/studies/workflows.py on 2 + 2 + 4 GPUs of three types whose speeds
are 4, 2 and 1; each job's speed on a type is off by some 15%. A planner sees run times that are
off by a log-normal error, of 0, 30 and 60%. The plan is then played with the true ones: every job
on its planned node, as soon as it can, in the planned order of starts. The reward, the whales and
HEFT's ranks know the wrong run times alone.

Printed: makespan over HEFT's at the same error, and over the lower bound of the true run times,
geometric means with 95% intervals over groups; seconds of planning.
"""

import argparse
import time
from collections.abc import Mapping

import numpy as np

from rltuned.compare import geometric
from rltuned.core.heft import (
    GroupPlan,
    PartialPlan,
    PlanGraph,
    PlanNode,
    PlanTask,
    heft,
    lower_bound_s,
)
from rltuned.lab.train.group_dqn import double_dqn
from rltuned.lab.train.whales import search
from scripts.studies import plays
from scripts.studies.workflows import SHAPES, Workflow, workflow

NODES = (PlanNode("a1", "a", 2), PlanNode("b1", "b", 2), PlanNode("c1", "c", 4))
SPEEDS = {"a": 4.0, "b": 2.0, "c": 1.0}
OFF = 0.15
ERRORS = (0.0, 0.3, 0.6)
PLANNERS = ("heft", "first free", "woa", "ddqn", "woa-ddqn")


def graph_of(
    one: Workflow, seed: int, speeds: Mapping[str, float] = SPEEDS, error: float = 0.0
) -> PlanGraph:
    """The group on NODES; error: sigma of ln(seen run time / true one)."""
    own = np.random.default_rng([seed, 1])
    wrong = np.random.default_rng([seed, 2])
    tasks = []
    for n in one.parents:
        factor = np.exp(OFF * own.standard_normal(len(speeds)))
        seen_s = one.run_s[n] * float(np.exp(error * wrong.standard_normal()))
        gpus = min(one.gpus[n], 2)  # so that every type could run it
        run_s = {
            kind: seen_s / speed * float(off)
            for (kind, speed), off in zip(speeds.items(), factor, strict=True)
        }
        tasks.append(PlanTask(str(n), run_s, gpus, {p - 1: 0.0 for p in one.parents[n]}))
    return PlanGraph(tuple(tasks), NODES)


def replayed(plan: GroupPlan, true: PlanGraph) -> float:
    """The makespan of a plan with the true run times."""
    own = PartialPlan(true)
    for i in sorted(plan.runs, key=lambda i: (plan.runs[i].start_s, plan.runs[i].end_s)):
        own.place(i, own.on(i, plan.runs[i].node))
    return own.done().makespan_s


def first_free(graph: PlanGraph) -> GroupPlan:
    """What a queue does that knows no types: in order of submission, where a GPU is free first."""
    plan = PartialPlan(graph)
    for i, task in enumerate(graph.tasks):
        found = [plan.on(i, node) for node in graph.hosts(task)]
        plan.place(i, min(found, key=lambda run: run.start_s))
    return plan.done()


def plans(graph: PlanGraph, seed: int) -> tuple[dict[str, GroupPlan], dict[str, float]]:
    """By planner: its plan, and the seconds that it took."""
    found: dict[str, GroupPlan] = {}
    took: dict[str, float] = {}
    for name in PLANNERS:
        began = time.perf_counter()
        match name:
            case "heft":
                found[name] = heft(graph)
            case "first free":
                found[name] = first_free(graph)
            case "woa":
                found[name] = search(graph, seed, [found["heft"]])
            case "ddqn":
                found[name] = double_dqn(graph, seed)
            case _:
                found[name] = search(graph, seed, [found["heft"], found["ddqn"]])
        took[name] = time.perf_counter() - began
    took["woa-ddqn"] += took["ddqn"]
    return found, took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    seeds = range(1, parser.parse_args().seeds + 1)
    plays.head("error", "planner", "over HEFT", "over the lower bound", "seconds")
    for error in ERRORS:
        rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in PLANNERS}
        for kind in SHAPES:
            for seed in seeds:
                one = workflow(kind, seed)
                true = graph_of(one, seed)
                found, took = plans(graph_of(one, seed, error=error), seed)
                ends = {name: replayed(plan, true) for name, plan in found.items()}
                bound = lower_bound_s(true)
                for name, end in ends.items():
                    rows[name].append((end / ends["heft"], end / bound, took[name]))
        for name, values in rows.items():
            table = np.array(values)
            cells = []
            for at in (0, 1):
                change = geometric(table[:, at], np.ones(len(table)))
                mean, low, high = (1 + part for part in change.known)
                cells.append(f"{mean:.3f} [{low:.3f}, {high:.3f}]")
            spent = f"{table[:, 2].mean():.3f}"
            print(plays.row_of([f"{error:.0%}", name, *cells, spent]), flush=True)


if __name__ == "__main__":
    main()
