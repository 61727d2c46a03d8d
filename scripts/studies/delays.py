"""Orders as bounded delays beside FCFS and pure SAF: the figures of docs/results.md.

    python -m scripts.studies.delays run [--minutes M] [--front] [--ill] [--fair]
    python -m scripts.studies.delays table | draw

Every run is a long part of a trace on its cluster at one load, in the daemon's cycles of 60 s on a
site that orders by age alone (sim/natural.AGE_ONLY), with the same placement (pack) and backfill
(EASY). `saf` has no bounds: its delays are a thousand times limit x GPUs, where a point is
a thousand seconds, so that there is room for them. Each is played in COPIES
with submit times moved by up to 60 s (seeds 1 to COPIES). What is in the results is not played
again.

Ill-willed orders ask for what the bounds allow: at random, or most of the smallest jobs (`largest`
goes first), of the shortest, of those whose true area is smallest (`largest-area`).

`clairvoyant` is the rule `delay` with sqrt(limit x true run time) in place of the limit: what
perfect run-time knowledge could gain within the bounds. No scheduler can play it.

With --fair the site weighs fair share: factors of the users are drawn once (seed: the copy) evenly
from 0 to 1 and do not change; the whole factor is worth so many days of age. `slurm` is the site's
order without a daemon.
"""

import argparse
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import matplotlib as mpl
import numpy as np

from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.order import DEFAULT, Order, upper_bounds_s
from rltuned.policies.baselines import BASELINES, Baseline
from rltuned.sim.cluster import Cluster, read_cluster
from rltuned.sim.natural import AGE_ONLY, Natural
from rltuned.sim.presets import preset
from rltuned.sim.reshape import jittered
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace, TraceJob, read_trace
from scripts.studies import plays
from scripts.studies.plays import PURE, PURE_SITE, TRACES, Row, known, mean, spread

RESULTS = Path("docs/data/delays.jsonl")
COPIES = 4
LOADS = (0.7, 0.9, 1.1)
FRONT_LOAD = 0.9
"""Where stretch and max_delay are varied, in two copies."""
FRONT_STRETCH = (0.1, 0.3, 1.0, 3.0)
FRONT_DAYS = (1.0, 3.0, 7.0, 14.0)
ILL_WILLED = ("random", "largest", "longest", "largest-area")
CLAIRVOYANT_STRETCH = (0.1, 0.3, 1.0)
FAIR_GROUNDS = ("helios-venus", "testbed")
"""Those whose traces tell users; the testbed's are generated."""
FAIR_DAYS = (1.0, 7.0, 30.0)
"""Days of age that the whole of the fair-share factor is worth."""
JITTER_S = 60.0
DAY = 86_400.0
OWN = (DEFAULT.stretch, DEFAULT.max_delay_s / DAY)
"""Stretch and max_delay of the daemon."""
NONE = (0.0, 0.0)
MAIN_STRETCH = (0.1, 0.3, 1.0)
"""Played at every load."""


@dataclass(frozen=True)
class Ground:
    """A part of a trace: jobs first to last of at most so many GPUs, on the first nodes."""

    trace: str
    first: int = 0
    last: int = 10**9
    most_gpus: int = 10**9
    nodes: int = 10**9


GROUNDS = {
    "philly-nov-1": Ground("philly_2017-11", 0, 12_000, 32),
    "philly-nov-2": Ground("philly_2017-11", 30_000, 42_000, 32),
    "helios-venus": Ground("helios_venus_2020", 2_000, 6_000, 64, 52),
    "thetagpu-1": Ground("thetagpu_2023", 0, 11_000),
    "thetagpu-2": Ground("thetagpu_2023", 11_000, 22_000),
    "testbed": Ground(""),
}


@dataclass(frozen=True)
class Run:
    """One play. stretch, max_delay_d: 0 for the orders that ask for no delay or have no bounds."""

    ground: str
    load: float
    copy: int
    policy: str
    stretch: float
    max_delay_d: float
    fair_d: float = 0.0

    @property
    def order(self) -> Order:
        if self.policy == "saf":
            return PURE
        return Order(self.stretch, 1.0, self.max_delay_d * DAY)


def runs(asked: argparse.Namespace) -> Iterator[Run]:
    """The main table at FRONT_LOAD, what is asked for beside it, the other loads."""
    yield from _main(FRONT_LOAD)
    copies = list(product(GROUNDS, range(1, COPIES + 1)))
    for (ground, copy), policy in product(copies, ILL_WILLED if asked.ill else ()):
        yield Run(ground, FRONT_LOAD, copy, policy, 1.0, 7.0)
    for (ground, copy), stretch in product(copies, CLAIRVOYANT_STRETCH if asked.ill else ()):
        yield Run(ground, FRONT_LOAD, copy, "clairvoyant", stretch, 7.0)
    for (ground, copy), days, policy in product(copies, FAIR_DAYS, ("slurm", "delay")):
        if asked.fair and ground in FAIR_GROUNDS:
            bounds = OWN if policy == "delay" else NONE
            yield Run(ground, FRONT_LOAD, copy, policy, *bounds, fair_d=days)
    for ground, stretch, days, copy in product(GROUNDS, FRONT_STRETCH, FRONT_DAYS, (1, 2)):
        if asked.front:
            yield Run(ground, FRONT_LOAD, copy, "delay", stretch, days)
    for load in LOADS:
        yield from _main(load)


def _main(load: float) -> Iterator[Run]:
    for ground in GROUNDS:
        for copy in range(1, COPIES + 1):
            yield Run(ground, load, copy, "fcfs", *NONE)
            yield Run(ground, load, copy, "saf", *NONE)
            for stretch in MAIN_STRETCH:
                yield Run(ground, load, copy, "delay", stretch, OWN[1])


@cache
def trace_of(ground: str, load: float, copy: int) -> tuple[Cluster, Trace]:
    """The ground's jobs, scaled to the load, with submit times moved."""
    part = GROUNDS[ground]
    if not part.trace:
        cluster = preset("testbed")
        trace = synthesize("testbed-1024", jobs=8_000, seed=7, limits="weak")
    else:
        cluster = read_cluster(TRACES / f"{part.trace}.toml")
        cluster = replace(cluster, nodes=cluster.nodes[: part.nodes])
        trace = read_trace(TRACES / f"{part.trace}.csv.gz")
    jobs = trace.jobs[part.first : part.last]
    return cluster, jittered(plays.loaded(jobs, cluster, load, part.most_gpus), JITTER_S, copy)


def play(run: Run) -> Row:
    """Its figures; the slowdown is of the run time without the limit."""
    cluster, trace = trace_of(run.ground, run.load, run.copy)
    began = time.process_time()
    natural = PURE_SITE if run.policy == "saf" else AGE_ONLY
    found = plays.play(
        cluster,
        trace.jobs,
        _policy(run, trace.jobs),
        order=run.order,
        natural=_fair(run, trace.jobs) if run.fair_d else natural,
    )
    found = replace(found, run_s=np.array([job.duration_s for job in trace.jobs]))
    return (
        asdict(run)
        | found.figures()
        | {
            "jobs": len(trace.jobs),
            "writes_per_job": float(found.played.writes.mean()),
            "cpu_s": round(time.process_time() - began, 1),
        }
    )


def _fair(run: Run, jobs: Sequence[TraceJob]) -> Natural:
    """AGE_ONLY, and a constant fair-share factor for every user."""
    users = sorted({job.user for job in jobs})
    factors = np.random.default_rng(run.copy).permutation(len(users)) / max(1, len(users) - 1)
    points = dict(zip(users, (factors * run.fair_d * DAY).astype(int).tolist(), strict=True))
    return replace(AGE_ONLY, own=tuple(points[job.user] for job in jobs))


def _policy(run: Run, jobs: Sequence[TraceJob]) -> Baseline:
    """A rule by name; `slurm` delays no job; a hostile one asks for parts of the bound."""
    if run.policy not in (*ILL_WILLED, "clairvoyant"):
        return BASELINES["fcfs" if run.policy == "slurm" else run.policy]
    if run.policy == "clairvoyant":
        return plays.clairvoyant(jobs)
    area = np.array([job.duration_s * max(job.gpus, 1) for job in jobs])
    draw = np.random.default_rng(run.copy).random(len(jobs))

    def delay_s(matrix: StateMatrix) -> FloatArray:
        goes_first = {
            "random": draw, "largest": matrix.size, "longest": matrix.limit_s, "largest-area": area
        }[run.policy]  # fmt: skip
        ranks = np.searchsorted(np.sort(goes_first), goes_first) / max(1, len(jobs) - 1)
        found: FloatArray = (1.0 - ranks) * upper_bounds_s(matrix.limit_s, matrix.size, run.order)
        return found

    return Baseline(run.policy, lambda matrix: -delay_s(matrix), delay_s)


def table(_: argparse.Namespace) -> None:
    """Ratios of means over copies, with the smallest and the largest copy, and geometric means."""
    cells: dict[tuple[str, float], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for run, row in sorted(known(RESULTS, Run).items(), key=lambda item: item[0].copy):
        cells[run.ground, run.load][_name(run)].append(row)
    plays.head("ground, load", "order", "wait, h", "wait / SAF", "wait / FCFS", "longest / SAF",
               "writes")  # fmt: skip
    ratios: dict[str, list[list[float]]] = defaultdict(list)
    for (ground, load), by_name in sorted(cells.items()):
        if {"saf", "fcfs"} - by_name.keys():
            continue  # the anchors of a cell are played first
        saf, fcfs = by_name["saf"], by_name["fcfs"]
        for name, rows in sorted(by_name.items()):
            wait_s = mean(rows, "wait_s")
            longest = mean(rows, "wait_max_s") / mean(saf, "wait_max_s")
            own = [wait_s / mean(saf, "wait_s"), wait_s / mean(fcfs, "wait_s"), longest]
            ratios[name].append(own)
            writes, wait = mean(rows, "writes_per_job"), spread(rows, saf, own[0])
            print(plays.row_of([f"{ground} {load:g}", name, wait_s / 3600, wait, *own[1:], writes]))
    for name, found in sorted(ratios.items()):
        print(plays.row_of([f"all {len(found)}", name, "", *plays.geometric(found), ""]))


def _name(run: Run) -> str:
    if run.fair_d or run.policy == "slurm":
        return f"{run.policy}, fair share {run.fair_d:g} d"
    if run.policy in ("delay", "clairvoyant"):
        return f"{run.policy} {run.stretch:g} x {run.max_delay_d:g} d"
    return run.policy


def draw(_: argparse.Namespace) -> None:
    """docs/img/delays.svg: mean, p99 and longest wait against FCFS over stretch and max_delay."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "delays"
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend

    figure, panels = plt.subplots(1, 3, figsize=(10, 3.9), sharex=True)
    names = {"wait_s": "mean wait", "wait_p99_s": "99th percentile", "wait_max_s": "longest wait"}
    for panel, (name, title) in zip(panels, names.items(), strict=True):
        for stretch in FRONT_STRETCH:
            found = [_against_fcfs(name, "delay", stretch, days) for days in FRONT_DAYS]
            panel.plot(FRONT_DAYS, found, marker="o", label=f"delay, stretch {stretch:g}")
        saf = _against_fcfs(name, "saf", *NONE)
        panel.axhline(saf, color="black", ls=":", label="SAF, no bounds")
        panel.axhline(1.0, color="grey", lw=0.8, label="FCFS")
        for colour, policy in zip(("C5", "C6", "C8", "C9"), ILL_WILLED, strict=True):
            ill = _against_fcfs(name, policy, 1.0, 7.0)
            panel.plot(7.0, ill, marker="x", ls="", color=colour, label=f"ill-willed: {policy}")
        panel.set(xlabel="max_delay, days", title=title, yscale="log")
    panels[0].set_ylabel("against FCFS, geometric mean")
    figure.tight_layout(rect=(0, 0.17, 1, 1))
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="lower center", ncol=4)
    figure.savefig("docs/img/delays.svg", metadata={"Date": None})


def _against_fcfs(name: str, policy: str, stretch: float, days: float) -> float:
    """Of the means over copies, geometric mean over the grounds."""
    logs = []
    for ground in GROUNDS:
        means: dict[str, float] = {}
        for chosen in (("fcfs", *NONE), (policy, stretch, days)):
            values = [
                row[name]
                for run, row in known(RESULTS, Run).items()
                if (run.ground, run.load) == (ground, FRONT_LOAD)
                and not run.fair_d
                and (run.policy, run.stretch, run.max_delay_d) == chosen
            ]
            means[chosen[0]] = float(np.mean(values))
        logs.append(math.log(means[policy] / means["fcfs"]))
    return math.exp(float(np.mean(logs)))


def _options(parser: argparse.ArgumentParser) -> None:
    for name in ("--front", "--ill", "--fair"):
        parser.add_argument(name, action="store_true")


if __name__ == "__main__":
    plays.main(__doc__, RESULTS, runs, play, views={"table": table, "draw": draw}, options=_options)
