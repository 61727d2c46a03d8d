"""Parts of the paper that need one more play of an actor: Tables 7 to 9, Figures 16 and 17, DL2.

- transfer (Table 7): an actor that was trained from one base, judged against another, on Helios;
  and actors that were trained on one cluster, judged on another, which the paper does not have. An
  actor's order does not depend on the base that it is judged against.
- qssf (Table 8, Figures 16 and 17): RLTune beside QSSF, and beside Slurm's multifactor priority of
  a usual site (sim/natural). QSSF orders by predicted GPU time: `site` predicts run times by a
  predictor fitted to the part that RLTune learns from, `limit` takes the time limits. This copy of
  Philly's trace names no users, so a prediction goes by GPUs and limit. The actor of Table 8 begins
  as QSSF by limits and sees no prediction; that beside multifactor is the one trained from `fcfs`.
  Figure 17 is one stretch of LONG consecutive jobs at LONG_LOAD, with an interval over stretches.
- peers (Table 9): FIFO and RLTune; `seconds` is processor time for ten batches of 256 jobs. Rows of
  SchedInspector and RLScheduler, trained with RLTune's budget, are of commit 2fb3ad10.
- warm: DL2's warm start. PPO from an actor that imitates the base, whose rows are those of bases,
  beside PPO from a blank one, with the same windows, settings and epochs.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import permutations, product
from typing import Final

import numpy as np

from rltuned.lab.compare import change_of_mean, stretches_of
from rltuned.lab.replay.orders import layers_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.network import policy_of
from rltuned.lab.train.rollout import play_policy
from rltuned.policies.actor import NetworkPolicy
from rltuned.stats import percent
from scripts.studies import data_of, plays
from scripts.studies.paper import bases, common
from scripts.studies.paper.common import CLUSTERS, EVENTS, METRICS, SETTINGS, kept, workload_of
from scripts.studies.runner import Row, Study, head, known, row_of

TRANSFER, QSSF, PEERS, WARM = (
    data_of(f"paper {name}") for name in ("transfer", "qssf", "peers", "warm")
)
FROM: Final = ("fcfs", "sjf", "f1", "wfp3")
WARM_FROM: Final = ("sjf", "wfp3")
BATCHES: Final = 10
EARLY: Final = 5
"""Epochs whose waits are summed up: what learning costs a site while it is not done."""
BEGINS: Final = {"qssf": "qssf", "multifactor": "fcfs"}
"""The base that the actor beside a rule was trained from."""
BESIDE: Final = (
    ("philly", "qssf", "site", "windows"),
    ("philly", "qssf", "limit", "windows"),
    ("philly", "qssf", "site", "long"),
    *((cluster, "multifactor", "limit", "windows") for cluster in CLUSTERS),
)
LONG, LONG_LOAD = 10_000, 0.9
FITTED: Final = 12_000
"""Jobs that a predictor is fitted to, the last before those that choose an epoch."""


@dataclass(frozen=True)
class Transfer:
    """Trained on a cluster from a base, judged on a cluster against a base."""

    trained_on: str
    trained_from: str
    cluster: str
    against: str
    seed: int


def transfers(asked: argparse.Namespace) -> Iterator[Transfer]:
    """Seed by seed."""
    for seed in range(1, asked.seeds + 1):
        for own, other in permutations(CLUSTERS, 2):
            yield Transfer(own, "fcfs", other, "fcfs", seed)
        for own, other in permutations(FROM, 2):
            yield Transfer("helios", own, "helios", other, seed)


def play_transfer(run: Transfer) -> Row:
    """Both sides on the windows that judge."""
    made = bases.learned(bases.Run(run.trained_on, run.trained_from, run.seed))
    began = time.process_time()
    own, base = (common.judged(run.cluster, one) for one in (policy_of(made.actor), run.against))
    spent = {"cpu_s": round(made.cpu_s + time.process_time() - began, 1)}
    return asdict(run) | kept(own) | kept(base, "base_") | spent


def transfer_table() -> None:
    """A row an actor and what judges it."""
    print(head("trained on", "from", "judged on", "against", "seed", *METRICS))
    for run, row in known(TRANSFER, Transfer).items():
        cells = [common.cell(row, row[f"base_{metric}"], metric) for metric in METRICS]
        print(row_of([*vars(run).values(), *cells]))


@dataclass(frozen=True)
class Beside:
    """One actor beside one rule. knows: what the rule knows of run times."""

    cluster: str
    rule: str
    knows: str
    jobs: str
    seed: int


def besides(asked: argparse.Namespace) -> Iterator[Beside]:
    return (Beside(*cell, seed) for seed in range(1, asked.seeds + 1) for cell in BESIDE)


@cache
def foreseeing(cluster: str) -> Scenario:
    """The cluster's jobs as a site would know them whose predictor has learned from earlier ones.

    The network's own columns stay as they are: they were worked out without a predictor.
    """
    workload = workload_of(cluster)
    until = int(len(workload) * common.LEARN_UNTIL)
    predictor = plays.predictor_of("site", lambda: workload.jobs[until - FITTED : until])
    if predictor is None:
        raise RuntimeError("`site` fits a predictor")
    return replace(workload, predictor=layers_of(predictor))


def play_beside(run: Beside) -> Row:
    """The actor and the rule on the same jobs."""
    made = bases.learned(bases.Run(run.cluster, BEGINS[run.rule], run.seed))
    began, actor, workload = time.process_time(), policy_of(made.actor), workload_of(run.cluster)
    by_rule = foreseeing(run.cluster) if run.knows == "site" else workload
    if run.jobs == "long":
        found = _long(run.rule, actor, workload, by_rule)
    else:
        theirs = [common.measured(window, run.rule) for window in common.judging(by_rule)]
        found = kept(common.judged(run.cluster, actor)) | kept(np.array(theirs), "base_")
    return asdict(run) | found | {"cpu_s": round(made.cpu_s + time.process_time() - began, 1)}


def _long(rule: str, actor: NetworkPolicy, own: Scenario, other: Scenario) -> Row:
    """Mean completion time of LONG jobs, and its change with the interval over stretches."""
    first, ends = int(len(own) * common.JUDGE_FROM), []
    for scenario, policy in ((other, rule), (own, actor)):
        window = scenario.cut(first, LONG, load=LONG_LOAD)
        start_s = play_policy(window, policy, EVENTS)
        ends.append(start_s + window.prepared.jobs.runs_s - window.submit_s)
    found = change_of_mean(ends[0], ends[1], stretches_of(window.submit_s))
    middle, low, high = found.known
    return {"jct": found.own, "base_jct": found.base, "change": middle, "low": low, "high": high}


def beside_table() -> None:
    """A row a play; below zero: the actor has less."""
    print(head("cluster", "beside", "which knows", "jobs", "seed", *METRICS))
    for run, row in known(QSSF, Beside).items():
        if run.jobs == "long":
            jct = percent(row["change"], row["low"], row["high"], digits=1)
            cells = ["", "", jct, ""]
        else:
            cells = [str(common.change([row[m]], row[f"base_{m}"], m)) for m in METRICS]
        print(row_of([*vars(run).values(), *cells]))


@dataclass(frozen=True)
class Peer:
    """One order on the windows that judge. epochs: of its training."""

    cluster: str
    peer: str
    seed: int
    epochs: int


def peer_runs(asked: argparse.Namespace) -> Iterator[Peer]:
    """FIFO has no seed."""
    yield from (Peer(cluster, "fcfs", 1, 0) for cluster in CLUSTERS)
    for seed, cluster in product(range(1, asked.seeds + 1), CLUSTERS):
        yield Peer(cluster, "rltune", seed, SETTINGS.epochs)


def play_peer(run: Peer) -> Row:
    """Its figures, and what it takes."""
    policy: NetworkPolicy | str = run.peer
    windows, curve, trained_s = common.judging(workload_of(run.cluster)), list[float](), 0.0
    if run.peer == "rltune":
        made = bases.learned(bases.Run(run.cluster, "fcfs", run.seed))
        policy, curve, trained_s = policy_of(made.actor), made.curve, made.cpu_s
    play_policy(windows[0], policy, EVENTS)
    began = time.process_time()
    starts = [play_policy(window, policy, EVENTS) for window in windows]
    seconds = (time.process_time() - began) * BATCHES / len(windows)
    found = np.array([common.figures(w, s) for w, s in zip(windows, starts, strict=True)])
    timed = {"seconds": round(seconds, 3), "curve": curve, "cpu_s": round(trained_s, 1)}
    return asdict(run) | kept(found) | timed


def peer_table() -> None:
    """Means over windows, and the changes against FIFO with their intervals."""
    print(head("cluster", "peer", "seed", "epochs", "wait, h", *METRICS, "seconds",
               "training, CPU s"))  # fmt: skip
    stored = known(PEERS, Peer)
    for run, row in sorted(stored.items(), key=lambda x: (x[0].cluster, x[0].peer, x[0].seed)):
        base = stored[Peer(run.cluster, "fcfs", 1, 0)]
        cells = [
            f"{np.mean(row[m]):.4g}" if row is base else common.cell(row, base[m], m)
            for m in METRICS
        ]
        hours, spent = float(np.mean(row["wait"])) / 3600, f"{row['cpu_s']:.0f}"
        print(row_of([*vars(run).values(), hours, *cells, row["seconds"], spent]))


def warm_runs(asked: argparse.Namespace) -> Iterator[bases.Run]:
    grid = product(range(1, asked.seeds + 1), WARM_FROM, CLUSTERS)
    return (bases.Run(cluster, base, seed) for seed, base, cluster in grid)


def play_blank(run: bases.Run) -> Row:
    """Learn, and judge beside the base."""
    began = time.process_time()
    actor, curve = bases.learn(run, bases.start_of("fcfs", run.seed)[0])
    found = bases.judged(run, policy_of(actor))
    return asdict(run) | {"curve": curve} | found | {"cpu_s": round(time.process_time() - began, 1)}


def warm_table() -> None:
    """Waits against the base: before the first epoch, over the first epochs, and at the end."""
    print(head("cluster", "base", "seed", "start", "before", f"{EARLY} epochs", "at the end"))
    warm = known(bases.RESULTS, bases.Run)
    for run, row in bases.by_name(known(WARM, bases.Run)):
        for start, one in (("imitated", warm[run]), ("blank", row)):
            curve = np.expm1(one["curve"])
            early = [f"{curve[0]:+.0%}", f"{curve[1 : EARLY + 1].mean():+.0%}"]
            end = percent(*bases.ends(one, "wait"), digits=0)
            print(row_of([*vars(run).values(), start, *early, end]))


STUDIES = {
    "paper transfer": Study(transfers, play_transfer, {"table": transfer_table}, sample=1),
    "paper qssf": Study(besides, play_beside, {"table": beside_table}, sample=1),
    "paper peers": Study(peer_runs, play_peer, {"table": peer_table}, sample=1),
    "paper warm": Study(warm_runs, play_blank, {"table": warm_table}, sample=1),
}
