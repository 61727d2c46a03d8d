"""Is joint placement worth it? Paired windows under one order, only the placement differs.

    nice python -m scripts.placement_study [--world NAME ...] [--load 0.9 ...] [--windows 16]
        [--first 1] [--mode event|cycle ...] [--policy saf ...] [--variant NAME ...]
        [--weights key=value,... ...] [--results FILE] [--minutes 12] [--table]

Variants: pack (best fit), spread (worst fit), first (first fit); milp:K (jobs go to the nodes of
the solution); order:K (Slurm packs by itself, only the order reaches it); steer:K (order, and jobs
that accept several GPU types are kept off some); share:K (order, and exclusive jobs may be told to
share); all:K (order, steer and share: what the daemon does when it is allowed all of it). Every
window played is a line of the results file, and is not played again: a study goes on where it was
stopped. `--table` prints what the file holds. A policy is a name of `rltuned simulate`; `~column`
behind it hides a feature from it, as in model:rltune-paper~num_ways.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pulp

from rltuned.core.decide import Policy
from rltuned.core.features import COLUMN, FloatArray, StateMatrix
from rltuned.core.joint import Tuning
from rltuned.core.milp import Budget, Weights
from rltuned.core.sharing import Sharing
from rltuned.core.steering import Steer
from rltuned.errors import SolverError
from rltuned.sim import fragmentation
from rltuned.sim.cluster import Cluster
from rltuned.sim.metrics import Schedule
from rltuned.sim.policy import policy_of
from rltuned.sim.protocol import Protocol, jointly, play_decided, play_direct
from rltuned.sim.run import Window, schedule_of, simulate
from rltuned.sim.world import Rules
from rltuned.solver import cbc
from scripts.placement_worlds import WORLDS, window

PLAIN = {"pack", "spread", "first"}
SHARING = {"share", "all"}
STEERING = {"steer", "all"}
BASE = "pack"
RESULTS = Path(".run/placement/study.jsonl")
BUDGET_KEYS = {"max_slots"}
"""Settings of the budget that --weights takes besides the weights."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One window under one placement. weights: what differs from the defaults, "" for PLAIN."""

    world: str
    load: float
    mode: str
    policy: str
    variant: str
    weights: str
    number: int


@dataclass(slots=True)
class Counted:
    """CBC, with its calls counted and timed."""

    solves: int = 0
    failures: int = 0
    seconds: float = 0.0

    def __call__(self, problem: pulp.LpProblem, budget: Budget) -> Mapping[str, float]:
        began = time.perf_counter()
        self.solves += 1
        try:
            return cbc()(problem, budget)
        except SolverError:
            self.failures += 1
            raise
        finally:
            self.seconds += time.perf_counter() - began


def tuning_of(weights: str, **kwargs: Any) -> Tuning:
    """Tuning from `key=value,...`; a solver on a shared machine gets ten times its usual budget."""
    given = {k: float(v) for k, v in (pair.split("=") for pair in weights.split(",") if pair)}
    slots = int(given.pop("max_slots", Budget().max_slots))
    return Tuning(
        weights=replace(Weights(), **given), budget=Budget(10.0, max_slots=slots), **kwargs
    )


@dataclass(frozen=True, slots=True)
class Blind:
    """A policy that no longer sees some features: zero for every job."""

    seeing: Policy
    hidden: tuple[str, ...]

    @property
    def name(self) -> str:
        return "~".join((self.seeing.name, *self.hidden))

    static = False

    def score(self, matrix: StateMatrix) -> FloatArray:
        values = matrix.values.copy()
        values[:, [COLUMN[name] for name in self.hidden]] = 0.0
        return self.seeing.score(replace(matrix, values=values))

    def delay_s(self, matrix: StateMatrix) -> FloatArray:
        values = matrix.values.copy()
        values[:, [COLUMN[name] for name in self.hidden]] = 0.0
        return self.seeing.delay_s(replace(matrix, values=values))


def play(cell: Cell, one: Window, cluster: Cluster, solver: Counted) -> Schedule:
    """One window under the cell's placement."""
    protocol = protocol_of(cell, cluster, solver)
    policy, *hidden = cell.policy.split("~")
    if not hidden:
        return simulate(one, cluster, policy, protocol)
    seeing = policy_of(policy)
    if seeing is None:
        raise SystemExit(f"{policy} has no features to hide")
    direct = protocol.mode == "event" and not protocol.is_joint
    played = (play_direct if direct else play_decided)(
        cluster, one.jobs, Blind(seeing, tuple(hidden)), protocol
    )
    return schedule_of(played, one, cluster, 0.0)


def protocol_of(cell: Cell, cluster: Cluster, solver: Counted) -> Protocol:
    """How the cell's variant is played."""
    name, _, top_k = cell.variant.partition(":")
    mode: Any = cell.mode
    if name in PLAIN:
        rule: Any = name
        return Protocol(mode, rules=Rules(placement=rule))
    scope = frozenset(p.name for p in cluster.partitions) if name in SHARING else frozenset()
    tuning = tuning_of(
        cell.weights, sharing=Sharing(scope), steer=Steer(name in STEERING), steered=name == "milp"
    )
    return jointly(Protocol(mode), int(top_k), tuning, solver)


def figures(schedule: Schedule, cluster: Cluster) -> dict[str, float]:
    """Mean wait and BSLD of the jobs after the warm-up; utilisation and scraps of all.

    busy: utilisation from the end of the warm-up to the last submit, without filling and draining.
    """
    kept = slice(schedule.warmup, None)
    wait = (schedule.start_s - schedule.submit_s)[kept]
    runs = (schedule.end_s - schedule.start_s)[kept]
    span = float(schedule.end_s.max() - schedule.submit_s.min())
    used = float((schedule.gpus * (schedule.end_s - schedule.start_s)).sum())
    since, until = schedule.submit_s[kept].min(), schedule.submit_s.max()
    inside = np.clip(schedule.end_s, since, until) - np.clip(schedule.start_s, since, until)
    return {
        "wait_s": float(wait.mean()),
        "bsld": float(np.maximum(1.0, (wait + runs) / np.maximum(runs, 10.0)).mean()),
        "utilisation": used / (cluster.gpus * span),
        "busy": float((schedule.gpus * inside).sum()) / (cluster.gpus * max(until - since, 1.0)),
        "scraps": float(fragmentation.mean(schedule, cluster)),
    }


def paired(base: list[float], other: list[float], seed: int = 1) -> tuple[float, float, float]:
    """Ratio of means, and its 95% interval over windows drawn again."""
    a, b = np.array(base), np.array(other)
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, len(a), size=(4_000, len(a)))
    ratios = b[draws].sum(axis=1) / np.maximum(a[draws].sum(axis=1), 1e-9)
    low, high = np.percentile(ratios, (2.5, 97.5))
    return float(b.sum() / max(a.sum(), 1e-9)), float(low), float(high)


Done = dict[Cell, dict[str, float]]


def read(path: Path) -> Done:
    """What was played already."""
    if not path.exists():
        return {}
    names = [f.name for f in fields(Cell)]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {Cell(**{k: row[k] for k in names}): row["figures"] for row in rows}


def cells(args: argparse.Namespace) -> Iterator[Cell]:
    """All that was asked for, window by window, so that what is there is always paired."""
    numbers = range(args.first, args.first + args.windows)
    grid = itertools.product(numbers, args.world, args.load, args.mode, args.policy)
    for number, world, load, mode, policy in grid:
        for variant in [BASE, *args.variant]:
            for weights in [""] if variant in PLAIN else args.weights:
                yield Cell(world, load, mode, policy, variant, weights, number)


def run(args: argparse.Namespace, done: Done) -> None:
    """Play what is missing until it is all there or the time is up."""
    deadline, solver = time.monotonic() + 60 * args.minutes, Counted()
    args.results.parent.mkdir(parents=True, exist_ok=True)
    missing = [cell for cell in dict.fromkeys(cells(args)) if cell not in done]
    with args.results.open("a") as out:
        for at, cell in enumerate(missing):
            if time.monotonic() > deadline:
                sys.stderr.write(f"time is up: {len(missing) - at} of {len(missing)} left\n")
                break
            world = WORLDS[cell.world]
            one = window(world, cell.number, cell.load)
            found = figures(play(cell, one, world.cluster, solver), world.cluster)
            done[cell] = found
            out.write(json.dumps(asdict(cell) | {"figures": found}) + "\n")
            out.flush()
    sys.stderr.write(
        f"{solver.solves} programs in {solver.seconds:.1f} s, {solver.failures} without answer\n"
    )


def table(args: argparse.Namespace, done: Done) -> Iterable[str]:
    """One line per comparison: mean, ratio to packing and its interval, of every figure."""
    asked = dict.fromkeys(replace(cell, number=0) for cell in cells(args))
    numbers = range(args.first, args.first + args.windows)
    for cell in asked:
        base = replace(cell, variant=BASE, weights="")
        both = [
            (done[replace(base, number=n)], done[replace(cell, number=n)])
            for n in numbers
            if replace(base, number=n) in done and replace(cell, number=n) in done
        ]
        if not both:
            continue
        parts = []
        for key in both[0][0]:
            ratio, low, high = paired([b[key] for b, _ in both], [o[key] for _, o in both])
            mean = np.mean([o[key] for _, o in both])
            parts.append(f"{key} {mean:.4g} x{ratio:.3f} [{low:.3f}, {high:.3f}]")
        head = f"{cell.world} {cell.load} {cell.mode} {cell.policy} {cell.variant} {cell.weights}"
        yield f"{head} n={len(both)}: " + "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--load", nargs="+", type=float, default=[0.9])
    parser.add_argument("--mode", nargs="+", choices=["event", "cycle"], default=["event"])
    parser.add_argument("--policy", nargs="+", default=["saf"])
    parser.add_argument("--variant", nargs="+", default=["first", "spread", "milp:16", "order:16"])
    parser.add_argument("--weights", nargs="+", default=[""])
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--first", type=int, default=1, help="seed of the first window")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--minutes", type=float, default=12.0, help="stop after; 0 = only print")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    done = read(args.results)
    run(args, done)
    if args.table:
        for line in table(args, done):
            print(line)


if __name__ == "__main__":
    main()
