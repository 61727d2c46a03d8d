"""Is joint placement worth it? Paired windows under one order, only the placement differs.

    nice python -m scripts.placement_study WORLD [--load 0.9] [--windows 12] [--first 1]
        [--jobs 192] [--policy saf] [--variant NAME ...] [--weights key=value,...] [--json OUT]

Worlds: see WORLDS. Variants: pack (best fit), spread (worst fit), milp:K (jobs go where the
solution says), order:K (Slurm packs by itself, only order and flags reach it), share:K (order, and
exclusive jobs may be told to share). Window i is generated from seed i, so windows are independent.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pulp

from rltuned.core.joint import Tuning
from rltuned.core.milp import Budget, Weights
from rltuned.core.sharing import Sharing
from rltuned.errors import SolverError
from rltuned.sim import fragmentation
from rltuned.sim.cluster import Cluster, parse_cluster
from rltuned.sim.metrics import Schedule
from rltuned.sim.presets import preset
from rltuned.sim.protocol import Protocol, jointly
from rltuned.sim.run import Window, possible, simulate
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from rltuned.solver import cbc

TYPED = """
[[partitions]]
name = "gpu"
default = true
""" + "".join(
    f"""
[[nodes]]
name = "{prefix}[1-{count}]"
gpu_type = "{kind}"
gpus = {gpus}
cpus = {cpus}
mem_mib = {gpus * 60_000}
partitions = ["gpu"]
"""
    for prefix, count, kind, gpus, cpus in (
        ("h", 2, "V100", 8, 96), ("m", 4, "MISC", 8, 96), ("p", 8, "P100", 2, 64),
        ("t", 8, "T4", 2, 96),
    )
)  # fmt: skip
"""A small cluster in the mould of Alibaba PAI: 80 GPUs of four types."""


SMALLEST = 2
"""GPUs of the smallest nodes: larger jobs stay with their type, whose nodes can carry them."""
WIDE = 4
"""From so many GPUs on, a job keeps its usual CPUs: it would fit nowhere else."""


@dataclass(frozen=True, slots=True)
class World:
    """How the jobs of a window are made, and where they run."""

    cluster: Callable[[], Cluster]
    make: Callable[[int, int], tuple[TraceJob, ...]]
    warmup: int = 48


def _typed() -> Cluster:
    return parse_cluster(TYPED, "study", "typed-80")


def _testbed() -> Cluster:
    return preset("testbed")


def _philly() -> Cluster:
    return preset("philly-192")


def _jobs(kind: str, free_share: float = 0.0) -> Callable[[int, int], tuple[TraceJob, ...]]:
    def make(count: int, seed: int) -> tuple[TraceJob, ...]:
        return synthesize(kind, jobs=count, seed=seed, limits="weak", free_share=free_share).jobs

    return make


def _typed_jobs(free_share: float) -> Callable[[int, int], tuple[TraceJob, ...]]:
    """The testbed's runs and limits, sizes and types drawn for the cluster `typed-80`."""

    def make(count: int, seed: int) -> tuple[TraceJob, ...]:
        rng = np.random.default_rng((seed, 5))
        nodes = _typed().nodes
        sizes = rng.choice((1, 2, 4, 8, 16), size=count, p=(0.45, 0.2, 0.2, 0.1, 0.05))
        at = rng.choice(len(nodes), size=count, p=[n.total.gpus / 80 for n in nodes])
        free = rng.random(count) < free_share
        found = []
        for i, job in enumerate(_jobs("testbed-1024")(count, seed)):
            kind, each = nodes[at[i]].gpus[0].gpu_type, nodes[at[i]].total.gpus
            gpus = int(min(sizes[i], 2 * each))
            types = () if free[i] and gpus <= SMALLEST else (str(kind),)
            found.append(
                replace(job, gpus=gpus, gpu_types=types, cpus=4 * gpus, mem_mib=12_000 * gpus)
            )
        return tuple(found)

    return make


def _cpu_bound(
    jobs: Callable[[int, int], tuple[TraceJob, ...]],
) -> Callable[[int, int], tuple[TraceJob, ...]]:
    """CPUs per GPU between 1 and 12: some nodes run out of CPUs, some of GPUs."""

    def make(count: int, seed: int) -> tuple[TraceJob, ...]:
        rng = np.random.default_rng((seed, 7))
        per_gpu = rng.choice((1, 2, 4, 8, 12), size=count, p=(0.2, 0.3, 0.25, 0.15, 0.1))
        return tuple(
            replace(job, cpus=int(job.gpus * each) if job.gpus < WIDE else job.cpus)
            for job, each in zip(jobs(count, seed), per_gpu, strict=True)
        )

    return make


def _exclusive(
    jobs: Callable[[int, int], tuple[TraceJob, ...]], share: float
) -> Callable[[int, int], tuple[TraceJob, ...]]:
    """Part of the jobs asks for whole nodes, as users do who once met a bad neighbour."""

    def make(count: int, seed: int) -> tuple[TraceJob, ...]:
        alone = np.random.default_rng((seed, 11)).random(count) < share
        made = jobs(count, seed)
        return tuple(replace(j, exclusive=bool(a)) for j, a in zip(made, alone, strict=True))

    return make


_TESTBED, _MIXED = _jobs("testbed-1024"), _jobs("testbed-1024", 0.5)
WORLDS = {
    "testbed": World(_testbed, _TESTBED),
    "testbed-mixed": World(_testbed, _MIXED),
    "testbed-cpu": World(_testbed, _cpu_bound(_MIXED)),
    "testbed-exclusive": World(_testbed, _exclusive(_TESTBED, 0.5)),
    "testbed-all-exclusive": World(_testbed, _exclusive(_TESTBED, 1.0)),
    "typed": World(_typed, _typed_jobs(0.0)),
    "typed-mixed": World(_typed, _typed_jobs(0.5)),
    "typed-cpu": World(_typed, _cpu_bound(_typed_jobs(0.5))),
    "typed-exclusive": World(_typed, _exclusive(_typed_jobs(0.5), 0.25)),
    "philly": World(_philly, _jobs("philly-like")),
    "philly-cpu": World(_philly, _cpu_bound(_jobs("philly-like"))),
    "helios": World(_philly, _jobs("helios-like")),
}
"""Names ending in -mixed: half of the jobs accept other types; -exclusive: a part of the jobs asks
for whole nodes; -cpu: CPUs per GPU differ from job to job."""


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


SOLVER = Counted()


def stretched(jobs: tuple[TraceJob, ...], load: float, gpus: int) -> tuple[TraceJob, ...]:
    """Submit times scaled so that mean GPU demand over the arrivals is `load` of the GPUs."""
    work = sum(j.gpus * min(j.duration_s, j.time_limit_s) for j in jobs)
    span = jobs[-1].submit_s - jobs[0].submit_s
    factor = work / (load * gpus * max(span, 1.0))
    return tuple(replace(j, submit_s=round(j.submit_s * factor)) for j in jobs)


def window(world: World, cluster: Cluster, number: int, count: int, load: float) -> Window:
    # of heavy-tailed run times the longest would alone decide a window's load
    jobs, _ = possible(world.make(count, number), cluster, skip=True)
    capped = tuple(replace(j, duration_s=min(j.duration_s, 86_400.0)) for j in jobs)
    return Window(number, stretched(capped, load, cluster.gpus), world.warmup)


def play(one: Window, cluster: Cluster, policy: str, variant: str, weights: Weights) -> Schedule:
    name, _, top_k = variant.partition(":")
    if name in {"pack", "spread"}:
        return simulate(one, cluster, policy, Protocol(rules=Rules(placement=name)))  # type: ignore[arg-type]
    scope = frozenset(p.name for p in cluster.partitions) if name == "share" else frozenset()
    tuning = Tuning(weights=weights, sharing=Sharing(scope), steered=name == "milp")
    return simulate(one, cluster, policy, jointly(Protocol(), int(top_k), tuning, SOLVER))


def figures(schedule: Schedule, cluster: Cluster) -> dict[str, float]:
    kept = slice(schedule.warmup, None)
    wait = (schedule.start_s - schedule.submit_s)[kept]
    runs = (schedule.end_s - schedule.start_s)[kept]
    span = float(schedule.end_s.max() - schedule.submit_s.min())
    used = float((schedule.gpus * (schedule.end_s - schedule.start_s)).sum())
    return {
        "wait_s": float(wait.mean()),
        "bsld": float(np.maximum(1.0, (wait + runs) / np.maximum(runs, 10.0)).mean()),
        "utilisation": used / (cluster.gpus * span),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("world", choices=WORLDS)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--first", type=int, default=1, help="seed of the first window")
    parser.add_argument("--jobs", type=int, default=192)
    parser.add_argument("--policy", default="saf")
    parser.add_argument("--variant", action="append")
    parser.add_argument("--weights", default="")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    world = WORLDS[args.world]
    cluster = world.cluster()
    given = [pair.split("=") for pair in args.weights.split(",") if pair]
    weights = replace(Weights(), **{key: float(value) for key, value in given})
    variants = ["pack", *(args.variant or ["spread", "milp:16", "order:16"])]
    found: dict[str, list[dict[str, float]]] = {v: [] for v in variants}
    for number in range(args.first, args.first + args.windows):
        one = window(world, cluster, number, args.jobs, args.load)
        for variant in variants:
            found[variant].append(
                figures(play(one, cluster, args.policy, variant, weights), cluster)
            )
        sys.stderr.write(f"window {number} done\n")
    rows = {}
    for variant in variants:
        row = {}
        for key in found[variant][0]:
            base = [f[key] for f in found["pack"]]
            other = [f[key] for f in found[variant]]
            row[key] = (float(np.mean(other)), *paired(base, other))
        rows[variant] = row
        cells = (f"{k} {m:.4g} x{r:.3f} [{lo:.3f}, {hi:.3f}]" for k, (m, r, lo, hi) in row.items())
        print(f"{args.world} load {args.load} {args.policy} {variant}: " + "; ".join(cells))
    print(f"{SOLVER.solves} programs in {SOLVER.seconds:.1f} s, {SOLVER.failures} without answer")
    if args.json:
        args.json.write_text(json.dumps({"args": vars(args) | {"json": None}, "rows": rows}))


if __name__ == "__main__":
    main()
