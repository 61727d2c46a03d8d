"""Planners of one group alone: HEFT, whale optimisation, a double DQN, and both together.

    python -m scripts.studies.planners run | table | check

Groups with the shapes of scripts/studies/workflows.py on 2 + 2 + 4 GPUs of three types whose speeds
are 4, 2 and 1; each job's speed on a type is off by some 15%. A planner sees run times that are
off by a log-normal error, of 0, 30 and 60%. The plan is then played with the true ones: every job
on its planned node, as soon as it can, in the planned order of starts. The reward, the whales and
HEFT's ranks know the wrong run times alone.

- `first free`: what a queue does that knows no types.
- `woa`, `woa-ddqn`: HEFT's plan, and the network's, are among the first whales.
- `worl`: the network's alone is, as WORL-RTGS has it.

The table has makespans over HEFT's at the same error, and over the lower bound of the true run
times, geometric means with 95% intervals over groups; seconds of planning.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

from rltuned.lab.compare import Change, geometric
from scripts.studies import plays
from scripts.studies.group_dqn import double_dqn
from scripts.studies.heft import (
    GroupPlan,
    PartialPlan,
    PlanGraph,
    PlanNode,
    PlanTask,
    heft,
    lower_bound_s,
)
from scripts.studies.plays import Row, known
from scripts.studies.whales import search
from scripts.studies.workflows import SHAPES, Workflow, workflow

RESULTS = Path("docs/data/planners.jsonl")
NODES = (PlanNode("a1", "a", 2), PlanNode("b1", "b", 2), PlanNode("c1", "c", 4))
SPEEDS = {"a": 4.0, "b": 2.0, "c": 1.0}
OFF = 0.15
ERRORS = (0.0, 0.3, 0.6)
SEEDS = range(1, 5)
PLANNERS = ("heft", "first free", "woa", "ddqn", "woa-ddqn", "worl")


@dataclass(frozen=True)
class Run:
    """One group, of a shape, and how far the run times that a planner sees are off."""

    kind: str
    seed: int
    error: float


def runs(_: argparse.Namespace) -> Iterator[Run]:
    """Error by error, so that an interrupted study is whole in fewer errors."""
    for error, kind, seed in product(ERRORS, SHAPES, SEEDS):
        yield Run(kind, seed, error)


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
    """By planner: its plan, and the processor time that it took, in seconds."""
    found: dict[str, GroupPlan] = {}
    took_s: dict[str, float] = {}
    for name in PLANNERS:
        began = time.process_time()
        match name:
            case "heft":
                found[name] = heft(graph)
            case "first free":
                found[name] = first_free(graph)
            case "woa":
                found[name] = search(graph, seed, [found["heft"]])
            case "ddqn":
                found[name] = double_dqn(graph, seed)
            case "worl":
                found[name] = search(graph, seed, [found["ddqn"]])
            case _:
                found[name] = search(graph, seed, [found["heft"], found["ddqn"]])
        took_s[name] = time.process_time() - began
    for name in ("woa-ddqn", "worl"):
        took_s[name] += took_s["ddqn"]
    return found, took_s


def play(run: Run) -> Row:
    """Makespans by planner, and their lower bound, in seconds."""
    one = workflow(run.kind, run.seed)
    true = graph_of(one, run.seed)
    found, took_s = plans(graph_of(one, run.seed, error=run.error), run.seed)
    ends_s = {name: replayed(plan, true) for name, plan in found.items()}
    spent = {f"cpu_{name}_s": round(took_s[name], 4) for name in PLANNERS}
    return asdict(run) | ends_s | {"bound_s": lower_bound_s(true)} | spent


def over(rows: list[Row], own: str, base: str) -> Change:
    """Of the makespan, over groups; base: another planner, or bound_s."""
    return geometric([row[own] for row in rows], [row[base] for row in rows])


def table(_: argparse.Namespace | None = None) -> None:
    """A row an error and a planner."""
    plays.head("error", "planner", "over HEFT", "over the lower bound", "seconds")
    by_error: dict[float, list[Row]] = defaultdict(list)
    for run, row in known(RESULTS, Run).items():
        by_error[run.error].append(row)
    for (error, rows), name in product(by_error.items(), PLANNERS):
        cells = []
        for base in ("heft", "bound_s"):
            mean, low, high = (1 + part for part in over(rows, name, base).known)
            cells.append(f"{mean:.3f} [{low:.3f}, {high:.3f}]")
        spent = f"{plays.mean(rows, f'cpu_{name}_s'):.3f}"
        print(plays.row_of([f"{error:.0%}", f"`{name}`", *cells, spent]))


if __name__ == "__main__":
    plays.main(__doc__, RESULTS, runs, play, views={"table": table})
