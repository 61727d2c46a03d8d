"""Slurm's own backfill beside EASY: whether the default order's gain is the same under both.

Traces, copies and cycles are those of delays at load 0.9 with the traces' own limits; what
sched/backfill plays is played here with Slurm's default parameters, under FCFS and under the
default order. The plays under EASY are those of delays and trust.
"""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from rltuned.lab.compare import of_logs
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from scripts.studies import data_of, delays, plays, trust
from scripts.studies.plays import COPIES, GROUNDS
from scripts.studies.runner import Row, Study, geometric, head, known, row_of
from scripts.studies.trust import CHOSEN, FIGURES

RESULTS, LOAD, ORDERS = data_of("backfill"), 0.9, ("fcfs", "default")


@dataclass(frozen=True)
class Run:
    """One play under Slurm's backfill."""

    ground: str
    copy: int
    policy: str


def play(run: Run) -> Row:
    """Its figures."""
    cluster, trace = plays.trace_of(run.ground, LOAD, run.copy, "own")
    rule = load_actor(trust.SHIPPED, CHOSEN) if run.policy == "default" else BASELINES["fcfs"]
    predictor = plays.predictor_of("shipped")
    return plays.row(run, cluster, trace.jobs, rule, predictor=predictor, backfill="slurm")


def easy_rows() -> dict[Run, Row]:
    """The same plays under EASY."""
    found = {}
    stored, other = known(delays.RESULTS, delays.Run), known(trust.RESULTS, trust.Run)
    for ground, copy in product(GROUNDS, range(1, COPIES + 1)):
        fcfs = delays.Run(ground, LOAD, copy, "fcfs", *delays.NONE)
        found[Run(ground, copy, "fcfs")] = stored[fcfs]
        found[Run(ground, copy, "default")] = other[trust.Run(ground, LOAD, "own", copy, CHOSEN)]
    return found


def table() -> None:
    """The gain of the default order under both, and what the backfill does to each order."""
    every = known(RESULTS, Run)
    whole = [run for run in every if all(replace(run, policy=order) in every for order in ORDERS)]
    sides = {
        (name, order): {run: rows[run] for run in whole if run.policy == order}
        for name, rows in (("Slurm", every), ("EASY", easy_rows()))
        for order in ORDERS
    }
    pairs = {
        "default / FCFS, EASY": (sides["EASY", "default"], sides["EASY", "fcfs"]),
        "default / FCFS, Slurm": (sides["Slurm", "default"], sides["Slurm", "fcfs"]),
        "Slurm / EASY, FCFS": (sides["Slurm", "fcfs"], sides["EASY", "fcfs"]),
        "Slurm / EASY, default": (sides["Slurm", "default"], sides["EASY", "default"]),
    }
    print(head("ground", *pairs))
    for ground in dict.fromkeys(run.ground for run in whole):
        print(row_of([ground, *(_change(ground, *pair) for pair in pairs.values())]))
    print(f"\n{head('of all traces', *FIGURES.values())}")
    for words, (own, base) in pairs.items():
        rows = zip(own.values(), base.values(), strict=True)
        print(row_of([words, *geometric([[a[n] / b[n] for n in FIGURES] for a, b in rows])]))


def _change(ground: str, own: dict[Run, Row], base: dict[Run, Row]) -> str:
    """Of the mean wait over the copies."""
    logs = [
        np.log(a["wait_s"] / b["wait_s"])
        for (run, a), b in zip(own.items(), base.values(), strict=True)
        if run.ground == ground
    ]
    return str(of_logs(np.array(logs)))


RUNS = [Run(g, copy, policy) for copy, g, policy in product(range(1, COPIES + 1), GROUNDS, ORDERS)]
STUDIES = {"backfill": Study(lambda _: iter(RUNS), play, {"table": table})}
