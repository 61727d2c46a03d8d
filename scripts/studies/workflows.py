"""Groups of dependent jobs with the shapes of real workflows, generated.

Shapes, sizes and the spread of run times (CV within an instance) follow 70 instances of the
WfInstances collection (WfCommons), of 3 to 400 tasks. Those are workflows on CPUs of seconds to
minutes: GPUs are invented here, and run times scaled to a mean of 12 to 50 minutes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np

Rng = np.random.Generator
Edges = dict[int, list[int]]
GPUS = ((1, 0.8), (2, 0.15), (4, 0.05))
"""Per task -> share; invented."""
MEAN_RUN_S = (720.0, 3_000.0)
RUN_S = (10.0, 72_000.0)


@dataclass(frozen=True)
class Workflow:
    """parents: of each task, each behind its parents. run_s: true run times. gpus: per task."""

    kind: str
    parents: Edges
    run_s: dict[int, float]
    gpus: dict[int, int]


class _Maker:
    def __init__(self) -> None:
        self.parents: Edges = {}

    def task(self, *parents: int) -> int:
        number = len(self.parents) + 1
        self.parents[number] = sorted(set(parents))
        return number

    def level(self, width: int, *parents: int) -> list[int]:
        return [self.task(*parents) for _ in range(width)]

    def chain(self, length: int, *parents: int) -> int:
        last = self.task(*parents)
        for _ in range(length - 1):
            last = self.task(last)
        return last


def _split_merge(made: _Maker, rng: Rng) -> None:
    """Makeflow blast and bwa: one splits, many alike, two merge."""
    wide = made.level(int(rng.integers(40, 101)), made.task())
    made.level(2, *wide)


def _genome(made: _Maker, rng: Rng) -> None:
    """1000genome: a wide level and a task per chromosome that merges it, then analyses."""
    for _ in range(int(rng.integers(2, 7))):
        merged = made.task(*made.level(int(rng.integers(8, 15))))
        made.level(int(rng.integers(6, 11)), merged, made.task())


def _epigenomics(made: _Maker, rng: Rng) -> None:
    """Parallel chains between a split and a merge; nine levels."""
    split = made.task()
    ends = [made.chain(4, split) for _ in range(int(rng.integers(9, 31)))]
    made.chain(3, made.task(*ends))


def _montage(made: _Maker, rng: Rng) -> None:
    """Two wide levels with a wider pairwise one between them, then a tail of single tasks."""
    first = made.level(int(rng.integers(8, 25)))
    pairs = [made.task(a, b) for a, b in zip(first, first[1:] + first[:1], strict=True)]
    model = made.chain(2, *pairs)
    made.chain(4, *(made.task(model, one) for one in first))


def _soykb(made: _Maker, rng: Rng) -> None:
    """A chain per sample, then joins; eleven levels."""
    ends = [made.chain(6) for _ in range(int(rng.integers(5, 14)))]
    made.chain(4, made.task(*ends))


def _seismology(made: _Maker, rng: Rng) -> None:
    """Many, then one."""
    made.task(*made.level(int(rng.integers(50, 101))))


def _srasearch(made: _Maker, rng: Rng) -> None:
    """Pairs of tasks per sample, merged in two steps."""
    half = int(rng.integers(6, 25))
    merged = [made.task(*(made.chain(2) for _ in range(half))) for _ in range(2)]
    made.task(*merged)


def _nextflow(made: _Maker, rng: Rng) -> None:
    """Irregular chains with joins."""
    for _ in range(int(rng.integers(11, 61))):
        known = list(made.parents)
        count = min(len(known), int(rng.choice([0, 1, 1, 1, 2, 3])))
        made.task(*rng.choice(known[-8:], size=min(count, 8), replace=True) if count else ())


SHAPES: dict[str, tuple[Callable[[_Maker, Rng], None], float]] = {
    "blast": (_split_merge, 0.25),
    "bwa": (_split_merge, 2.2),
    "nextflow": (_nextflow, 1.4),
    "1000genome": (_genome, 0.67),
    "epigenomics": (_epigenomics, 1.3),
    "montage": (_montage, 1.9),
    "seismology": (_seismology, 0.95),
    "soykb": (_soykb, 2.1),
    "srasearch": (_srasearch, 1.2),
}
"""How each is built, and the CV of its run times."""


def workflow(kind: str, seed: int) -> Workflow:
    """One instance; the same seed gives the same one."""
    rng = np.random.default_rng([seed, sorted(SHAPES).index(kind)])
    build, spread = SHAPES[kind]
    made = _Maker()
    build(made, rng)
    sigma = np.sqrt(log(1 + spread**2))
    run_s = np.exp(sigma * rng.standard_normal(len(made.parents)))
    run_s *= rng.uniform(*MEAN_RUN_S) / run_s.mean()
    gpus = rng.choice([g for g, _ in GPUS], p=[p for _, p in GPUS], size=len(run_s))
    tasks = list(made.parents)
    return Workflow(
        kind,
        {n: [int(p) for p in made.parents[n]] for n in tasks},
        dict(zip(tasks, np.clip(run_s, *RUN_S).tolist(), strict=True)),
        dict(zip(tasks, gpus.tolist(), strict=True)),
    )
