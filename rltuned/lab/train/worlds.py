"""Random clusters with random job mixes: what a policy must have met before it may travel.

A policy that has only seen one site learns that site's shape: on 36 large nodes small jobs first
costs nothing, on five small ones it leaves no whole node to the wide jobs. So node sizes, types,
counts, widths, run times, bursts and what limits tell are all drawn, wider than published traces.
RLTune's testbed and the Helios preset are in no training: they stay for the evaluation.
"""

import math
from typing import Final

import numpy as np

from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.replay.run import possible
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.habits import Habits
from rltuned.sim.limits import Strength
from rltuned.sim.synth import Marginals, jobs_of
from rltuned.sim.trace import TraceJob

LEAST_GPUS, MOST_GPUS = 8, 1_000
NODE_GPUS: Final = (1, 2, 4, 4, 8, 8)
KINDS_OF_NODES: Final = (0.45, 0.25, 0.20, 0.10)
"""Chance of one, two, three, four kinds of nodes in a cluster."""
LIMITS: Final[tuple[Strength, ...]] = ("real", "real", "weak", "none")
NAMELESS: Final = 0.5
"""Part of the worlds whose jobs have no names."""
MOST_AWAY: Final = 0.5
"""Of the users of a world with names, on holiday at a time."""
WIDEST_PART: Final = 0.5
"""No job asks for more than this part of the GPUs of its kind, or for more than one node of it."""
CPUS_PER_GPU, MEM_PER_GPU_MIB = 8, 64_000


def random_world(seed: int, jobs: int) -> tuple[Cluster, tuple[TraceJob, ...], Strength]:
    """A cluster, jobs that can run there, and how much their limits tell; the same seed gives the
    same ones.
    """
    draw = np.random.default_rng([seed, 17])
    kinds = _kinds(draw)
    typed = len(kinds) > 1
    nodes = [
        idle_node(
            f"{chr(ord('a') + k)}{i:04d}",
            GpuType(f"t{k}"),
            Resources(size, size * CPUS_PER_GPU, size * MEM_PER_GPU_MIB),
            ("gpu",),
        )
        for k, (size, count) in enumerate(kinds)
        for i in range(count)
    ]
    cluster = Cluster(f"world-{seed}", tuple(nodes), (Partition("gpu", default=True),))
    limits = LIMITS[int(draw.integers(len(LIMITS)))]
    shape = _shape(draw, kinds, typed=typed)
    free_share = float(draw.random()) if typed else 0.0
    habits = _habits(np.random.default_rng([seed, 18]))
    made = jobs_of(shape, jobs=jobs, seed=seed, limits=limits, free_share=free_share, habits=habits)
    return cluster, possible(made, cluster, skip=True)[0], limits


def _habits(draw: np.random.Generator) -> Habits | None:
    """Every other world tells the names of its jobs, which are alike more or less."""
    if draw.random() < NAMELESS:
        return None
    return Habits(
        script_share=float(draw.uniform(0.2, 0.9)),
        drift=float(draw.uniform(0.0, 0.2)),
        away=float(draw.uniform(0.0, MOST_AWAY)),
    )


def _kinds(draw: np.random.Generator) -> list[tuple[int, int]]:
    """GPUs per node and nodes, of each kind of nodes."""
    many = 1 + int(draw.choice(len(KINDS_OF_NODES), p=KINDS_OF_NODES))
    total = math.exp(draw.uniform(math.log(LEAST_GPUS), math.log(MOST_GPUS)))
    found = []
    for part in draw.dirichlet(np.full(many, 2.0)):
        size = int(draw.choice(NODE_GPUS))
        found.append((size, max(1, round(total * float(part) / size))))
    return found


def _shape(draw: np.random.Generator, kinds: list[tuple[int, int]], *, typed: bool) -> Marginals:
    gpus = np.array([size * count for size, count in kinds], dtype=np.float64)
    widest = max(max(size, WIDEST_PART * size * count) for size, count in kinds)
    steps = np.arange(int(math.log2(widest)) + 1)
    # each doubling of the width halves the jobs, or hardly thins them, and anything between
    share = np.exp(-draw.uniform(0.0, 1.4) * steps + 0.5 * draw.standard_normal(len(steps)))
    bound = gpus * np.exp(0.3 * draw.standard_normal(len(gpus)))
    return Marginals(
        sizes={int(2**k): float(s) for k, s in zip(steps, share / share.sum(), strict=True)},
        ln_run=(float(draw.uniform(5.5, 8.5)), float(draw.uniform(0.8, 2.8))),
        max_run_s=float(draw.choice((1, 4, 15, 60))) * 86_400.0,
        gap_s=60.0,
        burst=float(draw.uniform(0.4, 1.0)),
        types={f"t{k}": float(b) for k, b in enumerate(bound / bound.sum())} if typed else {},
        users=int(math.exp(draw.uniform(math.log(8), math.log(400)))),
        source="drawn",
    )
