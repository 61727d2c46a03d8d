"""Orders on windows of long traces: what predictions change, with and without bounds.

Three clusters are real; no public trace has names of jobs. SCRIPTS are generated: users submit the
same scripts again and again and go on holiday, and so much of the variance of ln(run time) within a
user lies between scripts. How large that share is at a site is unknown.

Each trace is scaled to LOAD as a whole. The predictor `site` is fitted to its first FIRST
share; the windows of WINDOW_JOBS jobs begin at equal distances in the rest. They share jobs where
the rest is short, so the unit of chance is a stretch of WINDOW_JOBS jobs, not a window. Every
window is played by each order with the WARM_UP jobs before it, which fill the queue and the memory
and are in no figure. Limits are those of plays, cycles are of 60 s.

`limit`, `shipped` and `site` say what an order knows of run times. An order with `pure` has no
bounds; `saf` is pure by definition.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product

import numpy as np

from rltuned.lab.compare import change_of_mean
from rltuned.lab.replay.trace_file import read_trace
from rltuned.lab.stats import OF_WINDOWS, Stretches
from rltuned.policies.predictor import Predictor
from rltuned.sim.cluster import Cluster, read_cluster
from rltuned.sim.habits import Habits
from rltuned.sim.natural import AGE_ONLY
from rltuned.sim.presets import preset
from rltuned.sim.synth import SHAPES, jobs_of
from rltuned.sim.trace import TraceJob
from rltuned.stats import percent
from scripts.studies import data_of, plays
from scripts.studies.plays import PURE, PURE_SITE, STRENGTHS, TRACES
from scripts.studies.runner import Row, Study, head, known, row_of

RESULTS = data_of("windows")
LOAD, FIRST, WINDOWS, WINDOW_JOBS, WARM_UP = 0.9, 0.4, 40, 1_024, 3_000
CLUSTERS = {"philly": ("philly_2017-11", 32), "venus": ("helios_venus_2020", 64),
            "thetagpu": ("thetagpu_2023", 10**9)}  # fmt: skip
"""Traces, and the most GPUs of a job."""
STRIDE = 17
SCRIPTS = {"scripts-30": 0.3, "scripts-60": 0.6, "scripts-90": 0.9}
SCRIPT_JOBS, SCRIPT_SEED, AWAY = 30_000, 11, 0.2
FREE = (("saf", "limit"), *(o for o in plays.ORDERS if o[0] != "fcfs"))
BOUNDED = tuple(order for order in plays.ORDERS if order[0] != "qssf")
"""Orders that are played without bounds, and within them."""
ORDERS = (*((*order, True) for order in FREE), *((*order, False) for order in BOUNDED))
WORSE = 1.02


@dataclass(frozen=True)
class Run:
    """One order on one window. pure: without bounds."""

    cluster: str
    limits: str
    window: int
    policy: str
    knowledge: str
    pure: bool


def runs(_: argparse.Namespace) -> Iterator[Run]:
    """Window by window, far apart, so that an interrupted study is even; informative limits of
    generated jobs are left out.
    """
    cells = [*product(CLUSTERS, STRENGTHS), *product(SCRIPTS, ("weak", "none"))]
    for at, (cluster, limits), order in product(range(WINDOWS), cells, ORDERS):
        yield Run(cluster, limits, at * STRIDE % WINDOWS, *order)


@cache
def trace_of(name: str, strength: str) -> tuple[Cluster, tuple[TraceJob, ...]]:
    """A cluster, and all jobs that fit it."""
    if name in SCRIPTS:
        return _generated(SCRIPTS[name], strength)
    trace_name, most_gpus = CLUSTERS[name]
    cluster = read_cluster(TRACES / f"{trace_name}.toml")
    return _loaded(cluster, read_trace(TRACES / f"{trace_name}.csv.gz").jobs, strength, most_gpus)


def _generated(script_share: float, strength: str) -> tuple[Cluster, tuple[TraceJob, ...]]:
    habits = Habits(script_share, away=AWAY)
    made = jobs_of(
        SHAPES["philly-like"],
        jobs=SCRIPT_JOBS,
        seed=SCRIPT_SEED,
        limits="informative",
        habits=habits,
    )
    return _loaded(preset("philly-192"), made, strength, 10**9)


def _loaded(
    cluster: Cluster, jobs: tuple[TraceJob, ...], strength: str, most_gpus: int
) -> tuple[Cluster, tuple[TraceJob, ...]]:
    trace = plays.loaded(jobs, cluster, LOAD, most_gpus)
    return cluster, plays.with_limits(trace.jobs, strength, cluster)


def begins(jobs: int) -> list[int]:
    """Where the windows begin."""
    return [int(at) for at in np.linspace(int(jobs * FIRST), jobs - WINDOW_JOBS, WINDOWS)]


@cache
def predictor_of(name: str, strength: str, knowledge: str) -> Predictor | None:
    """What an order knows; `site` has seen the FIRST share."""
    _, jobs = trace_of(name, strength)
    return plays.predictor_of(knowledge, lambda: jobs[: int(len(jobs) * FIRST)])


def play(run: Run) -> Row:
    """Its figures, of the window's jobs alone."""
    cluster, every = trace_of(run.cluster, run.limits)
    first = begins(len(every))[run.window]
    jobs = every[max(0, first - WARM_UP) : first + WINDOW_JOBS]
    found = plays.play(
        cluster,
        jobs,
        plays.policy_of(run.policy, jobs),
        order=PURE if run.pure else None,
        natural=PURE_SITE if run.pure else AGE_ONLY,
        predictor=predictor_of(run.cluster, run.limits, run.knowledge),
    )
    figures = found.figures(WINDOW_JOBS)
    digits = {"wait_s": 2, "wait_max_s": None, "bsld": 3}
    return asdict(run) | {"begin": first} | {k: round(figures[k], n) for k, n in digits.items()}


Cell = dict[tuple[str, str, bool], dict[int, Row]]


def table() -> None:
    """Ratios of means over windows with 95% intervals, and the share of windows that lose."""
    cells: dict[tuple[str, str], Cell] = defaultdict(lambda: defaultdict(dict))
    for run, row in known(RESULTS, Run).items():
        cells[run.limits, run.cluster][run.policy, run.knowledge, run.pure][run.window] = row
    _print(cells, "Without bounds, against SAF", FREE[1:], (*FREE[0], True))
    _print(cells, "Within the bounds, against the limits alone", BOUNDED[2:],
           (*BOUNDED[1], False))  # fmt: skip


def _print(
    cells: dict[tuple[str, str], Cell],
    title: str,
    orders: tuple[tuple[str, str], ...],
    base: tuple[str, str, bool],
) -> None:
    print(head(title, "order", "wait", "slowdown", "longest", "windows over +2%", "of the way"))
    for (limits, cluster), cell in sorted(cells.items()):
        best = cell["clairvoyant", "true", base[2]]
        for order in orders:
            own, other = cell[*order, base[2]], cell[base]
            shared = sorted(own.keys() & other.keys() & best.keys())
            if not shared:
                continue
            pairs = [(own[w], other[w]) for w in shared]
            ratios = [_ratio(pairs, name) for name in ("wait_s", "bsld")]
            longest = max(a["wait_max_s"] for a, _ in pairs) / max(
                b["wait_max_s"] for _, b in pairs
            )
            lost = sum(a["wait_s"] > WORSE * b["wait_s"] + 1.0 for a, b in pairs) / len(pairs)
            gained, possible_s = (
                sum(other[w]["wait_s"] - some[w]["wait_s"] for w in shared) for some in (own, best)
            )
            total_s = sum(other[w]["wait_s"] for w in shared)
            way = f"{gained / possible_s:.0%}" if possible_s > (WORSE - 1) * total_s else "-"
            shown = [*ratios, longest, f"{lost:.0%}", way]
            name = f"{limits}, {cluster}, {len(shared)}"
            print(row_of([name, ", ".join(order), *shown]))


def _ratio(pairs: list[tuple[Row, Row]], name: str) -> str:
    """Change of the mean over windows; its interval draws stretches of WINDOW_JOBS jobs."""
    stretch = np.array([int(a["begin"]) // WINDOW_JOBS for a, _ in pairs])
    _, of = np.unique(stretch, return_inverse=True)
    own, base = (np.array([row[name] for row in side]) for side in zip(*pairs, strict=True))
    stretches = Stretches(of.astype(np.int64), int(of.max()) + 1, 0.0)
    return percent(*change_of_mean(base, own, stretches, OF_WINDOWS).known, digits=0)


STUDIES = {"windows": Study(runs, play, {"table": table})}
