"""Slurm's own backfill beside EASY: whether the default order's gain is the same under both.

    python -m scripts.studies.backfill run [--minutes M]
    python -m scripts.studies.backfill table | check

Traces, copies and cycles are those of scripts/studies/delays at load 0.9 with the traces' own
limits; what sched/backfill plays is played here with Slurm's default parameters, under FCFS and
under the default order. The plays under EASY are those of delays and trust.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from rltuned.lab.compare import of_logs
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from scripts.studies import delays, plays, trust
from scripts.studies.delays import COPIES, GROUNDS, NONE
from scripts.studies.plays import Row, known

RESULTS = Path("docs/data/backfill.jsonl")
LOAD = 0.9
ORDERS = ("fcfs", "default")
FIGURES = {"wait_s": "wait", "bsld": "slowdown", "wait_p99_s": "99%", "wait_max_s": "longest"}


@dataclass(frozen=True)
class Run:
    """One play under Slurm's backfill."""

    ground: str
    copy: int
    policy: str


def runs(_: argparse.Namespace) -> Iterator[Run]:
    """Copy by copy."""
    for copy, ground, policy in product(range(1, COPIES + 1), GROUNDS, ORDERS):
        yield Run(ground, copy, policy)


def play(run: Run) -> Row:
    """Its figures; the slowdown is of the run time without the limit."""
    cluster, trace = delays.trace_of(run.ground, LOAD, run.copy, "own")
    began = time.process_time()
    rule = load_actor(trust.SHIPPED, trust.CHOSEN) if run.policy == "default" else BASELINES["fcfs"]
    predictor = plays.predictor_of("shipped", tuple)
    found = plays.play(cluster, trace.jobs, rule, predictor=predictor, backfill="slurm")
    run_s = np.array([job.duration_s for job in trace.jobs])
    figures = plays.Outcome(found.played, found.wait_s, run_s).figures()
    return asdict(run) | figures | {"cpu_s": round(time.process_time() - began, 1)}


def easy_rows() -> dict[Run, Row]:
    """The same plays under EASY."""
    found = {}
    stored, other = known(delays.RESULTS, delays.Run), known(trust.RESULTS, trust.Run)
    for ground, copy in product(GROUNDS, range(1, COPIES + 1)):
        fcfs = delays.Run(ground, LOAD, copy, "fcfs", *NONE)
        default = trust.Run(ground, LOAD, "own", copy, trust.CHOSEN)
        found[Run(ground, copy, "fcfs")] = stored[fcfs]
        found[Run(ground, copy, "default")] = other[default]
    return found


def change(ground: str, metric: str, own: dict[Run, Row], base: dict[Run, Row]) -> str:
    """Of a metric over the copies, own against base: (order, rows) each."""
    logs = [
        np.log(b[metric] / a[metric])
        for a, b in zip(_copies(ground, base), _copies(ground, own), strict=True)
    ]
    return str(of_logs(np.array(logs)))


def _copies(ground: str, rows: dict[Run, Row]) -> list[Row]:
    return [row for run, row in rows.items() if run.ground == ground]


def _of(rows: dict[Run, Row], policy: str) -> dict[Run, Row]:
    return {run: row for run, row in rows.items() if run.policy == policy}


def table(_: argparse.Namespace) -> None:
    """The gain of the default order under both, and what the backfill does to each order."""
    every = known(RESULTS, Run)
    whole = {run for run in every if all(replace(run, policy=order) in every for order in ORDERS)}
    slurm, easy = (
        {run: rows[run] for run in every if run in whole} for rows in (every, easy_rows())
    )
    plays.head(
        "ground",
        "default / FCFS, EASY",
        "the same, Slurm",
        "Slurm / EASY, FCFS",
        "the same, default",
    )
    for ground in dict.fromkeys(run.ground for run in slurm):
        gains = [
            change(ground, "wait_s", _of(rows, "default"), _of(rows, "fcfs"))
            for rows in (easy, slurm)
        ]
        cost = [change(ground, "wait_s", _of(slurm, order), _of(easy, order)) for order in ORDERS]
        print(plays.row_of([ground, *gains, *cost]))
    print()
    plays.head("of all traces", *FIGURES.values())
    for words, own, base in (
        ("default / FCFS, EASY", _of(easy, "default"), _of(easy, "fcfs")),
        ("default / FCFS, Slurm", _of(slurm, "default"), _of(slurm, "fcfs")),
        ("Slurm / EASY, FCFS", _of(slurm, "fcfs"), _of(easy, "fcfs")),
        ("Slurm / EASY, default", _of(slurm, "default"), _of(easy, "default")),
    ):
        pairs = zip(own.values(), base.values(), strict=True)
        ratios = [[float(a[name] / b[name]) for name in FIGURES] for a, b in pairs]
        print(plays.row_of([words, *plays.geometric(ratios)]))


def main() -> None:
    plays.main(__doc__, RESULTS, runs, play, views={"table": table})


if __name__ == "__main__":
    main()
