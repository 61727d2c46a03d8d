"""Orders that are nearly those of the cycle before: what is out of place is sorted, the rest kept.

A queue of thousands changes by a few jobs from one cycle to the next. To sort all of it again took
most of a cycle.
"""

from typing import NamedTuple

import numpy as np

from rltuned.lab.kernel.compiler import FloatArray, IntArray, ascending, compiled, in_place


class Listed(NamedTuple):
    """Of n jobs, the queue in submit order as it was last: order[:count]. stamp: (n,) the turn in
    which each job was there. turn: [the turn, count].
    """

    order: IntArray
    stamp: IntArray
    turn: IntArray


class Sorted(NamedTuple):
    """Of n jobs, the orders by some keys as they were last: (K, n), length[k] of them each. place:
    (n,) work space.
    """

    order: IntArray
    length: IntArray
    place: IntArray


def nothing_listed(jobs: int) -> Listed:
    """Of so many jobs, before the first cycle."""
    return Listed(
        np.zeros(jobs, np.int64), np.full(jobs, -1, np.int64), np.zeros(2, dtype=np.int64)
    )


def nothing_sorted(jobs: int, keys: int) -> Sorted:
    """The same for orders by so many keys."""
    return Sorted(
        np.zeros((keys, jobs), np.int64), np.zeros(keys, np.int64), np.zeros(jobs, np.int64)
    )


@compiled
def in_submit_order(listed: Listed, jobs: IntArray) -> IntArray:
    """The jobs of a queue by their numbers; a view, which the next call changes."""
    order, stamp, turn = listed.order, listed.stamp, listed.turn
    turn[0] += 1
    fresh = np.empty(len(jobs), dtype=np.int64)
    new = 0
    for job in jobs:
        if stamp[job] != turn[0] - 1:
            fresh[new] = job
            new += 1
        stamp[job] = turn[0]
    kept = 0
    for at in range(turn[1]):
        if stamp[order[at]] == turn[0]:
            order[kept] = order[at]
            kept += 1
    fresh = np.sort(fresh[:new])
    turn[1] = kept + new
    while new > 0:  # from the end, so that nothing is moved twice
        if kept > 0 and order[kept - 1] > fresh[new - 1]:
            order[kept + new - 1] = order[kept - 1]
            kept -= 1
        else:
            order[kept + new - 1] = fresh[new - 1]
            new -= 1
    return order[: turn[1]]


@in_place
def _stands_before(key: FloatArray, one: int, other: int) -> bool:
    return bool(key[one] < key[other] or (key[one] == key[other] and one < other))


@compiled
def resorted(known: Sorted, which: int, jobs: IntArray, key: FloatArray) -> IntArray:
    """compiler.ascending of the keys (k,) of different jobs (k,), by what stood in order before."""
    stands, aside = _parted(known, which, jobs, key)
    aside = np.sort(aside)
    aside = aside[ascending(key[aside])]
    found = np.empty(len(jobs), dtype=np.int64)
    kept, out = len(stands), len(aside)
    for at in range(len(jobs) - 1, -1, -1):
        if out == 0 or (kept > 0 and _stands_before(key, aside[out - 1], stands[kept - 1])):
            kept -= 1
            found[at] = stands[kept]
        else:
            out -= 1
            found[at] = aside[out]
    known.order[which, : len(jobs)] = jobs[found]
    known.length[which] = len(jobs)
    return found


@compiled
def _parted(
    known: Sorted, which: int, jobs: IntArray, key: FloatArray
) -> tuple[IntArray, IntArray]:
    """Places that stand in order, and the others (drop-merge sort): the last order is gone through;
    what is lower than the one before is taken out, or the one before where that alone is too high.
    """
    count = len(jobs)
    for at in range(count):
        known.place[jobs[at]] = at
    stands, aside = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    is_new = np.ones(count, dtype=np.bool_)
    kept, out = 0, 0
    for last in range(known.length[which]):
        job = known.order[which, last]
        at = known.place[job]
        if at >= count or jobs[at] != job:
            continue  # it waits no longer
        is_new[at] = False
        if kept == 0 or _stands_before(key, stands[kept - 1], at):
            stands[kept] = at
            kept += 1
            continue
        aside[out] = at
        if kept == 1 or _stands_before(key, stands[kept - 2], at):
            aside[out], stands[kept - 1] = stands[kept - 1], at
        out += 1
    new = np.flatnonzero(is_new)
    return stands[:kept], np.concatenate((aside[:out], new))


@compiled
def shifts(before: IntArray, after: IntArray) -> tuple[float, int]:
    """Mean and largest difference of the ranks of the same jobs."""
    by_before = ascending(before.astype(np.float64))
    by_after = ascending(after.astype(np.float64))
    total, furthest = 0, 0
    for at in range(len(before)):
        shift = abs(by_before[at] - by_after[at])
        total += shift
        furthest = max(furthest, shift)
    return total / len(before), furthest
