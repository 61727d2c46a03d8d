"""Orders on windows of long traces: what predictions change, with and without bounds.

    python -m scripts.studies.windows run [--minutes M]
    python -m scripts.studies.windows table

Three clusters are real; no public trace has names of jobs. SCRIPTS are generated: users submit the
same scripts again and again and go on holiday, and so much of the variance of ln(run time) within a
user lies between scripts. How large that share is at a site is unknown.

Each trace is scaled to LOAD as a whole. The predictor `site` is fitted to its first FIRST
share; the windows of WINDOW_JOBS jobs begin at equal distances in the rest. They share jobs where
the rest is short, so the unit of chance is a stretch of WINDOW_JOBS jobs, not a window. Every
window is played by each order with the WARM_UP jobs before it, which fill the queue and the memory
and are in no figure. Limits are those of scripts/studies/run_times, cycles are of 60 s.

`limit`, `shipped` and `site` say what an order knows of run times. An order with `pure` has no
bounds (scripts/studies/delays); `saf` is pure by definition.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from rltuned.core.decide import Knobs, Policy
from rltuned.core.order import Order
from rltuned.core.run_times import PLAN_SCALE, FloatArray
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.cluster import Cluster, read_cluster
from rltuned.sim.habits import Habits
from rltuned.sim.natural import AGE_ONLY
from rltuned.sim.orders import Stage
from rltuned.sim.prepared import prepare
from rltuned.sim.presets import preset
from rltuned.sim.reshape import scale
from rltuned.sim.run import possible
from rltuned.sim.run_times import layers_of
from rltuned.sim.synth import SHAPES, jobs_of
from rltuned.sim.trace import Trace, TraceJob, read_trace
from rltuned.stats import drawn, interval
from rltuned.train.predictor import fit
from scripts.studies.delays import (
    PURE,
    PURE_SITE,
    TRACES,
    clairvoyant,
    in_minutes,
    known,
    play_missing,
)
from scripts.studies.run_times import STRENGTHS, with_limits

RESULTS = Path("docs/data/windows.jsonl")
LOAD, FIRST, WINDOWS, WINDOW_JOBS, WARM_UP = 0.9, 0.4, 40, 1_024, 3_000
CLUSTERS = {"philly": ("philly_2017-11", 32), "venus": ("helios_venus_2020", 64),
            "thetagpu": ("thetagpu_2023", 10**9)}  # fmt: skip
"""Traces, and the most GPUs of a job."""
STRIDE = 17
SCRIPTS = {"scripts-30": 0.3, "scripts-60": 0.6, "scripts-90": 0.9}
SCRIPT_JOBS, SCRIPT_SEED, AWAY = 30_000, 11, 0.2
ORDERS = (
    ("fcfs", "limit", False),
    ("saf", "limit", True),
    ("delay", "limit", True),
    ("delay", "shipped", True),
    ("delay", "site", True),
    ("qssf", "site", True),
    ("clairvoyant", "true", True),
    ("delay", "limit", False),
    ("delay", "shipped", False),
    ("delay", "site", False),
    ("rltune", "shipped", False),
    ("rltune", "site", False),
    ("clairvoyant", "true", False),
)
WORSE = 1.02
DRAWS = 10_000
AGAINST_SAF = (("delay", "limit"), ("delay", "shipped"), ("delay", "site"), ("qssf", "site"),
               ("clairvoyant", "true"))  # fmt: skip
AGAINST_LIMITS = (("delay", "shipped"), ("delay", "site"), ("rltune", "shipped"),
                  ("rltune", "site"), ("clairvoyant", "true"))  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One order on one window. pure: without bounds."""

    cluster: str
    limits: str
    window: int
    policy: str
    knowledge: str
    pure: bool


def runs() -> Iterator[Run]:
    """Window by window, far apart, so that an interrupted study is even; informative limits of
    generated jobs are left out.
    """
    cells = [*product(CLUSTERS, STRENGTHS), *product(SCRIPTS, ("weak", "none"))]
    for at, (cluster, limits), order in product(range(WINDOWS), cells, ORDERS):
        yield Run(cluster, limits, at * STRIDE % WINDOWS, *order)


@cache
def trace_of(name: str, strength: str) -> tuple[Cluster, tuple[TraceJob, ...]]:
    """A cluster, and all jobs that fit it."""
    if name in SCRIPTS:
        return _generated(SCRIPTS[name], strength)
    trace_name, most_gpus = CLUSTERS[name]
    cluster = read_cluster(TRACES / f"{trace_name}.toml")
    trace = read_trace(TRACES / f"{trace_name}.csv.gz")
    fitting, _ = possible(trace.jobs, cluster, skip=True)
    jobs = tuple(job for job in fitting if job.gpus <= most_gpus)
    scaled = scale(replace(trace, jobs=jobs), LOAD, cluster.gpus)
    return cluster, with_limits(scaled.jobs, strength, cluster)


def _generated(script_share: float, strength: str) -> tuple[Cluster, tuple[TraceJob, ...]]:
    cluster = preset("philly-192")
    made = jobs_of(
        SHAPES["philly-like"],
        jobs=SCRIPT_JOBS,
        seed=SCRIPT_SEED,
        limits="informative",
        habits=Habits(script_share, away=AWAY),
    )
    fitting, _ = possible(made, cluster, skip=True)
    scaled = scale(Trace(fitting, {}), LOAD, cluster.gpus)
    return cluster, with_limits(scaled.jobs, strength, cluster)


def begins(jobs: int) -> list[int]:
    """Where the windows begin."""
    return [int(at) for at in np.linspace(int(jobs * FIRST), jobs - WINDOW_JOBS, WINDOWS)]


@cache
def predictor_of(name: str, strength: str, knowledge: str) -> Predictor | None:
    """What an order knows."""
    if knowledge in {"limit", "true"}:
        return None
    shipped = load_predictor(shipped_predictor())
    if knowledge == "shipped":
        return shipped
    _, jobs = trace_of(name, strength)
    return fit(jobs[: int(len(jobs) * FIRST)], begin=shipped).predictor


def play(run: Run) -> dict[str, float]:
    """Its figures, of the window's jobs alone."""
    cluster, every = trace_of(run.cluster, run.limits)
    first = begins(len(every))[run.window]
    jobs = every[max(0, first - WARM_UP) : first + WINDOW_JOBS]
    predictor = predictor_of(run.cluster, run.limits, run.knowledge)
    layers = None if predictor is None else layers_of(predictor)
    natural, order = (PURE_SITE, PURE) if run.pure else (AGE_ONLY, Order())
    stage = Stage(cluster, jobs, prepare(cluster, jobs), natural, predictor=layers)
    policy: Policy = BASELINES.get(run.policy) or clairvoyant(jobs, PLAN_SCALE)
    if run.policy == "rltune":
        policy = load_actor(Path("models/rltune"))
    played = in_minutes(stage, policy, Knobs(top_k=0, order=order))
    wait_s = (played.start_s - stage.prepared.jobs.submit_s)[-WINDOW_JOBS:]
    run_s = np.array([min(j.duration_s, j.time_limit_s) for j in jobs[-WINDOW_JOBS:]])
    return asdict(run) | {
        "begin": first,
        "wait_s": round(float(wait_s.mean()), 2),
        "wait_max_s": round(float(wait_s.max())),
        "bsld": round(float(np.maximum((wait_s + run_s) / np.maximum(run_s, 10.0), 1.0).mean()), 3),
    }


Cell = dict[tuple[str, str, bool], dict[int, dict[str, float]]]


def table() -> None:
    """Ratios of means over windows with 95% intervals, and the share of windows that lose."""
    cells: dict[tuple[str, str], Cell] = defaultdict(lambda: defaultdict(dict))
    for run, row in known(RESULTS, Run).items():
        cells[run.limits, run.cluster][run.policy, run.knowledge, run.pure][run.window] = row
    _print(cells, "Without bounds, against SAF", AGAINST_SAF, ("saf", "limit", True))
    _print(cells, "Within the bounds, against the limits alone", AGAINST_LIMITS,
           ("delay", "limit", False))  # fmt: skip


def _print(
    cells: dict[tuple[str, str], Cell],
    title: str,
    orders: tuple[tuple[str, str], ...],
    base: tuple[str, str, bool],
) -> None:
    print(f"| {title} | order | wait | slowdown | longest | windows over +2% | of the way |")
    print("|---|---|---|---|---|---|---|")
    for (limits, cluster), cell in sorted(cells.items()):
        best = cell["clairvoyant", "true", base[2]]
        for order in orders:
            own, other = cell[*order, base[2]], cell[base]
            shared = sorted(own.keys() & other.keys() & best.keys())
            if not shared:
                continue
            pairs = [(own[w], other[w]) for w in shared]
            ratios = [_ratio(pairs, name) for name in ("wait_s", "bsld")]
            longest = max(a["wait_max_s"] for a, _ in pairs) / max(
                b["wait_max_s"] for _, b in pairs
            )
            lost = sum(a["wait_s"] > WORSE * b["wait_s"] + 1.0 for a, b in pairs) / len(pairs)
            gained, possible_s = (
                sum(other[w]["wait_s"] - some[w]["wait_s"] for w in shared) for some in (own, best)
            )
            print(f"| {limits}, {cluster}, {len(shared)} | {', '.join(order)} | {ratios[0]} |"
                  f" {ratios[1]} | {longest:.2f} | {lost:.0%} |"
                  f" {gained / possible_s:.0%} |")  # fmt: skip


def _ratio(pairs: list[tuple[dict[str, float], dict[str, float]]], name: str) -> str:
    """Change of the mean over windows; its interval draws stretches of WINDOW_JOBS jobs."""
    stretch = np.array([int(a["begin"]) // WINDOW_JOBS for a, _ in pairs])
    _, of = np.unique(stretch, return_inverse=True)
    weights = drawn(int(of.max()) + 1, DRAWS)
    sums: list[FloatArray] = [
        np.bincount(of, weights=[row[name] for row in side]).astype(np.float64)
        for side in zip(*pairs, strict=True)
    ]
    low, high = interval((weights @ sums[0]) / (weights @ sums[1]) - 1)
    return f"{sums[0].sum() / sums[1].sum() - 1:+.0%} [{low:+.0%}, {high:+.0%}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--minutes", type=float, default=600.0)
    asked = parser.parse_args()
    if asked.what == "run":
        play_missing(RESULTS, runs(), play, asked.minutes)
    else:
        table()


if __name__ == "__main__":
    main()
