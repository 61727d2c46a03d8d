"""The traces and clusters of the study of the paper, its windows, and what is measured on them.

- philly: November and December 2017, on the slice of 192 GPUs.
- helios: Venus 2020, jobs of at most 64 GPUs, on 136 GPUs.
- alibaba: jobs drawn from PAI's published marginals, on 254 GPUs of five types.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from rltuned.core.features import FloatArray
from rltuned.lab.compare import Paired, paired
from rltuned.lab.replay.metrics import slowdown
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import possible
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import read_trace
from rltuned.lab.train.rollout import play_policy, windows_between
from rltuned.lab.train.settings import PpoSettings
from rltuned.policies.actor import NetworkPolicy
from rltuned.sim.cluster import Cluster, parse_cluster, read_cluster, uniform
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from rltuned.stats import percent
from scripts.studies.plays import TRACES
from scripts.studies.runner import Row

CLUSTERS: Final = ("philly", "helios", "alibaba")
WINDOW_JOBS: Final = 256
LOADS: Final = (0.9, 1.2, 1.6, 2.0)
LEARN_UNTIL, JUDGE_FROM = 0.6, 0.7
CHOOSING, JUDGING = 12, 24
"""Windows that choose an epoch, and that judge; fewer where a trace is short."""
EVENTS: Final = Protocol(bounded=False)
SETTINGS: Final = PpoSettings(
    loads=(LOADS[0], LOADS[-1]), reach=0.0, learning_rate=1e-3, entropy=0.0, epochs=40,
)  # fmt: skip
METRICS: Final = ("wait", "bsld", "jct", "utilisation")
HELIOS: Final = uniform(("v", 17, "v100", 8, 48))
ALIBABA: Final = uniform(
    ("h", 10, "V100", 8, 96), ("j", 8, "V100M32", 8, 96), ("m", 8, "MISC", 8, 96),
    ("p", 15, "P100", 2, 64), ("t", 8, "T4", 2, 96),
)  # fmt: skip
"""The slices that the paper's repository simulates."""
HELIOS_GPUS: Final = 64
"""Of the largest job there."""
PAI_JOBS, PAI_SEED = 40_000, 3


@cache
def workload_of(name: str) -> Scenario:
    """A cluster with its jobs."""
    cluster, jobs = _jobs_of(name)
    fitting, _ = possible(jobs, cluster, skip=True)
    return Scenario.of(cluster, fitting, name=name).for_networks()


def _jobs_of(name: str) -> tuple[Cluster, tuple[TraceJob, ...]]:
    if name == "alibaba":
        trace = synthesize("pai-like", jobs=PAI_JOBS, seed=PAI_SEED, limits="informative")
        return parse_cluster(ALIBABA, name, name), trace.jobs
    if name == "helios":
        jobs = read_trace(TRACES / "helios_venus_2020.csv.gz").jobs
        return parse_cluster(HELIOS, name, name), tuple(j for j in jobs if j.gpus <= HELIOS_GPUS)
    cluster = read_cluster(TRACES / "philly_2017-11.toml")
    return cluster, read_trace(TRACES / "philly_2017-11.csv.gz").jobs


def choosing(workload: Scenario) -> list[Scenario]:
    """Windows that choose an epoch."""
    return _windows(workload, (LEARN_UNTIL, JUDGE_FROM), CHOOSING)


def judging(workload: Scenario) -> list[Scenario]:
    """Windows that judge: later than all that trained or chose."""
    return _windows(workload, (JUDGE_FROM, 1.0), JUDGING)


def _windows(workload: Scenario, part: tuple[float, float], most: int) -> list[Scenario]:
    """Disjoint ones; their loads come in turn."""
    room = int(len(workload) * (part[1] - part[0])) // WINDOW_JOBS
    count = min(most, room - room % len(LOADS) if room >= len(LOADS) else room)
    return windows_between(workload, part, count=count, size=WINDOW_JOBS, loads=LOADS)


def measured(window: Scenario, policy: NetworkPolicy | str) -> FloatArray:
    """(4,) METRICS of a policy at every event, without bounds."""
    return figures(window, play_policy(window, policy, EVENTS))


def judged(cluster: str, policy: NetworkPolicy | str) -> FloatArray:
    """(k, 4) METRICS on the windows that judge."""
    return np.array([measured(window, policy) for window in judging(workload_of(cluster))])


def figures(window: Scenario, start_s: FloatArray) -> FloatArray:
    """(4,) mean wait, bounded slowdown and completion time in seconds, and utilisation."""
    wait_s, run_s = start_s - window.submit_s, window.prepared.jobs.runs_s
    jobs = window.prepared.jobs
    gpus = window.prepared.shapes.gpus[jobs.shape]
    span_s = float((start_s + run_s).max())
    used = float((gpus * run_s).sum()) / (span_s * window.cluster.gpus)
    return np.array([wait_s.mean(), slowdown(wait_s, run_s).mean(), (wait_s + run_s).mean(), used])


def kept(found: FloatArray, prefix: str = "") -> dict[str, list[float]]:
    """Figures (k, 4) of k windows as a row keeps them."""
    return {f"{prefix}{m}": np.round(found[:, at], 5).tolist() for at, m in enumerate(METRICS)}


def change(own: Sequence[Sequence[float]], base: Sequence[float], metric: str) -> Paired:
    """Of figures of the same windows; own: one sequence a seed."""
    return paired(np.array(own, dtype=np.float64), np.array(base, dtype=np.float64), metric)


def cell(own: Row, base: Sequence[float], metric: str) -> str:
    """The change of a row against a base on the same windows, for a table."""
    found = change([own[metric]], base, metric)
    return percent(found.change or 0.0, found.low, found.high, digits=0)
