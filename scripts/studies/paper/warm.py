"""DL2's warm start: PPO from an actor that imitates the base, beside PPO from a blank one.

Both have the same windows, settings and epochs, and the base is the other pipeline of both. The
rows are of the blank ones; those of the others are the part `bases`.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np

from rltuned.lab.train.network import policy_of
from rltuned.stats import percent
from scripts.studies import plays
from scripts.studies.paper import bases
from scripts.studies.paper.common import CLUSTERS, Row, workload_of
from scripts.studies.plays import known

RESULTS: Final = Path("docs/data/paper-warm.jsonl")
BASES: Final = ("sjf", "wfp3")
EARLY: Final = 5
"""Epochs whose waits are summed up: what learning costs a site while it is not done."""


def runs(asked: argparse.Namespace) -> Iterator[bases.Run]:
    """Seed by seed."""
    for seed, base, cluster in product(range(1, asked.seeds + 1), BASES, CLUSTERS):
        yield bases.Run(cluster, base, seed)


def play(run: bases.Run) -> Row:
    """Learn, and judge beside the base."""
    began = time.process_time()
    blank, _ = bases.start_of("fcfs", run.seed)
    actor, curve = bases.learn(run, blank)
    found = bases.judged(workload_of(run.cluster), run.base, policy_of(actor))
    return asdict(run) | {"curve": curve} | found | {"cpu_s": round(time.process_time() - began, 1)}


def table() -> None:
    """Waits against the base: before the first epoch, over the first epochs, and at the end."""
    plays.head("cluster", "base", "seed", "start", "before", f"{EARLY} epochs", "at the end")
    warm = known(bases.RESULTS, bases.Run)
    for run, row in sorted(
        known(RESULTS, bases.Run).items(), key=lambda x: tuple(vars(x[0]).values())
    ):
        for start, one in (("imitated", warm[run]), ("blank", row)):
            curve = np.expm1(one["curve"])
            early = [f"{curve[0]:+.0%}", f"{curve[1 : EARLY + 1].mean():+.0%}"]
            end = percent(one["wait"], one["wait_low"], one["wait_high"], digits=0)
            print(plays.row_of([*vars(run).values(), start, *early, end]))
