# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""No order can do better than this: lower bounds on mean wait and mean bounded slowdown.

A job's start costs its weight times the start time. GPUs of a type and an instant get a price; a
job that starts at S pays for its GPUs from S to its end. For any prices that are not negative,

    sum over jobs of (least over S of [weight * S + what it pays]) - what all GPUs would earn

is a lower bound on the cost of every schedule that uses no more GPUs than there are: each schedule
pays at least the least, and earns at most all (Lagrangian relaxation of the capacity). So the bound
holds whatever prices the search below ends with; the search only makes it tight. It lets jobs be
split over nodes and ignores CPUs, memory, exclusive nodes, backfill and what a scheduler cannot
know, so it is below the clairvoyant optimum, not equal to it. Source of the method: Fisher, The
Lagrangian relaxation method (Management Science, 1981); the steps are Polyak's.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rltuned.kernel.compiler import BoolArray, FloatArray, compiled, entry
from rltuned.sim.metrics import SHORTEST_S
from rltuned.sim.policy import CLAIRVOYANT
from rltuned.sim.presets import cluster_named
from rltuned.train.course import from_files
from rltuned.train.episodes import play_rule
from rltuned.train.evaluate import EvaluationPlan, windows_of
from rltuned.train.ground import Ground

CELLS: Final = 768
"""Instants share a price within a cell of time."""
STEPS: Final = 250
PATIENCE: Final = 12
"""Steps without a better bound before they are made smaller."""


def least_wait(window: Ground, reached_s: FloatArray) -> float:
    """Seconds of mean wait that no order of these jobs can go below.

    Args:
        window: the jobs and the cluster.
        reached_s: (n,) start times of some schedule, which tells the search where to look.
    """
    submit_s = window.submit_s
    weights = np.ones(len(window))
    total = _least(window, weights, reached_s)
    return max(0.0, (total - float(submit_s.sum())) / len(window))


def least_bsld(window: Ground, reached_s: FloatArray) -> float:
    """Mean bounded slowdown that no order can go below; reached_s as in least_wait."""
    longer = np.maximum(window.duration_s, SHORTEST_S)
    weights = 1.0 / longer
    total = _least(window, weights, reached_s) - float((weights * window.submit_s).sum())
    # (wait + duration) / longer is below the slowdown of a job shorter than the shortest: 1
    return max(1.0, (total + float((window.duration_s / longer).sum())) / len(window))


class Load(NamedTuple):
    """What is to be scheduled. submit_s, runs_s, gpus, weights: (n,). accepts: (n, T) GPU types.

    there: (T,) GPUs of each type.
    """

    submit_s: FloatArray
    runs_s: FloatArray
    gpus: FloatArray
    weights: FloatArray
    accepts: BoolArray
    there: FloatArray


def _least(window: Ground, weights: FloatArray, reached_s: FloatArray) -> float:
    """The best bound found on the sum of weight * start."""
    prepared = window.prepared
    jobs, shapes, hardware = prepared.jobs, prepared.shapes, prepared.hardware
    types = shapes.accepts.shape[1] - 1
    load = Load(
        submit_s=jobs.submit_s,
        runs_s=jobs.runs_s,
        gpus=shapes.gpus[jobs.shape].astype(np.float64),
        weights=weights,
        accepts=np.ascontiguousarray(shapes.accepts[jobs.shape][:, :types]),
        there=np.bincount(hardware.row, hardware.gpus, types + 1)[:types].astype(np.float64),
    )
    horizon_s = float((reached_s + jobs.runs_s).max()) * 1.001 + 1.0
    return _search(load, horizon_s / CELLS, float((weights * reached_s).sum()))


def _search(load: Load, width_s: float, reached: float) -> float:
    """Raise prices where more is asked for than there is, lower them elsewhere."""
    price = np.zeros((len(load.there), CELLS))
    used = np.empty_like(price)
    best, since, pace = -math.inf, 0, 1.0
    for _ in range(STEPS):
        bound = float(charge(load, price, width_s, used))
        since = 0 if bound > best else since + 1
        best = max(best, bound)
        if since > PATIENCE:
            pace, since = pace / 2.0, 0
        over = used - load.there[:, None] * width_s
        over[(over < 0.0) & (price == 0.0)] = 0.0
        norm = float((over * over).sum())
        if norm == 0.0 or bound >= reached:
            break
        price = np.maximum(price + pace * (reached - bound) / norm * over, 0.0)
    return best


@compiled
def _earned(price: FloatArray, before: FloatArray, width_s: float, at_s: float) -> float:
    """What one GPU earns until a time, as prices (C,) and their sums before each cell say."""
    cell = min(int(at_s / width_s), len(price) - 1)
    rest_s = min(at_s - cell * width_s, width_s)
    return float(before[cell] + price[cell] * rest_s)


@compiled
def _best_start(
    submit_s: float,
    run_s: float,
    gpus: float,
    weight: float,
    price: FloatArray,
    before: FloatArray,
    width_s: float,
) -> tuple[float, float]:
    """(cost, start) of the cheapest start: at the submit, or where start or end meets a cell."""
    cells = len(price)
    best_s = submit_s
    paid = _earned(price, before, width_s, submit_s + run_s) - _earned(
        price, before, width_s, submit_s
    )
    best = weight * submit_s + gpus * paid
    whole = int(run_s / width_s)  # a run is so many cells and a rest: no division per start
    rest_s = min(max(run_s - whole * width_s, 0.0), width_s)
    for cell in range(int(submit_s / width_s) + 1, cells + 1):  # begins where a cell does
        start_s = cell * width_s
        if weight * start_s >= best:
            break
        last = cell + whole
        until = before[last] + price[last] * rest_s if last < cells else before[cells]
        cost = weight * start_s + gpus * (until - before[cell])
        if cost < best:
            best, best_s = cost, start_s
    for cell in range(int((submit_s + run_s) / width_s) + 1, cells + 1):  # ends where one does
        start_s = cell * width_s - run_s
        if weight * start_s >= best:
            break
        first = max(cell - whole - 1, 0)
        since = before[first] + price[first] * (width_s - rest_s)
        cost = weight * start_s + gpus * (before[cell] - since)
        if cost < best:
            best, best_s = cost, start_s
    return best, best_s


@compiled
def _occupy(used: FloatArray, width_s: float, start_s: float, end_s: float, gpus: float) -> None:
    """Add GPU-seconds to the cells (C,) between two times."""
    first, last = int(start_s / width_s), int(end_s / width_s)
    for cell in range(first, min(last, len(used) - 1) + 1):
        from_s, to_s = max(start_s, cell * width_s), min(end_s, (cell + 1) * width_s)
        used[cell] += gpus * max(to_s - from_s, 0.0)


@compiled
def _admit(
    load: Load,
    job: int,
    price: FloatArray,
    before: FloatArray,
    width_s: float,
    used: FloatArray,
) -> float:
    """The least that a job costs, on the GPU type where that is least; there it takes its GPUs."""
    gpus, weight, submit_s = load.gpus[job], load.weights[job], load.submit_s[job]
    if gpus == 0.0:
        return float(weight * submit_s)
    least, start_s, where = math.inf, 0.0, 0
    for kind in range(len(price)):
        if load.accepts[job, kind]:
            cost, at_s = _best_start(
                submit_s, load.runs_s[job], gpus, weight, price[kind], before[kind], width_s
            )
            if cost < least:
                least, start_s, where = cost, at_s, kind
    _occupy(used[where], width_s, start_s, start_s + load.runs_s[job], gpus)
    return least


@entry
def charge(load: Load, price: FloatArray, width_s: float, used: FloatArray) -> float:
    """The bound at some prices (T, C); fills used (T, C) with the GPU-seconds asked for."""
    types, cells = price.shape
    before = np.zeros((types, cells + 1))
    used[:] = 0.0
    bound = 0.0
    for kind in range(types):
        for cell in range(cells):
            before[kind, cell + 1] = before[kind, cell] + price[kind, cell] * width_s
        bound -= load.there[kind] * before[kind, cells]
    for job in range(len(load.submit_s)):
        bound += _admit(load, job, price, before, width_s, used)
    return bound


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """`bound` of scripts.studies."""
    parser = commands.add_parser("bound", help="add lower bounds to results of rltuned evaluate")
    parser.set_defaults(run=_add)
    parser.add_argument("results", type=Path, help="results.json of rltuned evaluate")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="its --trace and --cluster")


def _add(asked: argparse.Namespace) -> None:
    """Add `bound` and `closed_of_fcfs_to_bound` to every comparison of a results.json."""
    options = argparse.ArgumentParser()
    options.add_argument("--trace", type=Path, action="append")
    options.add_argument("--cluster", action="append")
    given, _ = options.parse_known_args(asked.options)
    clusters = [cluster_named(name) for name in given.cluster]
    grounds = {s.ground.name: s.ground for s in from_files(given.trace, clusters)}
    document = json.loads(asked.results.read_text())
    for found in document["comparisons"]:
        plan = EvaluationPlan(**found["plan"] | {"part": tuple(found["plan"]["part"])})
        windows, _ = windows_of(grounds[found["ground"]], plan)
        reached = [play_rule(w, CLAIRVOYANT) for w in windows]
        both = list(zip(windows, reached, strict=True))
        wait = float(np.mean([least_wait(w, s) for w, s in both]))
        bound = {
            "wait_s": wait,
            "jct_s": wait + float(np.mean([w.prepared.jobs.runs_s.mean() for w in windows])),
            "bsld": float(np.mean([least_bsld(w, s) for w, s in both])),
        }
        means, fcfs = found["policies"], found["policies"]["fcfs"]
        found["bound"] = bound
        found["closed_of_fcfs_to_bound"] = {
            model: {m: (fcfs[m] - means[model][m]) / (fcfs[m] - end) for m, end in bound.items()}
            for model in found["paired"]
        }
    asked.results.write_text(json.dumps(document) + "\n")
