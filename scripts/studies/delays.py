"""Orders as bounded delays beside FCFS and pure SAF: the figures of docs/results.md.

    python -m scripts.studies.delays run [--minutes M] [--front] [--ill] [--fair]
    python -m scripts.studies.delays check --only "Helios Venus, 0.9, own"
    python -m scripts.studies.delays table | draw

Every run is a long part of a trace on its cluster at one load, in the daemon's cycles of 60 s on a
site that orders by age alone (sim/natural.AGE_ONLY), with the same placement (pack) and backfill
(EASY). Orders that go by run times have the shipped predictor, which has met none of these jobs.
Limits are the trace's own, or drawn to tell little (weak) or nothing (none).

`default` is the rule with the daemon's bounds; `length` is that of release 0.2.0, with the part in
the unit of the job alone; `saf` has no bounds: its delays are a thousand times limit x GPUs, where
a point is a thousand seconds, so that there is room for them. Each is played in COPIES with submit
times moved by up to 60 s (seeds 1 to COPIES). What is in the results is not played again.

Ill-willed orders ask for what the bounds allow: at random, or most of the smallest jobs (`largest`
goes first), of the shortest, of those whose true area is smallest (`largest-area`).

`clairvoyant` knows the true run times: what perfect knowledge could gain within the bounds. No
scheduler can play it.

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
from rltuned.core.numbers import Writing
from rltuned.core.order import DEFAULT, Order, clip_s
from rltuned.lab.replay.trace_file import jittered, read_trace
from rltuned.policies.baselines import BASELINES, Baseline
from rltuned.sim.cluster import Cluster, preset, read_cluster
from rltuned.sim.dispatch import AGE_ONLY, Natural
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace, TraceJob
from scripts.studies import plays
from scripts.studies.plays import PURE, PURE_SITE, STRENGTHS, TRACES, Row, known, mean, spread
from scripts.tools.draw_results import GROUNDS as TITLES

RESULTS = Path("docs/data/delays.jsonl")
COPIES = 4
LOADS = (0.7, 0.9, 1.1)
FRONT_LOAD = 0.9
"""Where own, share and max_delay are varied, one at a time, in two copies."""
FRONT_SHARES = (0.0, 0.5, 0.75, 1.0, 2.0, 4.0)
FRONT_OWNS = (0.03, 0.3)
FRONT_DAYS = (3.0, 30.0)
ILL_WILLED = ("random", "largest", "longest", "largest-area")
FAIR_GROUNDS = ("helios-venus", "testbed")
"""Those whose traces tell users; the testbed's are generated."""
FAIR_DAYS = (1.0, 7.0, 30.0)
"""Days of age that the whole of the fair-share factor is worth."""
JITTER_S = 60.0
DAY = 86_400.0


@dataclass(frozen=True)
class Workload:
    """A part of a trace: jobs first to last of at most so many GPUs, on the first nodes."""

    trace: str
    first: int = 0
    last: int = 10**9
    most_gpus: int = 10**9
    nodes: int = 10**9


GROUNDS = {
    "philly-nov-1": Workload("philly_2017-11", 0, 12_000, 32),
    "philly-nov-2": Workload("philly_2017-11", 30_000, 42_000, 32),
    "helios-venus": Workload("helios_venus_2020", 2_000, 6_000, 64, 52),
    "thetagpu-1": Workload("thetagpu_2023", 0, 11_000),
    "thetagpu-2": Workload("thetagpu_2023", 11_000, 22_000),
    "testbed": Workload(""),
}


OWN = (DEFAULT.own, DEFAULT.share, DEFAULT.max_delay_s / DAY)
"""Own, share and max_delay of the daemon."""
LENGTH = (0.1, 0.0, 7.0)
"""Of release 0.2.0, whose hysteresis was this."""
LENGTH_HYSTERESIS = 0.85
NONE = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Run:
    """One play. own, share, max_delay_d: 0 for orders that ask for no delay or have no bounds."""

    ground: str
    load: float
    copy: int
    policy: str
    own: float
    share: float
    max_delay_d: float
    limits: str = "own"
    fair_d: float = 0.0

    @property
    def order(self) -> Order:
        if self.policy == "saf":
            return PURE
        return Order(self.own, self.share, 1.0, self.max_delay_d * DAY)


def runs(asked: argparse.Namespace) -> Iterator[Run]:
    """The traces' own limits first, then what is asked for, then the other limits."""
    for load in (FRONT_LOAD, *LOADS):
        yield from _main(load, "own")
    copies = list(product(GROUNDS, range(1, COPIES + 1)))
    for (ground, copy), policy in product(
        copies, (*ILL_WILLED, "clairvoyant") if asked.ill else ()
    ):
        yield Run(ground, FRONT_LOAD, copy, policy, *OWN)
    for order, ground, copy in product(_front() if asked.front else (), GROUNDS, (1, 2)):
        yield Run(ground, FRONT_LOAD, copy, "delay", *order)
    for (ground, copy), days, policy in product(copies, FAIR_DAYS, ("slurm", "delay")):
        if asked.fair and ground in FAIR_GROUNDS:
            bounds = OWN if policy == "delay" else NONE
            yield Run(ground, FRONT_LOAD, copy, policy, *bounds, fair_d=days)
    for load, limits in product((FRONT_LOAD, *LOADS), STRENGTHS[1:]):
        yield from _main(load, limits)


def _main(load: float, limits: str) -> Iterator[Run]:
    for ground, copy in product(GROUNDS, range(1, COPIES + 1)):
        yield Run(ground, load, copy, "fcfs", *NONE, limits=limits)
        yield Run(ground, load, copy, "saf", *NONE, limits=limits)
        yield Run(ground, load, copy, "delay", *LENGTH, limits=limits)
        yield Run(ground, load, copy, "delay", *OWN, limits=limits)


def _front() -> list[tuple[float, float, float]]:
    """One number moves at a time."""
    own, share, days = OWN
    found = [(own, other, days) for other in FRONT_SHARES]
    found += [(other, share, days) for other in FRONT_OWNS]
    return found + [(own, share, other) for other in FRONT_DAYS]


@cache
def trace_of(ground: str, load: float, copy: int, limits: str) -> tuple[Cluster, Trace]:
    """The trace's jobs, scaled to the load, with submit times moved."""
    part = GROUNDS[ground]
    if not part.trace:
        cluster = preset("testbed")
        trace = synthesize("testbed-1024", jobs=8_000, seed=7, limits="weak")
    else:
        cluster = read_cluster(TRACES / f"{part.trace}.toml")
        cluster = replace(cluster, nodes=cluster.nodes[: part.nodes])
        trace = read_trace(TRACES / f"{part.trace}.csv.gz")
    jobs = trace.jobs[part.first : part.last]
    loaded = plays.loaded(jobs, cluster, load, part.most_gpus)
    limited = replace(loaded, jobs=plays.with_limits(loaded.jobs, limits, cluster))
    return cluster, jittered(limited, JITTER_S, copy)


def play(run: Run) -> Row:
    """Its figures; the slowdown is of the run time without the limit."""
    cluster, trace = trace_of(run.ground, run.load, run.copy, run.limits)
    began = time.process_time()
    natural = PURE_SITE if run.policy == "saf" else AGE_ONLY
    found = plays.play(
        cluster,
        trace.jobs,
        _policy(run, trace.jobs),
        order=run.order,
        natural=_fair(run, trace.jobs) if run.fair_d else natural,
        predictor=plays.predictor_of("shipped" if run.policy == "delay" else "limit", tuple),
        hysteresis=LENGTH_HYSTERESIS if not run.share else Writing().hysteresis,
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
    """By name; `slurm` delays no job; a hostile one asks for parts of the bound."""
    if run.policy not in (*ILL_WILLED, "clairvoyant"):
        return BASELINES["fcfs" if run.policy == "slurm" else run.policy]
    if run.policy == "clairvoyant":
        return plays.clairvoyant(jobs)
    area = np.array([job.duration_s * max(job.gpus, 1) for job in jobs])
    draw = np.random.default_rng(run.copy).random(len(jobs))

    def last(matrix: StateMatrix) -> FloatArray:
        """(n,) 1 for what goes last, 0 for what goes first."""
        goes_first = {
            "random": draw, "largest": matrix.size, "longest": matrix.limit_s, "largest-area": area
        }[run.policy]  # fmt: skip
        ranks = np.searchsorted(np.sort(goes_first), goes_first) / max(1, len(jobs) - 1)
        found: FloatArray = 1.0 - ranks
        return found

    def own_s(matrix: StateMatrix) -> FloatArray:
        bound_s = clip_s(matrix.length_s, matrix.size, run.order)
        found: FloatArray = last(matrix) * bound_s / run.own
        return found

    return Baseline(run.policy, lambda matrix: -own_s(matrix), own_s, last)


def table(_: argparse.Namespace) -> None:
    """Ratios of means over copies, with the smallest and the largest copy, and geometric means."""
    cells: dict[tuple[str, float, str], dict[str, list[Row]]]
    cells = defaultdict(lambda: defaultdict(list))
    for run, row in sorted(known(RESULTS, Run).items(), key=lambda item: item[0].copy):
        cells[run.ground, run.load, run.limits][_name(run)].append(row)
    plays.head("trace, load, limits", "order", "wait, h", "wait / FCFS", "99%", "longest",
               "slowdown", "writes")  # fmt: skip
    ratios: dict[tuple[float, str, str], dict[str, list[float]]] = defaultdict(dict)
    for (ground, load, limits), by_name in sorted(cells.items()):
        fcfs = by_name.get("fcfs")
        if fcfs is None:
            continue  # the anchor of a cell is played first
        for name, rows in sorted(by_name.items()):
            own = [mean(rows, key) / mean(fcfs, key) for key in FIGURES]
            if ground != "testbed":
                ratios[load, limits, name][ground] = own
            writes, wait = mean(rows, "writes_per_job"), spread(rows, fcfs, own[0])
            hours = mean(rows, "wait_s") / 3600
            cell = f"{ground} {load:g} {limits}"
            print(plays.row_of([cell, name, hours, wait, *own[1:], writes]))
    for (load, limits, name), found in sorted(ratios.items()):
        cell = f"all {len(found)} but the testbed, {load:g} {limits}"
        print(plays.row_of([cell, name, "", *plays.geometric(list(found.values())), ""]))


FIGURES = ("wait_s", "wait_p99_s", "wait_max_s", "bsld")


def _name(run: Run) -> str:
    if run.fair_d or run.policy == "slurm":
        return f"{run.policy}, fair share {run.fair_d:g} d"
    if run.policy != "delay":
        return run.policy
    order = run.own, run.share, run.max_delay_d
    if order in (OWN, LENGTH):
        return "default" if order == OWN else "length"
    return f"delay {run.own:g} + {run.share:g} x backlog, {run.max_delay_d:g} d"


def draw(_: argparse.Namespace) -> None:
    """docs/img/delays.svg: mean, p99, longest wait and slowdown against FCFS over the share."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "delays"
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend

    figure, panel = plt.subplots(figsize=(7, 4.2))
    names = ("mean wait", "99% wait", "longest wait", "mean slowdown")
    for name, title in zip(FIGURES, names, strict=True):
        ratios = [_against_fcfs(name, "delay", (OWN[0], share, OWN[2])) for share in FRONT_SHARES]
        panel.plot(FRONT_SHARES, ratios, marker="o", label=title)
    panel.axhline(1.0, color="grey", lw=0.8)
    panel.axvline(DEFAULT.share, color="black", lw=0.8, ls=":")
    panel.text(DEFAULT.share, panel.get_ylim()[0], " default", va="bottom", fontsize=8)
    panel.set(
        xlabel="share of the backlog (order.share)", ylabel="against first come, first served"
    )
    panel.legend(fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    figure.tight_layout()
    figure.savefig("docs/img/delays.svg", metadata={"Date": None})


def _against_fcfs(name: str, policy: str, order: tuple[float, float, float]) -> float:
    """Of the means over copies, geometric mean over the traces but the testbed."""
    logs = []
    for ground in GROUNDS:
        if ground == "testbed":
            continue
        means: dict[str, float] = {}
        for chosen in (("fcfs", *NONE), (policy, *order)):
            values = [
                row[name]
                for run, row in known(RESULTS, Run).items()
                if (run.ground, run.load, run.limits, run.fair_d)
                == (ground, FRONT_LOAD, "own", 0.0)
                and run.copy <= 2  # noqa: PLR2004 - the copies in which the front is played
                and (run.policy, run.own, run.share, run.max_delay_d) == chosen
            ]
            means[chosen[0]] = float(np.mean(values))
        logs.append(math.log(means[policy] / means["fcfs"]))
    return math.exp(float(np.mean(logs)))


def names(run: Run) -> tuple[object, ...]:
    """As the tables of docs/results.md name it; --only takes the first ones of them."""
    return TITLES[run.ground], run.load, run.limits, _name(run), f"copy {run.copy}"


def _options(parser: argparse.ArgumentParser) -> None:
    for name in ("--front", "--ill", "--fair"):
        parser.add_argument(name, action="store_true")


if __name__ == "__main__":
    views = {"table": table, "draw": draw}
    plays.main(__doc__, RESULTS, runs, play, views=views, options=_options, names=names)
