"""RLTune's own comparison: PPO from a base policy, beside that policy, for every base and cluster.

    python -m scripts.studies.paper run [--minutes M] [--only "philly, sjf"]
    python -m scripts.studies.paper table

The paper's protocol: the order is chosen at every event and has no bounds, episodes are of
WINDOW_JOBS jobs from an empty cluster, the base is the rule of the other pipeline, and windows of
the last part of a trace judge. Both sides have the same placement (pack), backfill (EASY) and
limits, and no prediction. What differs on purpose: limits are drawn, never true run times; arrivals
are stretched to LOADS, for a whole cluster's stream on a slice measures the length of the window.

The actor begins as the base: it imitates the base's order of random queues first (DL2), but for
`fcfs`, which a blank one is. The epoch is chosen on windows between those that are learned from and
those that judge; the base itself is a candidate, as epoch 0 for a blank actor and as `start`.

- philly: November and December 2017, on the slice of 192 GPUs.
- helios: Venus 2020, jobs of at most 64 GPUs, on 136 GPUs.
- alibaba: jobs drawn from PAI's published marginals, on 254 GPUs of five types.
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import torch

from rltuned.compare import paired, percent
from rltuned.core.features import FloatArray, encode
from rltuned.lab.replay.metrics import slowdown
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import possible
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.batch import Contest
from rltuned.lab.train.episodes import play_policy
from rltuned.lab.train.imitation import Fitting, OrderedQueues, agreement, fit
from rltuned.lab.train.learner import Learner, PpoSettings
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.ppo import train
from rltuned.lab.train.queues import random_snapshot
from rltuned.lab.train.trial import windows_between
from rltuned.policies.actor import NetworkPolicy, seen_by
from rltuned.policies.baselines import BASELINES
from rltuned.sim.cluster import Cluster, parse_cluster, read_cluster
from rltuned.sim.presets import uniform
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob, read_trace
from rltuned.stats import mean_with_ends
from scripts.studies import plays
from scripts.studies.plays import TRACES, Row, known

RESULTS = Path("docs/data/paper.jsonl")
BASES = ("fcfs", "sjf", "f1", "wfp3", "unicep")
SEEDS = (1, 2, 3)
WINDOW_JOBS = 256
LOADS = (0.9, 1.2, 1.6, 2.0)
LEARN_UNTIL, JUDGE_FROM = 0.6, 0.7
CHOOSING, JUDGING = 12, 24
"""Windows that choose an epoch, and that judge; fewer where a trace is short."""
EVENTS = Protocol(bounded=False)
QUEUES = 600
SETTINGS = PpoSettings(
    contest=Contest(reference="group", rollouts=10, loads=(LOADS[0], LOADS[-1]), part=LEARN_UNTIL),
    reach=0.0,
    learning_rate=1e-3,
    entropy=0.0,
    epochs=40,
)
METRICS = ("wait", "bsld", "jct", "utilisation")
HELIOS = uniform(("v", 17, "v100", 8, 48))
ALIBABA = uniform(
    ("h", 10, "V100", 8, 96),
    ("j", 8, "V100M32", 8, 96),
    ("m", 8, "MISC", 8, 96),
    ("p", 15, "P100", 2, 64),
    ("t", 8, "T4", 2, 96),
)
"""The slices that the paper's repository simulates."""
HELIOS_GPUS = 64
"""Of the largest job there."""
PAI_JOBS, PAI_SEED = 40_000, 3


@dataclass(frozen=True)
class Run:
    """One training and its judgement."""

    cluster: str
    base: str
    seed: int


def runs(_: argparse.Namespace) -> Iterator[Run]:
    """Seed by seed, so that an interrupted study is even."""
    for seed, cluster, base in product(SEEDS, ("philly", "helios", "alibaba"), BASES):
        yield Run(cluster, base, seed)


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


def start_of(base: str, seed: int) -> tuple[TorchActor, float]:
    """An actor that orders as a base does, and its share of unseen pairs; see the module."""
    settings = replace(SETTINGS, seed=seed)
    if base == "fcfs":
        torch.manual_seed(seed)
        return TorchActor(settings.network, settings.hidden), 1.0
    fitting = Fitting(seed=seed, reach=0.0, network=settings.network, hidden=settings.hidden)
    learned, unseen = (_queues(base, count, seed) for count in (QUEUES, QUEUES // 10))
    actor, _ = fit(learned, fitting)
    return actor, agreement(actor, unseen)[0]


def _queues(base: str, count: int, seed: int) -> OrderedQueues:
    """Random queues in the pure order of a rule."""
    draw, found = np.random.default_rng([seed, count]), []
    for _ in range(count):
        snapshot = random_snapshot(draw, 96)
        matrix = encode(snapshot.pending, snapshot)
        seen = seen_by("queue", matrix)
        order = np.argsort(-BASELINES[base].score(matrix), kind="stable")
        found.append((seen, np.zeros((len(seen), 4), dtype=np.float32), order.tolist()))
    return OrderedQueues.of(found)


def measured(window: Scenario, policy: NetworkPolicy | str) -> FloatArray:
    """(4,) mean wait, bounded slowdown and completion time in seconds, and utilisation."""
    start_s = play_policy(window, policy, EVENTS)
    wait_s, run_s = start_s - window.submit_s, window.prepared.jobs.runs_s
    jobs = window.prepared.jobs
    gpus = window.prepared.shapes.gpus[jobs.shape]
    span_s = float((start_s + run_s).max())
    used = float((gpus * run_s).sum()) / (span_s * window.cluster.gpus)
    return np.array([wait_s.mean(), slowdown(wait_s, run_s).mean(), (wait_s + run_s).mean(), used])


def play(run: Run) -> Row:
    """Imitate, learn, and judge beside the base."""
    began = time.process_time()
    workload = workload_of(run.cluster)
    settings = replace(SETTINGS, contest=replace(SETTINGS.contest, base=run.base), seed=run.seed)
    choosing = _windows(workload, (LEARN_UNTIL, JUDGE_FROM), CHOOSING)
    base = np.array([measured(window, run.base) for window in choosing])
    learner = Learner(settings)
    start, pairs = start_of(run.base, run.seed)
    learner.actor.load_state_dict(start.state_dict())
    curve: list[float] = []
    best = (math.inf, start.state_dict())

    def validate(actor: TorchActor) -> tuple[float, float | None, float | None]:
        nonlocal best
        own = np.array([measured(window, policy_of(actor)) for window in choosing])
        found = mean_with_ends(np.log((own[:, 0] + 1.0) / (base[:, 0] + 1.0)))
        curve.append(round(found[0], 4))
        if found[0] < best[0]:
            best = found[0], {k: v.clone() for k, v in actor.state_dict().items()}
        return found

    validate(learner.actor)
    train(learner, [workload], settings, validate)
    learner.actor.load_state_dict(best[1])
    return asdict(run) | {
        "pairs": round(pairs, 4), "curve": curve,
        **judged(workload, run.base, policy_of(start), "start_"),
        **judged(workload, run.base, policy_of(learner.actor)),
        "cpu_s": round(time.process_time() - began, 1),
    }  # fmt: skip


def judged(workload: Scenario, base: str, policy: NetworkPolicy, prefix: str = "") -> Row:
    """Changes against the base on the windows that judge, with 95% intervals over them."""
    windows = _windows(workload, (JUDGE_FROM, 1.0), JUDGING)
    own, other = (np.array([measured(window, one) for window in windows]) for one in (policy, base))
    found: Row = {f"{prefix}windows": float(len(windows))}
    for at, metric in enumerate(METRICS):
        change = paired(own[:, at], other[:, at], metric)
        found[f"{prefix}{metric}"] = round(change.change or 0.0, 4)
        found[f"{prefix}{metric}_low"] = round(change.low or 0.0, 4)
        found[f"{prefix}{metric}_high"] = round(change.high or 0.0, 4)
        if not prefix:
            found[f"base_{metric}"] = round(float(other[:, at].mean()), 4)
    return found


def _windows(workload: Scenario, part: tuple[float, float], most: int) -> list[Scenario]:
    """Disjoint ones; their loads come in turn."""
    room = int(len(workload) * (part[1] - part[0])) // WINDOW_JOBS
    count = min(most, room - room % len(LOADS) if room >= len(LOADS) else room)
    return windows_between(workload, part, count=count, size=WINDOW_JOBS, loads=LOADS)


def table(_: argparse.Namespace) -> None:
    """Each cell: the change against its base with the interval over windows, per seed."""
    plays.head("cluster", "base", "seed", "its wait, h", *METRICS, "imitation alone, wait", "pairs")
    for run, row in sorted(known(RESULTS, Run).items(), key=lambda x: tuple(astuple_of(x[0]))):
        cells = [percent(row[m], row[f"{m}_low"], row[f"{m}_high"], digits=0) for m in METRICS]
        hours = row["base_wait"] / 3600
        start = percent(row["start_wait"], row["start_wait_low"], row["start_wait_high"], digits=0)
        print(plays.row_of([*astuple_of(run), hours, *cells, start, f"{row['pairs']:.1%}"]))


def astuple_of(run: Run) -> tuple[str, str, int]:
    return run.cluster, run.base, run.seed


if __name__ == "__main__":
    plays.main(__doc__, RESULTS, runs, play, views={"table": table})
