"""The simulator: classic rules, a policy at every event, and a month of a whole cluster."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.readers import finish, read_philly_csv
from rltuned.lab.replay.run import play_all, simulate, windows
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import scale
from rltuned.policies.shelf import MODEL_PREFIX
from rltuned.sim.cluster import Cluster, idle_node, preset
from rltuned.sim.dispatch import BackfillRule
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace, TraceJob
from rltuned.sim.world import Rules
from scripts.benchmarks import Figure, peak_mib

SEED: Final = 1
ROUNDS: Final = 5
LOAD: Final = 0.9
WINDOWS: Final = 10
SOURCE: Final = "the authors' base pipeline on 10 x 256 jobs, same kind of machine"
OURS: Final = "own bound"
AUTHORS_JOBS_PER_S: Final = {"fcfs": 3_203.0, "sjf": 3_583.0}
MONTH_JOBS: Final = 58_854
MONTH_LOAD: Final = 0.73
"""What October 2017 offered: 1,823 of 2,490 GPUs."""
MONTH_TARGET_S: Final = 60.0
MONTH_TARGET_MIB: Final = 1_024.0
DECISIONS_PER_S: Final = 5_000.0
WIDE: Final = 500
WIDE_JOBS: Final = 10_000
WIDE_LOADS: Final = (0.9, 1.5)
WIDE_GOAL: Final = 20_000.0
ACTOR_SETTINGS: Final[tuple[tuple[float, BackfillRule], ...]] = (
    (0.9, "easy"), (1.1, "easy"), (1.1, "none")
)  # fmt: skip


def measure(bundle: Path, philly: Path | None = None) -> list[Figure]:
    """Jobs per second of rules, decisions per second of the actor, seconds of a month.

    Args:
        bundle: the model.
        philly: the real month (merged CSV); None = a generated one.

    Raises:
        ModelError: the bundle cannot be used.
        TraceError: the trace cannot be read.
    """
    return [*_rules(), *_wide(), *_actor(bundle), *_month(philly)]


def _rules() -> list[Figure]:
    cluster = preset("philly-192")
    trace = scale(synthesize("philly-like", jobs=20_480, seed=SEED), LOAD, cluster.gpus)
    figures = []
    for size in (256, 1_024):
        cut = partial(windows, trace.jobs, cluster, count=WINDOWS, size=size, seed=SEED)
        for policy, authors in AUTHORS_JOBS_PER_S.items():
            simulate(cut()[0], policy, Protocol())  # compiled once, not counted
            rate = (
                WINDOWS * size / min(_cpu_s(partial(_played, cut, policy)) for _ in range(ROUNDS))
            )
            name = f"simulate_{policy}_easy_{WINDOWS}x{size}"
            figures.append(Figure(name, rate, "jobs/s", authors, SOURCE, "higher"))
    return figures


def _played(cut: Callable[[], Sequence[Scenario]], policy: str) -> None:
    play_all(cut(), (policy,), Protocol())


def _cpu_s(work: Callable[[], object]) -> float:
    """Processor seconds of this process, so that its neighbours do not count."""
    began = time.process_time()
    work()
    return time.process_time() - began


def _wide() -> list[Figure]:
    """Jobs of 1 to 500 nodes on 500 nodes: as many of 1 to 2 nodes as of 2 to 4, and so on."""
    nodes = tuple(
        idle_node(f"n{at:03d}", GpuType("g"), Resources(1, 8, 64_000), ("gpu",))
        for at in range(WIDE)
    )
    cluster = Cluster("wide", nodes, (Partition("gpu", default=True),))
    draw = np.random.default_rng(SEED)
    widths = np.exp(draw.uniform(0.0, np.log(WIDE), WIDE_JOBS)).round().astype(int).tolist()
    run_s = (1.0 + draw.lognormal(7.0, 1.5, WIDE_JOBS)).tolist()
    slack = draw.uniform(1.0, 4.0, WIDE_JOBS).tolist()
    jobs = tuple(
        TraceJob(str(at), 60.0 * at, run_s[at], width, run_s[at] * slack[at], nodes=width)
        for at, width in enumerate(widths)
    )
    figures = []
    for load in WIDE_LOADS:
        crowded = scale(Trace(jobs), load, WIDE).jobs
        simulate(Scenario.of(cluster, crowded[:1_000]), "fcfs", Protocol())  # compiled, not counted
        began = time.process_time()
        done = simulate(Scenario.of(cluster, crowded), "fcfs", Protocol())
        rate = WIDE_JOBS / (time.process_time() - began)
        waited = 100 * float((done.wait_s > 0).mean())
        source = f"goal of issue 21; {waited:.0f}% of the jobs wait"
        name = f"simulate_fcfs_easy_wide_load_{load:g}"
        figures.append(Figure(name, rate, "jobs/s", WIDE_GOAL, source, "higher"))
    return figures


def _actor(bundle: Path) -> list[Figure]:
    """The shipped actor at every event, where queues are short and where they are long."""
    cluster, model = preset("philly-192"), f"{MODEL_PREFIX}{bundle}"
    trace = synthesize("philly-like", jobs=20_480, seed=SEED)
    chosen = windows(trace.jobs, cluster, count=WINDOWS, size=1_024, seed=SEED)
    figures = []
    for load, backfill in ACTOR_SETTINGS:
        protocol, rules = Protocol(bounded=False), Rules(backfill)
        crowded = [scale(Trace(w.jobs, {}), load, cluster.gpus).jobs for w in chosen]
        simulate(Scenario.of(cluster, crowded[0], rules), model, protocol)  # compiled once
        began = time.process_time()
        decisions = sum(
            simulate(Scenario.of(cluster, jobs, rules), model, protocol).decisions
            for jobs in crowded
        )
        rate = decisions / (time.process_time() - began)
        name = f"simulate_actor_load_{load:g}_{backfill}_{WINDOWS}x1024"
        figures.append(Figure(name, rate, "decisions/s", DECISIONS_PER_S, OURS, "higher"))
    return figures


def _month(philly: Path | None) -> list[Figure]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        elapsed_s, peak_mib = child.submit(_month_in_child, philly).result()
    name = "simulate_month_2490_gpus"
    kind = f"{OURS}; {'the real' if philly else 'a generated'} trace"
    return [
        Figure(name, elapsed_s, "s", MONTH_TARGET_S, kind),
        Figure(f"{name}_memory", peak_mib, "MiB", MONTH_TARGET_MIB, kind),
    ]


def _month_in_child(philly: Path | None) -> tuple[float, float]:
    """Seconds and peak memory of a month of a whole cluster, in a process of its own."""
    cluster = preset("philly-2490")
    if philly is None:
        made = synthesize("philly-like", jobs=MONTH_JOBS, seed=SEED)
        trace = scale(made, MONTH_LOAD, cluster.gpus)
    else:
        trace = finish(read_philly_csv(philly), philly, limits="weak", seed=SEED)
    simulate(Scenario.of(cluster, trace.jobs[:10]), "fcfs", Protocol())
    began = time.process_time()
    simulate(Scenario.of(cluster, trace.jobs), "fcfs", Protocol())
    elapsed_s = time.process_time() - began
    return elapsed_s, peak_mib()
