"""Blocks of a made-up queue for the switchback's test (the tables of ADR 0010 come from it).

Waits are log-normal around a level that wanders (correlation time 6 h, one standard deviation = a
factor of e) and follows the day, with users who differ and are unevenly active. Delays that do harm
multiply waits; the harm builds up and dies down with a time constant of an hour after each switch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from rltuned.core.ladder import Evidence, Ladder, Switchback, difference
from rltuned.daemon.canary import HORIZON_S

MARGIN = Ladder().margin
DEFAULT = Switchback()
HOUR_S = 3_600.0
DAY_S = 86_400.0
WANDER_S = 6 * HOUR_S
CARRY_S = HOUR_S
Means = dict[str, float]


@dataclass(frozen=True)
class World:
    """harm: factor on waits while delays are on, from day `begins` on. jobs: per hour."""

    harm: float = 1.0
    begins: float = 0.0
    block_s: float = DEFAULT.block_s
    washout_s: float = DEFAULT.washout_s
    users: int = 60
    jobs: float = 8.0

    @property
    def pairs_a_day(self) -> float:
        return DAY_S / (2 * self.block_s)

    def pairs(self, rng: np.random.Generator) -> Iterator[tuple[Means, Means]]:
        """By user the mean wait in the on and in the off block, pair after pair."""
        habit = rng.normal(0.0, 0.8, self.users)
        active = rng.dirichlet(np.full(self.users, 0.5))
        level, marks = rng.normal(), 0.0
        keeps = np.exp(-self.block_s / WANDER_S)
        for pair in count():
            found: dict[bool, Means] = {}
            first_on = bool(rng.integers(2))
            for second in (False, True):
                on = first_on != second
                at_s = (2 * pair + second) * self.block_s
                target = np.log(self.harm) if on and at_s >= self.begins * DAY_S else 0.0
                harm, marks = self._marks(marks, target)
                level = keeps * level + np.sqrt(1 - keeps**2) * rng.normal()
                day = np.sin(2 * np.pi * (at_s + self.block_s / 2) / DAY_S)
                found[on] = self._block(rng, habit, active, level + 0.7 * day + harm, day)
            yield found[True], found[False]

    def _marks(self, before: float, target: float) -> tuple[float, float]:
        """Of harm in the log of waits: the mean over the counted part, and that at its end."""
        counted = self.block_s - self.washout_s
        ends = np.exp(-np.array([self.washout_s, self.block_s]) / CARRY_S)
        mean = target + (before - target) * CARRY_S * (ends[0] - ends[1]) / counted
        return float(mean), float(target + (before - target) * ends[1])

    def _block(
        self,
        rng: np.random.Generator,
        habit: np.ndarray,
        active: np.ndarray,
        level: float,
        day: float,
    ) -> Means:
        hours = (self.block_s - self.washout_s) / HOUR_S
        jobs = rng.poisson(self.jobs * hours * np.exp(0.5 * day))
        users = rng.choice(self.users, jobs, p=active)
        waits = np.exp(7.0 + level + habit[users] + rng.normal(0.0, 1.2, jobs))
        waits = np.minimum(waits, HORIZON_S)
        counts = np.bincount(users, minlength=self.users)
        sums = np.bincount(users, waits, minlength=self.users)
        return {f"u{u}": float(sums[u] / counts[u]) for u in np.flatnonzero(counts)}


def values(rng: np.random.Generator, world: World, pairs: int) -> list[float]:
    """The e-value after each pair."""
    evidence, found = Evidence(), []
    for (on, off), _ in zip(world.pairs(rng), range(pairs), strict=False):
        apart = difference(on, off)
        evidence = evidence if apart is None else evidence.after(apart, MARGIN)
        found.append(evidence.value)
        if evidence.is_enough:
            break
    return found


def alarm_day(rng: np.random.Generator, world: World, days: float) -> float | None:
    """When the breaker opens, in days since the harm began; None = it does not."""
    pairs = round((days + world.begins) * world.pairs_a_day)
    found = values(rng, world, pairs)
    if len(found) == pairs and found[-1] < 1_000:
        return None
    return len(found) / world.pairs_a_day - world.begins


def switchback_at(now: float, *, on: bool, partition: str = "gpu") -> Switchback:
    """One under which delays of a partition are on, or off, for at least an hour from now."""
    for number in range(1_000):
        found = Switchback(f"salt {number}")
        block = found.block(partition, now)
        if block.on == on and block.ends_at - now > HOUR_S:
            return found
    raise AssertionError
