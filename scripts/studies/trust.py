"""How far an actor is trusted: its corrections of the rule, times a trust of 0 (the rule) to 1.

Traces, copies and cycles are those of delays, which has the rule (trust 0) there; the others are
played here. Blue Waters (GPU jobs on 512 nodes of one GPU, real limits) is played here in whole.
Limits are the trace's own, weak or none; the predictor is the shipped one. Another actor has rows
of its own: python -m scripts.studies.trust ACTOR ROWS [--trust T]
"""

import argparse
import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.compare import of_logs
from rltuned.lab.replay.trace_file import jittered
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.settings import Settings
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.trace import Trace, TraceJob
from scripts.studies import data_of, delays, plays
from scripts.studies.plays import COPIES, JITTER_S, SMALL, STRENGTHS, TRACES
from scripts.studies.runner import Row, Study, head, known, play_missing, row_of

RESULTS = data_of("trust")
SHIPPED = Path("models/rltune")
CHOSEN, OTHERS = Settings().policy.trust, (0.25, 0.5, 0.75, 1.0)
"""Of the default, and those that are played with the traces' own limits alone."""
GROUNDS = tuple(name for name in plays.GROUNDS if name != SMALL)
"""What the criterion is about; the other two may show no proven loss."""
BLUE_WATERS = "bluewaters"
BLUE_WATERS_NODES, BLUE_WATERS_WIDEST, BLUE_WATERS_FIRST = 512, 256, 3
"""After the first three jobs nothing came for 56 days."""
FIGURES = {"wait_s": "wait", "bsld": "slowdown", "wait_p99_s": "99%", "wait_max_s": "longest"}
MOST = {
    "own": {"wait_s": 0.98, "bsld": 0.92, "wait_p99_s": 1.06, "wait_max_s": 1.06},
    "weak": {"wait_s": 1.0, "bsld": 1.0},
    "none": {"wait_s": 1.0, "bsld": 1.0},
}
"""Of geometric means over traces, loads and copies, as multiples of the rule."""
MOST_LOSS = 0.03
"""Of the wait on one trace, by the lower end of its interval over loads and copies."""


@dataclass(frozen=True)
class Run:
    """One play. trust: 0 = the rule."""

    ground: str
    load: float
    limits: str
    copy: int
    trust: float


def runs(_: argparse.Namespace) -> Iterator[Run]:
    """The trust of the default first, then the two other clusters, then the other trusts."""
    grid = list(product((0.9, 0.7, 1.1), GROUNDS, range(1, COPIES + 1)))
    for limits, (load, ground, copy) in product(STRENGTHS, grid):
        yield Run(ground, load, limits, copy, CHOSEN)
    for copy in range(1, COPIES + 1):
        yield from (Run(SMALL, load, "own", copy, CHOSEN) for load in delays.LOADS)
        yield from (Run(BLUE_WATERS, 0.9, "own", copy, trust) for trust in (0.0, CHOSEN))
    for trust, (load, ground, copy) in product(OTHERS, grid):
        yield Run(ground, load, "own", copy, trust)


@cache
def trace_of(ground: str, load: float, limits: str, copy: int) -> tuple[Cluster, Trace]:
    if ground != BLUE_WATERS:
        return plays.trace_of(ground, load, copy, limits)
    size = Resources(1, 16, 32_000)
    nodes = tuple(
        idle_node(f"n{i:04d}", GpuType(""), size, ("gpu",)) for i in range(BLUE_WATERS_NODES)
    )
    cluster = Cluster(ground, nodes, (Partition("gpu", default=True),))
    jobs = plays.loaded(_blue_waters(), cluster, load, BLUE_WATERS_WIDEST)
    return cluster, jittered(jobs, JITTER_S, copy)


def _blue_waters() -> tuple[TraceJob, ...]:
    """The jobs that ask for GPUs, one on each of their nodes."""
    with gzip.open(TRACES / "bluewaters_15k.csv.gz", "rt") as lines:
        rows = list(csv.DictReader(lines))
    submit_s = np.cumsum([float(row["interval"]) for row in rows])
    return tuple(
        TraceJob(
            job_id=row["u_id"], submit_s=float(at), duration_s=float(row["run_time"]),
            time_limit_s=float(row["wall_time"]), gpus=int(row["gpu_num"]),
            nodes=int(row["gpu_num"]), user=row["user"],
        )
        for row, at in zip(rows, submit_s, strict=True)
        if int(row["gpu_num"]) and int(row["u_id"]) >= BLUE_WATERS_FIRST
    )  # fmt: skip


def play(run: Run, actor: Path = SHIPPED) -> Row:
    """Its figures."""
    cluster, trace = trace_of(run.ground, run.load, run.limits, run.copy)
    policy = load_actor(actor, run.trust) if run.trust else BASELINES["delay"]
    return plays.row(run, cluster, trace.jobs, policy, predictor=plays.predictor_of("shipped"))


def rows_of(results: Path) -> dict[Run, Row]:
    """Every play of an actor, and those of the rule."""
    rule = ("delay", *delays.OWN)
    return known(results, Run) | {
        Run(one.ground, one.load, one.limits, one.copy, 0.0): row
        for one, row in known(delays.RESULTS, delays.Run).items()
        if (one.policy, one.own, one.share, one.max_delay_d) == rule
    }


Ratios = Mapping[Run, Sequence[float]]
"""Of each play with a trust, the logarithms of FIGURES against the rule on the same jobs."""


def ratios_of(rows: Mapping[Run, Row]) -> Ratios:
    return {
        run: [float(np.log(row[name] / rows[replace(run, trust=0.0)][name])) for name in FIGURES]
        for run, row in rows.items()
        if run.trust and replace(run, trust=0.0) in rows
    }


def frontier(ratios: Ratios) -> Iterator[str]:
    """By limits and load geometric means over the traces and copies."""
    cells: dict[tuple[int, str, float], list[Sequence[float]]] = defaultdict(list)
    for run, logs in ratios.items():
        for load in (f"{run.load:g}", "all") if run.ground in GROUNDS else ():
            cells[STRENGTHS.index(run.limits), load, run.trust].append(logs)
    yield head("limits", "load", "trust", *FIGURES.values(), "plays")
    for (place, load, trust), every in sorted(cells.items()):
        means = np.exp(np.mean(every, axis=0)).tolist()
        yield row_of([STRENGTHS[place], load, f"{trust:g}", *means, len(every)])


def by_trace(ratios: Ratios) -> Iterator[str]:
    """The change of the wait on each trace with its interval over loads and copies."""
    cells: dict[tuple[int, str, float], list[float]] = defaultdict(list)
    for run, logs in ratios.items():
        cells[STRENGTHS.index(run.limits), run.ground, run.trust].append(logs[0])
    yield head("limits", "trace", "trust", "wait against the rule", "plays")
    for (place, ground, trust), waits in sorted(cells.items()):
        change = of_logs(np.array(waits))
        yield row_of([STRENGTHS[place], ground, f"{trust:g}", change, len(waits)])


def verdicts(ratios: Ratios) -> Iterator[str]:
    """What of the criterion each trust misses."""
    for trust in sorted({run.trust for run in ratios}):
        yield f"- trust {trust:g}: {'; '.join(misses(ratios, trust)) or 'holds'}"


def misses(ratios: Ratios, trust: float) -> list[str]:
    """What of the criterion does not hold; what was not played says nothing."""

    def of(limits: str, *grounds: str) -> list[Sequence[float]]:
        asked = [run for run in ratios if (run.limits, run.trust) == (limits, trust)]
        return [ratios[run] for run in asked if run.ground in grounds]

    found = []
    for limits, most in MOST.items():
        logs = of(limits, *GROUNDS)
        means = np.exp(np.mean(logs, axis=0)).tolist() if logs else []
        for (name, words), mean in zip(FIGURES.items(), means, strict=False):
            if mean > most.get(name, np.inf):
                found.append(f"{limits} limits: {words} {mean:.3f}, at most {most[name]:g}")
    for ground, limits in product((*GROUNDS, SMALL, BLUE_WATERS), STRENGTHS):
        waits = [logs[0] for logs in of(limits, ground)]
        low = of_logs(np.array(waits)).low if waits else None
        if low is not None and low > (MOST_LOSS if ground in GROUNDS else 0.0):
            found.append(f"{ground}, {limits} limits: at least {low:+.1%} of wait")
    return found


def table(rows: Path = RESULTS) -> None:
    ratios = ratios_of(rows_of(rows))
    for part in (frontier, by_trace, verdicts):
        print(*part(ratios), "", sep="\n")


STUDIES = {"trust": Study(runs, play, {"table": table})}
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Another actor beside the rule.")
    parser.add_argument("actor", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--trust", type=float, default=CHOSEN)
    asked = parser.parse_args()
    usual = (run for run in runs(asked) if run.trust in {0.0, CHOSEN})
    wanted = (replace(run, trust=asked.trust) if run.trust else run for run in usual)
    play_missing(asked.rows, wanted, partial(play, actor=asked.actor), np.inf)
    table(asked.rows)
