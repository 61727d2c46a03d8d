"""The weights of the multifactor arms, from the simulator, on job sets that no run uses."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rltuned.sim.natural import Natural
from rltuned.sim.presets import preset
from rltuned.sim.protocol import Protocol
from rltuned.sim.run import simulate, whole
from rltuned.sim.world import Rules
from scripts.experiment_slurm.jobs import job_set

SETS = (*((256, seed) for seed in range(101, 109)), (1024, 111))
"""Jobs and seed."""


@dataclass(frozen=True)
class Tried:
    """Geometric means over the sets, as a part of what FCFS gives on each."""

    order: Natural
    wait: float
    bsld: float


def candidates() -> Iterator[Natural]:
    """Age and size against each other, small or large first, age over a day or a week."""
    for age, size, small, days in itertools.product(
        (0, 1_000, 10_000), (1_000, 10_000), (True, False), (1, 7)
    ):
        if age or days == 1:  # without age it does not matter when it is full
            yield Natural(
                kind="multifactor", age_weight=age, size_weight=size, partition_weight=0,
                favor_small=small, max_age_s=days * 86_400.0,
            )  # fmt: skip


def tune(*, whole_nodes: bool) -> list[Tried]:
    """All candidates, the least mean wait first."""
    cluster = preset("testbed")
    sets = [
        whole(job_set(count, seed, whole=whole_nodes), first=None, warmup=0)[0]
        for count, seed in SETS
    ]
    base = [simulate(s, cluster, "fcfs", Protocol()) for s in sets]
    found = []
    for order in candidates():
        rules = Protocol(rules=Rules(natural=order))
        played = [simulate(s, cluster, "multifactor", rules) for s in sets]
        pairs = list(zip(played, base, strict=True))
        wait = np.mean([np.log(a.wait_s.mean() / b.wait_s.mean()) for a, b in pairs])
        bsld = np.mean([np.log(a.slowdown.mean() / b.slowdown.mean()) for a, b in pairs])
        found.append(Tried(order, float(np.exp(wait)), float(np.exp(bsld))))
    return sorted(found, key=lambda t: t.wait)
