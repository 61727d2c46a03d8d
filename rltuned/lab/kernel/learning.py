# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""What learning asks of choices and queues, with its slopes, compiled: both are ragged.

tests/train/test_learning.py has the same in torch, whose gradients these are.
"""

import math
from typing import NamedTuple

import numpy as np

from rltuned.lab.kernel.compiler import Float32Array, FloatArray, IntArray, entry, in_place

POLICY, ENTROPY, KL, CLIPPED = range(4)
"""Places in what weigh returns."""


class Choices(NamedTuple):
    """D choices in Q moments over R rows; see train/episodes.Decisions. choice_first: (Q+1,)."""

    asked: Float32Array
    first: IntArray
    choice_first: IntArray
    choice: IntArray
    candidates: IntArray
    candidate_first: IntArray


class Aim(NamedTuple):
    """What an update goes by. before: (D,) log-probabilities as played; goal: (Q,) advantages;
    clip: of the probability ratio; bonus: of the entropy; among: so many choices share the loss;
    reach: of the actor.
    """

    before: FloatArray
    goal: FloatArray
    clip: float
    bonus: float
    among: float
    reach: float


@entry
def rows_of(
    rows: Float32Array, first: IntArray, moments: IntArray
) -> tuple[Float32Array, IntArray]:
    """(r, F) the rows of some moments, end to end, and (m+1,) where those of each begin."""
    begins = np.zeros(len(moments) + 1, dtype=np.int64)
    begins[1:] = np.cumsum(first[moments + 1] - first[moments])
    found = np.empty((begins[-1], rows.shape[1]), dtype=np.float32)
    for at in range(len(moments)):
        found[begins[at] : begins[at + 1]] = rows[first[moments[at]] : first[moments[at] + 1]]
    return found, begins


@entry
def weigh(
    told: Choices,
    aim: Aim,
    moments: IntArray,
    logits: Float32Array,
    chance: FloatArray,
    slope: Float32Array,
) -> FloatArray:
    """(4,) sums of some moments' choices: PPO's loss, the entropies, KL, and who was clipped.

    logits: (r, outputs) of their rows, end to end. Fills chance (D,) at their choices with the
    log-probabilities, and slope (r, outputs) with that of loss - bonus x entropy.
    """
    sums, begin = np.zeros(4), 0
    longest = (told.first[moments + 1] - told.first[moments]).max()
    score, share, pull = np.empty(longest), np.empty(longest), np.empty(longest)
    steep = np.empty((longest, 2))
    last = logits.shape[1] - 1
    for moment in moments:
        base = told.first[moment]
        count = told.first[moment + 1] - base
        for at in range(count):
            score[at] = _score(told.asked[base + at], logits[begin + at], aim.reach, steep[at])
            pull[at] = 0.0
        for choice in range(told.choice_first[moment], told.choice_first[moment + 1]):
            _choose(told, aim, choice, base, aim.goal[moment], score, chance, share, pull, sums)
        for at in range(count):
            slope[begin + at] = 0.0
            slope[begin + at, 0] += pull[at] * steep[at, 0]
            slope[begin + at, last] += pull[at] * steep[at, 1]
        begin += count
    return sums / aim.among


@in_place
def _score(asked: Float32Array, logits: Float32Array, reach: float, steep: FloatArray) -> float:
    """network.placed_by of a row; fills steep (2,) with its slopes by the first and last logit."""
    steep[:] = 0.0
    if reach == 0.0:
        steep[0] = 1.0
        return float(logits[0])
    first, second = _bent(logits[0]), _bent(logits[-1])
    own, share = asked[1] * math.exp(-reach * first), asked[2] * math.exp(-reach * second)
    if own + share <= asked[3]:
        steep[0] = reach * own * (1.0 - first * first)
        steep[1] = reach * share * (1.0 - second * second)
    return float(asked[0] - min(own + share, asked[3]))


@in_place
def _bent(value: float) -> float:
    """tanh, in a third of its time."""
    return 1.0 - 2.0 / (math.exp(2.0 * value) + 1.0)


@in_place
def _choose(
    told: Choices,
    aim: Aim,
    number: int,
    base: int,
    goal: float,
    score: FloatArray,
    chance: FloatArray,
    share: FloatArray,
    pull: FloatArray,
    sums: FloatArray,
) -> None:
    """Note one choice; adds its slopes by the scores of its moment to pull."""
    among = told.candidates[told.candidate_first[number] : told.candidate_first[number + 1]]
    highest, whole, mean = -np.inf, 0.0, 0.0
    for row in among:
        highest = max(highest, score[row - base])
    for at in range(len(among)):
        value = score[among[at] - base]
        share[at] = math.exp(value - highest)
        whole += share[at]
        mean += share[at] * value
    log_whole, mean = math.log(whole) + highest, mean / whole
    chosen = told.choice[number] - base
    chance[number] = score[chosen] - log_whole
    change = chance[number] - aim.before[number]
    ratio = math.exp(change)
    limited = min(max(ratio, 1.0 - aim.clip), 1.0 + aim.clip)
    sums[POLICY] -= min(ratio * goal, limited * goal)
    sums[ENTROPY] += log_whole - mean
    sums[KL] += ratio - 1.0 - change
    sums[CLIPPED] += abs(ratio - 1.0) > aim.clip
    push = 0.0 if limited * goal < ratio * goal else -ratio * goal / aim.among
    flatter = aim.bonus / aim.among
    pull[chosen] += push
    for at in range(len(among)):
        row = among[at] - base
        pull[row] += share[at] / whole * (flatter * (score[row] - mean) - push)


@entry
def pool(raw: Float32Array, begins: IntArray) -> Float32Array:
    """(m, 2 H) mean and maximum of max(raw, 0) over each moment's rows. raw: (r, H)."""
    wide = raw.shape[1]
    found = np.zeros((len(begins) - 1, 2 * wide), dtype=np.float32)
    for moment in range(len(found)):
        first, last = begins[moment], begins[moment + 1]
        total, most = found[moment, :wide], found[moment, wide:]
        for at in range(first, last):
            for unit in range(wide):
                code = max(raw[at, unit], np.float32(0.0))
                total[unit] += code
                most[unit] = max(most[unit], code)
        total /= np.float32(max(last - first, 1))
    return found


@entry
def pool_back(
    raw: Float32Array, begins: IntArray, pooled: Float32Array, slope: Float32Array
) -> Float32Array:
    """(r, H) slopes by raw, of those by what it was pooled to; equal codes share a maximum's."""
    wide, none, one = raw.shape[1], np.float32(0.0), np.float32(1.0)
    found, alike = np.empty(raw.shape, dtype=np.float32), np.empty(wide, dtype=np.float32)
    for moment in range(len(begins) - 1):
        first, last = begins[moment], begins[moment + 1]
        most = pooled[moment, wide:]
        of_mean = slope[moment, :wide] / np.float32(max(last - first, 1))
        alike[:] = none
        for at in range(first, last):
            for unit in range(wide):
                alike[unit] += one if raw[at, unit] == most[unit] else none
        of_most = slope[moment, wide:] / np.maximum(alike, one)
        for at in range(first, last):
            for unit in range(wide):
                part = of_most[unit] if raw[at, unit] == most[unit] else none
                found[at, unit] = of_mean[unit] + part if raw[at, unit] > none else none
    return found
