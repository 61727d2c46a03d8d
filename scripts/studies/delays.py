"""Orders as bounded delays beside FCFS and pure SAF: the figures of docs/results.md.

Every run is a long part of a trace on its cluster at one load, in the daemon's cycles of 60 s, with
the same placement (pack) and backfill (EASY). The shipped predictor has met none of these jobs.

`delay` with OWN bounds is the rule with the daemon's; with those of LENGTH it is that of release
0.2.0, with the part in the unit of the job alone; `saf` has no bounds: its delays are a thousand
times limit x GPUs, where a point is a thousand seconds, so that there is room for them.

Hostile orders ask for what the bounds allow: at random, or most of the smallest jobs (`largest`
goes first), of the shortest, of those whose true area is smallest (`largest-area`). `clairvoyant`
knows the true run times: what perfect knowledge could gain within the bounds.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.numbers import Writing
from rltuned.core.order import DEFAULT, Order, clip_s
from rltuned.policies.baselines import BASELINES, Baseline
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import AGE_ONLY
from scripts.studies import data_of, figures, plays
from scripts.studies.plays import COPIES, GROUNDS, PURE, PURE_SITE, STRENGTHS, trace_of
from scripts.studies.runner import Row, Study

RESULTS = data_of("delays")
LOADS = (0.7, 0.9, 1.1)
FRONT_LOAD = 0.9
"""Where own, share and max_delay are varied, one at a time, in two copies."""
HOSTILE = ("random", "largest", "longest", "largest-area")
OWN = (DEFAULT.own, DEFAULT.share, DEFAULT.max_delay_s / 86_400.0)
"""Own, share and max_delay of the daemon."""
LENGTH, LENGTH_HYSTERESIS = (0.1, 0.0, 7.0), 0.85
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

    @property
    def order(self) -> Order:
        if self.policy == "saf":
            return PURE
        return Order(self.own, self.share, 1.0, self.max_delay_d * 86_400.0)


def runs(_: argparse.Namespace) -> Iterator[Run]:
    """The traces' own limits first, then hostile orders and the frontier, then other limits."""
    copies = list(product(GROUNDS, range(1, COPIES + 1)))
    for load in (FRONT_LOAD, *LOADS):
        yield from _main(load, "own")
    for (ground, copy), policy in product(copies, (*HOSTILE, "clairvoyant")):
        yield Run(ground, FRONT_LOAD, copy, policy, *OWN)
    own, share, days = OWN
    front = [(own, other, days) for other in figures.FRONT_SHARES]
    front += [(other, share, days) for other in (0.03, 0.3)]
    front += [(own, share, other) for other in (3.0, 30.0)]
    for order, ground, copy in product(front, GROUNDS, (1, 2)):
        yield Run(ground, FRONT_LOAD, copy, "delay", *order)
    for load, limits in product((FRONT_LOAD, *LOADS), STRENGTHS[1:]):
        yield from _main(load, limits)


def _main(load: float, limits: str) -> Iterator[Run]:
    for ground, copy in product(GROUNDS, range(1, COPIES + 1)):
        for policy, order in (("fcfs", NONE), ("saf", NONE), ("delay", LENGTH), ("delay", OWN)):
            yield Run(ground, load, copy, policy, *order, limits=limits)


def play(run: Run) -> Row:
    """Its figures."""
    cluster, trace = trace_of(run.ground, run.load, run.copy, run.limits)
    found = plays.row(
        run, cluster, trace.jobs, _policy(run, trace.jobs), order=run.order,
        natural=PURE_SITE if run.policy == "saf" else AGE_ONLY,
        predictor=plays.predictor_of("shipped" if run.policy == "delay" else "limit"),
        hysteresis=Writing().hysteresis if run.share else LENGTH_HYSTERESIS,
    )  # fmt: skip
    return found | {"jobs": len(trace.jobs)}


def _policy(run: Run, jobs: Sequence[TraceJob]) -> Baseline:
    """By name; a hostile one asks for parts of the bound."""
    if run.policy == "clairvoyant":
        return plays.clairvoyant(jobs)
    if run.policy not in HOSTILE:
        return BASELINES[run.policy]
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


def names(run: Run) -> tuple[object, ...]:
    """As the tables of docs/results.md name it; --only takes the first ones of them."""
    order = run.own, run.share, run.max_delay_d
    name = {OWN: "default", LENGTH: "length"}.get(order, f"delay {order}")
    kind = "hostile" if run.policy in (*HOSTILE, "clairvoyant") else run.limits
    kind = "frontier" if run.policy == "delay" and name[:5] == "delay" else kind
    policy = name if run.policy == "delay" else run.policy
    return GROUNDS[run.ground].title, run.load, kind, policy, f"copy {run.copy}"


STUDIES = {"delays": Study(runs, play, {"table": figures.print_tables}, names, sample=40)}
