"""Figures 12, 14, 15 and Table 6: PPO from a base policy, beside it, for every base and cluster.

The actor begins as the base: it imitates the base's order of random queues first (DL2), but for
`fcfs`, which a blank one is. The epoch is chosen on windows between those that are learned from and
those that judge; the base itself is a candidate, as epoch 0 for a blank actor and as `start`.
"""

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import torch

from rltuned.core.features import encode
from rltuned.lab.compare import mean_with_ends, paired
from rltuned.lab.train.imitation import OrderedQueues, agreement, fit, random_snapshot
from rltuned.lab.train.network import TorchActor, policy_of
from rltuned.lab.train.ppo import Learner, train
from rltuned.lab.train.settings import Fitting
from rltuned.policies.actor import NetworkPolicy, seen_by
from rltuned.policies.baselines import BASELINES
from rltuned.stats import percent
from scripts.studies import data_of
from scripts.studies.paper import common
from scripts.studies.paper.common import CLUSTERS, METRICS, SETTINGS, measured, workload_of
from scripts.studies.runner import Row, Study, head, known, row_of

RESULTS: Final = data_of("paper bases")
KEPT: Final = Path(".run/paper")
"""Trained actors, so that the parts of the study share a training."""
BASES: Final = ("fcfs", "sjf", "f1", "wfp3", "unicep")
QUEUES: Final = 600


@dataclass(frozen=True)
class Run:
    """One training and its judgement."""

    cluster: str
    base: str
    seed: int


@dataclass(frozen=True)
class Learned:
    """What a training made. start: before PPO; pairs: its share of the base's; curve: by epoch."""

    start: TorchActor
    actor: TorchActor
    pairs: float
    curve: list[float]
    cpu_s: float


def runs(asked: argparse.Namespace) -> Iterator[Run]:
    """Seed by seed, so that an interrupted study is even."""
    for seed, cluster, base in product(range(1, asked.seeds + 1), CLUSTERS, BASES):
        yield Run(cluster, base, seed)


def learned(run: Run) -> Learned:
    """Imitate and learn, or read what an earlier part of the study has learned."""
    path = KEPT / f"{run.cluster}-{run.base}-{run.seed}.pt"
    if not path.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        made = _learn(run)
        states = made.start.state_dict(), made.actor.state_dict()
        torch.save((*states, made.pairs, made.curve, made.cpu_s), path)
        return made
    start, actor, *rest = torch.load(path)
    actors = [TorchActor(SETTINGS.network, SETTINGS.hidden) for _ in range(2)]
    for one, state in zip(actors, (start, actor), strict=True):
        one.load_state_dict(state)
    return Learned(actors[0], actors[1], *rest)


def _learn(run: Run) -> Learned:
    began = time.process_time()
    start, pairs = start_of(run.base, run.seed)
    actor, curve = learn(run, start)
    return Learned(start, actor, pairs, curve, time.process_time() - began)


def learn(run: Run, start: TorchActor) -> tuple[TorchActor, list[float]]:
    """PPO against the base: the actor of the best epoch, and the curve."""
    workload = workload_of(run.cluster)
    settings = replace(SETTINGS, base=run.base, seed=run.seed)
    windows = common.choosing(workload)
    base = np.array([measured(window, run.base) for window in windows])
    learner = Learner(settings)
    learner.actor.load_state_dict(start.state_dict())
    curve: list[float] = []
    best = (math.inf, start.state_dict())

    def validate(actor: TorchActor) -> tuple[float, float | None, float | None]:
        nonlocal best
        own = np.array([measured(window, policy_of(actor)) for window in windows])
        found = mean_with_ends(np.log((own[:, 0] + 1.0) / (base[:, 0] + 1.0)))
        curve.append(round(found[0], 4))
        if found[0] < best[0]:
            best = found[0], {k: v.clone() for k, v in actor.state_dict().items()}
        return found

    validate(learner.actor)
    train(learner, [workload], validate)
    learner.actor.load_state_dict(best[1])
    return learner.actor, curve


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


def play(run: Run) -> Row:
    """Imitate, learn, and judge beside the base."""
    made, began = learned(run), time.process_time()
    return asdict(run) | {
        "pairs": round(made.pairs, 4), "curve": made.curve,
        **judged(run, policy_of(made.start), "start_"), **judged(run, policy_of(made.actor)),
        "cpu_s": round(made.cpu_s + time.process_time() - began, 1),
    }  # fmt: skip


def judged(run: Run, policy: NetworkPolicy, prefix: str = "") -> Row:
    """Changes against the base on the windows that judge, with 95% intervals over them."""
    own, other = (common.judged(run.cluster, one) for one in (policy, run.base))
    found: Row = {f"{prefix}windows": float(len(own))}
    for at, metric in enumerate(METRICS):
        change = paired(own[:, at], other[:, at], metric)
        for end, value in (("", change.change), ("_low", change.low), ("_high", change.high)):
            found[f"{prefix}{metric}{end}"] = round(value or 0.0, 4)
        if not prefix:
            found[f"base_{metric}"] = round(float(other[:, at].mean()), 4)
    return found


def ends(row: Row, metric: str) -> tuple[float, float, float]:
    """A change of a row with its interval."""
    return row[metric], row[f"{metric}_low"], row[f"{metric}_high"]


def by_name(stored: dict[Run, Row]) -> list[tuple[Run, Row]]:
    return sorted(stored.items(), key=lambda item: tuple(vars(item[0]).values()))


def table() -> None:
    """Each cell: the change against its base with the interval over windows, per seed."""
    more = ("imitation alone, wait", "pairs")
    print(head("cluster", "base", "seed", "its wait, h", *METRICS, *more))
    for run, row in by_name(known(RESULTS, Run)):
        cells = [percent(*ends(row, m), digits=0) for m in (*METRICS, "start_wait")]
        hours = row["base_wait"] / 3600
        print(row_of([*vars(run).values(), hours, *cells, f"{row['pairs']:.1%}"]))


STUDIES = {"paper bases": Study(runs, play, {"table": table}, sample=1)}
