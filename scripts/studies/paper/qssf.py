"""Table 8, Figures 16 and 17, and DL2: RLTune beside QSSF, and beside Slurm's multifactor priority.

QSSF orders by predicted GPU time: `site` predicts run times by a predictor fitted to the part that
RLTune learns from, `limit` takes the time limits. This copy of Philly's trace names no users, so
a prediction goes by GPUs and limit. The actor of Table 8 begins as QSSF by limits and sees no
prediction. Slurm's multifactor is that of a usual site (sim/natural); the actor beside it is the
one trained from `fcfs`. Figure 17 is one stretch of LONG consecutive jobs at LONG_LOAD, with an
interval over stretches of arrival.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.lab.compare import change_of_mean, stretches_of
from rltuned.lab.replay.orders import layers_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.network import policy_of
from rltuned.lab.train.rollout import play_policy
from rltuned.policies.actor import NetworkPolicy
from rltuned.stats import percent
from scripts.studies import plays
from scripts.studies.paper import bases
from scripts.studies.paper.common import (
    EVENTS,
    JUDGE_FROM,
    LEARN_UNTIL,
    METRICS,
    Row,
    change,
    judging,
    kept,
    measured,
    workload_of,
)
from scripts.studies.paper.verdict import Ours, across
from scripts.studies.plays import known

RESULTS: Final = Path("docs/data/paper-qssf.jsonl")
BEGINS: Final = {"qssf": "qssf", "multifactor": "fcfs"}
"""The base that the actor beside a rule was trained from."""
PLAYED: Final = (
    ("philly", "qssf", "site", "windows"),
    ("philly", "qssf", "limit", "windows"),
    ("philly", "qssf", "site", "long"),
    ("philly", "multifactor", "limit", "windows"),
    ("helios", "multifactor", "limit", "windows"),
    ("alibaba", "multifactor", "limit", "windows"),
)
LONG, LONG_LOAD = 10_000, 0.9
FITTED: Final = 12_000
"""Jobs that a predictor is fitted to, the last before those that choose an epoch."""


@dataclass(frozen=True)
class Run:
    """One actor beside one rule. knows: what the rule knows of run times."""

    cluster: str
    rule: str
    knows: str
    jobs: str
    seed: int


def runs(asked: argparse.Namespace) -> Iterator[Run]:
    """Seed by seed."""
    for seed, cell in product(range(1, asked.seeds + 1), PLAYED):
        yield Run(*cell, seed)


@cache
def foreseeing(cluster: str) -> Scenario:
    """The cluster's jobs as a site would know them whose predictor has learned from earlier ones.

    The network's own columns stay as they are: they were worked out without a predictor.
    """
    workload = workload_of(cluster)
    until = int(len(workload) * LEARN_UNTIL)
    predictor = plays.predictor_of("site", lambda: workload.jobs[until - FITTED : until])
    if predictor is None:
        raise RuntimeError("`site` fits a predictor")
    return replace(workload, predictor=layers_of(predictor))


def play(run: Run) -> Row:
    """The actor and the rule on the same jobs."""
    made = bases.learned(bases.Run(run.cluster, BEGINS[run.rule], run.seed))
    began = time.process_time()
    actor, workload = policy_of(made.actor), workload_of(run.cluster)
    known_by_rule = foreseeing(run.cluster) if run.knows == "site" else workload
    found = _long if run.jobs == "long" else _windows
    row = asdict(run) | found(run.rule, actor, workload, known_by_rule)
    return row | {"cpu_s": round(made.cpu_s + time.process_time() - began, 1)}


def _windows(rule: str, actor: NetworkPolicy, own: Scenario, other: Scenario) -> Row:
    """Figures of every window."""
    ours = np.array([measured(window, actor) for window in judging(own)])
    theirs = np.array([measured(window, rule) for window in judging(other)])
    return {**kept(ours), **kept(theirs, "base_")}


def _long(rule: str, actor: NetworkPolicy, own: Scenario, other: Scenario) -> Row:
    """Mean completion time of LONG jobs, and its change with the interval over stretches."""
    first = int(len(own) * JUDGE_FROM)
    ends = []
    for scenario, policy in ((other, rule), (own, actor)):
        window = scenario.cut(first, LONG, load=LONG_LOAD)
        start_s = play_policy(window, policy, EVENTS)
        ends.append(start_s + window.prepared.jobs.runs_s - window.submit_s)
    found = change_of_mean(ends[0], ends[1], stretches_of(window.submit_s))
    middle, low, high = found.known
    return {"jct": found.own, "base_jct": found.base, "change": middle, "low": low, "high": high}


def beside(rule: str, cluster: str, knows: str, metric: str) -> Ours | None:
    """The actor against a rule, on windows."""
    found = {
        run: row
        for run, row in known(RESULTS, Run).items()
        if (run.cluster, run.rule, run.knows, run.jobs) == (cluster, rule, knows, "windows")
    }
    return across(RESULTS, found, metric)


def table() -> None:
    """A row a play; below zero: the actor has less."""
    plays.head("cluster", "beside", "which knows", "jobs", "seed", *METRICS)
    for run, row in known(RESULTS, Run).items():
        names = [run.cluster, run.rule, run.knows, run.jobs, run.seed]
        if run.jobs == "long":
            jct = percent(row["change"], row["low"], row["high"], digits=1)
            print(plays.row_of([*names, "", "", jct, ""]))
            continue
        print(plays.row_of([*names, *(str(_change(row, metric)) for metric in METRICS)]))


def _change(row: Row, metric: str) -> object:
    return change([row[metric]], row[f"base_{metric}"], metric)
