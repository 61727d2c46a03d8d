"""What the studies of orders share: traces and their limits, and one play in the daemon's cycles.

A site orders by age alone (sim/natural.AGE_ONLY). What an order knows of run times is `limit`: the
limits alone; `shipped`: a predictor that has met no job of the cluster; `site`: one fitted to the
first jobs of the trace; `true`: the run times themselves, which no scheduler can have.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rltuned.core.decide import Knobs, Policy
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.numbers import Writing
from rltuned.core.order import Order
from rltuned.core.run_times import PLAN_SCALE
from rltuned.lab.replay.metrics import slowdown
from rltuned.lab.replay.orders import in_cycles, layers_of
from rltuned.lab.replay.play import Played
from rltuned.lab.replay.play import run as play_out
from rltuned.lab.replay.run import possible
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import jittered, read_trace, scale
from rltuned.lab.train.predictor import fit
from rltuned.policies.baselines import BASELINES, Baseline
from rltuned.policies.predictor import Predictor, load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.cluster import Cluster, preset, read_cluster
from rltuned.sim.limits import draw_limits
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace, TraceJob
from rltuned.sim.world import AGE_ONLY, BackfillRule, Natural, Rules
from scripts.studies.runner import Row

TRACES = Path("../shared/traces")
ORDERS = (("fcfs", "limit"), ("delay", "limit"), ("delay", "shipped"), ("delay", "site"),
          ("qssf", "site"), ("clairvoyant", "true"))  # fmt: skip
"""Policies, each with what it knows."""
STRENGTHS = ("own", "weak", "none")
"""How much limits tell of run times: the trace's own, or drawn to tell little or nothing."""
LIMITS_SEED = 5
PURE = Order(own=1_000.0, share=0.0, clip=1e9, max_delay_s=1e15)
PURE_SITE = replace(AGE_ONLY, age_weight=AGE_ONLY.age_weight // 1_000, base=2_000_000_000)
"""Without bounds: a point is a thousand seconds, so that there is room for a thousand times D."""
COPIES = 4
"""With submit times moved by up to JITTER_S; the seed of a copy is its number."""
JITTER_S = 60.0


@dataclass(frozen=True)
class Workload:
    """A part of a trace: jobs first to last of at most so many GPUs, on the first nodes."""

    title: str
    trace: str
    first: int = 0
    last: int = 10**9
    most_gpus: int = 10**9
    nodes: int = 10**9


SMALL = "testbed"
"""Where first come, first served is best; geometric means leave it out."""
GROUNDS = {
    "philly-nov-1": Workload("Philly, November, part 1", "philly_2017-11", 0, 12_000, 32),
    "philly-nov-2": Workload("Philly, November, part 2", "philly_2017-11", 30_000, 42_000, 32),
    "helios-venus": Workload("Helios Venus", "helios_venus_2020", 2_000, 6_000, 64, 52),
    "thetagpu-1": Workload("ThetaGPU, part 1", "thetagpu_2023", 0, 11_000),
    "thetagpu-2": Workload("ThetaGPU, part 2", "thetagpu_2023", 11_000, 22_000),
    SMALL: Workload("Testbed, 13 GPUs", ""),
}


@cache
def trace_of(ground: str, load: float, copy: int, limits: str) -> tuple[Cluster, Trace]:
    """The trace's jobs, scaled to the load, with submit times moved."""
    part = GROUNDS[ground]
    if not part.trace:
        cluster = preset("testbed")
        trace = synthesize("testbed-1024", jobs=8_000, seed=7, limits="weak")
    else:
        cluster = read_cluster(TRACES / f"{part.trace}.toml")
        cluster = replace(cluster, nodes=cluster.nodes[: part.nodes])
        trace = read_trace(TRACES / f"{part.trace}.csv.gz")
    made = loaded(trace.jobs[part.first : part.last], cluster, load, part.most_gpus)
    limited = replace(made, jobs=with_limits(made.jobs, limits, cluster))
    return cluster, jittered(limited, JITTER_S, copy)


def loaded(
    jobs: Sequence[TraceJob], cluster: Cluster, load: float, most_gpus: int = 10**9
) -> Trace:
    """The jobs that fit the cluster and ask for at most so many GPUs, at a load."""
    fitting, _ = possible(jobs, cluster, skip=True)
    kept = tuple(job for job in fitting if job.gpus <= most_gpus)
    return scale(Trace(kept, {}), load, cluster.gpus)


def with_limits(
    jobs: tuple[TraceJob, ...], strength: str, cluster: Cluster
) -> tuple[TraceJob, ...]:
    """The jobs with limits of a strength; the same draw in every copy."""
    if strength == "own":
        return jobs
    rng = np.random.default_rng(LIMITS_SEED)
    run_s = np.array([j.duration_s for j in jobs])
    drawn = draw_limits(run_s, "weak" if strength == "weak" else "none", rng).tolist()
    most_s = min((p.max_time_s or math.inf) for p in cluster.partitions)
    pairs = zip(jobs, drawn, strict=True)
    return tuple(replace(job, time_limit_s=min(limit_s, most_s)) for job, limit_s in pairs)


@dataclass(frozen=True)
class Outcome:
    """One play. wait_s, run_s: (n,) of its jobs, in order of submission."""

    played: Played
    wait_s: FloatArray
    run_s: FloatArray

    def figures(self, last: int = 0) -> Row:
        """Of the last so many jobs; 0 = of all."""
        wait_s, run_s = self.wait_s[-last:], self.run_s[-last:]
        return {
            "wait_s": float(wait_s.mean()),
            "wait_p99_s": float(np.quantile(wait_s, 0.99)),
            "wait_max_s": float(wait_s.max()),
            "bsld": float(slowdown(wait_s, run_s).mean()),
        }


def play(
    cluster: Cluster,
    jobs: Sequence[TraceJob],
    policy: Policy,
    *,
    order: Order | None = None,
    natural: Natural = AGE_ONLY,
    predictor: Predictor | None = None,
    hysteresis: float = Writing().hysteresis,
    backfill: BackfillRule = "easy",
) -> Outcome:
    """Jobs in the daemon's cycles of 60 s, with an empty memory of run times at first.

    order: PURE needs the natural PURE_SITE; None = the daemon's bounds.
    """
    layers = None if predictor is None else layers_of(predictor)
    rules = Rules(backfill, natural=natural)
    scenario = replace(Scenario.of(cluster, jobs, rules), predictor=layers)
    knobs = Knobs(top_k=0, order=order or Order(), writing=Writing(hysteresis=hysteresis))
    ranking, cycles, eyes = in_cycles(policy, scenario, knobs, 60.0)
    played = play_out(scenario, ranking, cycles=cycles, eyes=eyes)
    run_s = np.array([min(j.duration_s, j.time_limit_s) for j in jobs])
    return Outcome(played, played.start_s - scenario.submit_s, run_s)


def row(run: Any, cluster: Cluster, jobs: Sequence[TraceJob], policy: Policy, **how: Any) -> Row:
    """The run and its figures; the slowdown is of the run time without the limit."""
    began = time.process_time()
    found = play(cluster, jobs, policy, **how)
    found = replace(found, run_s=np.array([job.duration_s for job in jobs]))
    writes, cpu_s = float(found.played.writes.mean()), round(time.process_time() - began, 1)
    return asdict(run) | found.figures() | {"writes_per_job": writes, "cpu_s": cpu_s}


def policy_of(name: str, jobs: Sequence[TraceJob]) -> Policy:
    """A policy of ORDERS, or a rule."""
    return BASELINES.get(name) or clairvoyant(jobs, PLAN_SCALE)


def clairvoyant(jobs: Sequence[TraceJob], scale: float = 1.0) -> Baseline:
    """`delay` with scale x sqrt(limit x true run time) for the plan, and places by true areas."""
    run_s = np.array([min(job.duration_s, job.time_limit_s) for job in jobs])

    def delay_s(matrix: StateMatrix) -> FloatArray:
        found: FloatArray = scale * np.sqrt(matrix.length_s * run_s * matrix.size)
        return found

    def area(matrix: StateMatrix) -> FloatArray:
        found: FloatArray = run_s * matrix.size
        return found

    return Baseline("clairvoyant", lambda matrix: -delay_s(matrix), delay_s, area)


def predictor_of(
    knowledge: str, first: Callable[[], Sequence[TraceJob]] = tuple
) -> Predictor | None:
    """What an order knows; `first` gives the jobs that `site` is fitted to."""
    if knowledge in {"limit", "true"}:
        return None
    shipped = load_predictor(shipped_predictor())
    return shipped if knowledge == "shipped" else fit(tuple(first()), begin=shipped).predictor
