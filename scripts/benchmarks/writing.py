"""What an order costs the slurmctld it steers: writes per job, RPCs per started job.

The daemon's cycles of 60 s under write mode `auto`, on a site that orders by age alone. A write is
one RPC (scontrol sends every line as one), and each cycle reads and looks back besides.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rltuned.core.decide import Knobs
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import possible, simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import read_trace, scale
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.backend import demo_trace
from rltuned.sim.cluster import Cluster, preset, read_cluster
from rltuned.sim.dispatch import AGE_ONLY
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from scripts.benchmarks import Figure

SEED: Final = 1
RULES: Final = Rules(natural=AGE_ONLY)
PROTOCOL: Final = Protocol(
    mode="cycle",
    interval_s=60.0,
    knobs=Knobs(top_k=0),
    predictor=load_predictor(shipped_predictor()),
)
MOST_WRITES: Final = {"delay": 1.5, "model:rltune": 5.0, "model:rltune-paper": 5.0}
"""The goals by policy: a rule writes a job at most 1.5 times on average, a network 5 times."""
READING: Final = 6
"""RPCs of a cycle that only reads (docs/performance.md)."""
LOOKING_BACK: Final = 2
"""RPCs more of a cycle that reads its writes back."""
MONTH_JOBS: Final = 60_000
MONTH_LOAD: Final = 0.9
MONTH_TARGET_S: Final = 120.0
TIMED: Final = "delay"
OURS: Final = "own goal"


def measure(site: Path | None = None) -> list[Figure]:
    """Writes and RPCs of every policy on the demo's trace and on a month of Philly.

    Args:
        site: the cluster of the month (TOML, the trace beside it as .csv.gz); None = generated.

    Raises:
        ModelError: a shipped bundle cannot be used.
        TraceError: trace or cluster cannot be read.
    """
    month = "month" if site else "generated_month"
    return [
        *measured("demo", *demo_trace(SEED), tuple(MOST_WRITES)),
        *measured(month, *_month(site), tuple(MOST_WRITES)),
    ]


def _month(site: Path | None) -> tuple[Cluster, tuple[TraceJob, ...]]:
    """The month, its submit times scaled to MONTH_LOAD of the cluster."""
    if site is None:
        cluster = preset("philly-192")
        trace = synthesize("philly-like", jobs=MONTH_JOBS, seed=SEED, limits="weak")
    else:
        cluster, trace = read_cluster(site), read_trace(site.with_suffix(".csv.gz"))
    return cluster, scale(trace, MONTH_LOAD, cluster.gpus).jobs


def measured(
    name: str, cluster: Cluster, given: Sequence[TraceJob], policies: Sequence[str]
) -> list[Figure]:
    """The figures of some policies on a trace; jobs that can never run are left out.

    The RPCs are an upper bound: no more cycles read writes back than have a queue, or than there
    are writes.

    Args:
        name: of the trace, in the names of the figures.
        cluster: the hardware.
        given: the jobs.
        policies: of MOST_WRITES.
    """
    jobs, _ = possible(given, cluster, skip=True)
    figures = []
    for policy in policies:
        simulate(Scenario.of(cluster, jobs[:10], RULES), policy, PROTOCOL)  # compiled once
        wall, cpu = time.perf_counter(), time.process_time()
        played = simulate(Scenario.of(cluster, jobs, RULES), policy, PROTOCOL)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        title = f"{name}_{policy.removeprefix('model:')}"
        span_s = played.end_s.max() - played.submit_s.min()
        reading = READING * span_s / PROTOCOL.interval_s / len(jobs)
        writes = played.writes / len(jobs)
        looks = min(played.decisions, played.writes)
        rpcs = reading + writes + LOOKING_BACK * looks / len(jobs)
        reader = "a daemon that only reads"
        figures += [
            Figure(f"writes_{title}", writes, "writes/job", MOST_WRITES[policy], OURS),
            Figure(f"rpcs_{title}", rpcs, "RPCs/job", reading, reader),
        ]
        if policy == TIMED:
            figures += [
                Figure(f"play_{title}_wall", wall, "s", MONTH_TARGET_S, OURS),
                Figure(f"play_{title}_processor", cpu, "s", MONTH_TARGET_S, OURS),
            ]
    return figures
