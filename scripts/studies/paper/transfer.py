"""Table 7: an actor that was trained from one base, judged against another, on Helios; and actors
that were trained on one cluster, judged on another, which the paper does not have.

An actor's order does not depend on the base that it is judged against: only the other side changes.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import permutations, product
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.lab.train.network import policy_of
from scripts.studies import plays
from scripts.studies.paper import bases
from scripts.studies.paper.common import (
    CLUSTERS,
    METRICS,
    Row,
    cell,
    judging,
    kept,
    measured,
    workload_of,
)
from scripts.studies.plays import known

RESULTS: Final = Path("docs/data/paper-transfer.jsonl")
BASES: Final = ("fcfs", "sjf", "f1", "wfp3")


@dataclass(frozen=True)
class Run:
    """Trained on a cluster from a base, judged on a cluster against a base."""

    trained_on: str
    trained_from: str
    cluster: str
    against: str
    seed: int


def runs(asked: argparse.Namespace) -> Iterator[Run]:
    """Seed by seed."""
    for seed in range(1, asked.seeds + 1):
        for own, other in permutations(CLUSTERS, 2):
            yield Run(own, "fcfs", other, "fcfs", seed)
        for own, other in product(BASES, BASES):
            if own != other:
                yield Run("helios", own, "helios", other, seed)


def play(run: Run) -> Row:
    """Both sides on the windows that judge."""
    made = bases.learned(bases.Run(run.trained_on, run.trained_from, run.seed))
    began, windows = time.process_time(), judging(workload_of(run.cluster))
    own, base = (
        np.array([measured(window, one) for window in windows])
        for one in (policy_of(made.actor), run.against)
    )
    spent = {"cpu_s": round(made.cpu_s + time.process_time() - began, 1)}
    return asdict(run) | kept(own) | kept(base, "base_") | spent


def table() -> None:
    """A row an actor and what judges it."""
    plays.head("trained on", "from", "judged on", "against", "seed", *METRICS)
    stored: Mapping[Run, Row] = known(RESULTS, Run)
    for run, row in stored.items():
        cells = [cell(row, row[f"base_{metric}"], metric) for metric in METRICS]
        print(plays.row_of([*vars(run).values(), *cells]))
