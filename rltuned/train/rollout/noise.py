"""Chance, compiled: a choice drawn from a softmax is the largest of scores with noise."""

import math

import numpy as np

from rltuned.sim.engine.arrays import FloatArray, compiled
from rltuned.train.rollout.state import Desk


@compiled
def add_noise(desk: Desk, scores: FloatArray, count: int) -> None:
    """Add Gumbel noise, from a 64-bit xorshift generator of our own: the same on every machine."""
    x = desk.random[0]
    for at in range(count):
        x ^= x >> np.uint64(12)
        x ^= x << np.uint64(25)
        x ^= x >> np.uint64(27)
        uniform = (
            np.float64((x * np.uint64(2685821657736338717)) >> np.uint64(11)) + 0.5
        ) / 2.0**53
        scores[at] -= math.log(-math.log(uniform))
    desk.random[0] = x
