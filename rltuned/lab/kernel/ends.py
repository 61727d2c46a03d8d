"""When running jobs will end, the soonest first: a heap in arrays of a fixed size."""

from typing import NamedTuple

import numpy as np

from rltuned.lab.kernel.compiler import FloatArray, IntArray, in_place


class Ends(NamedTuple):
    """The first size[0] of at_s (n,) and job (n,), of n jobs at most; equal times go by number."""

    at_s: FloatArray
    job: IntArray
    size: IntArray


def empty_ends(jobs: int) -> Ends:
    """Nothing runs."""
    return Ends(np.empty(jobs), np.empty(jobs, np.int64), np.zeros(1, np.int64))


@in_place
def _put(ends: Ends, at: int, end_s: float, job: int) -> None:
    """Fill a hole: what ends later moves down, what ends sooner moves up."""
    at_s, jobs, count = ends.at_s, ends.job, ends.size[0]
    while at > 0:
        above = (at - 1) // 2
        if at_s[above] < end_s or (at_s[above] == end_s and jobs[above] < job):
            break
        at_s[at], jobs[at] = at_s[above], jobs[above]
        at = above
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count and (
            at_s[other] < at_s[below] or (at_s[other] == at_s[below] and jobs[other] < jobs[below])
        ):
            below = other
        if end_s < at_s[below] or (end_s == at_s[below] and job < jobs[below]):
            break
        at_s[at], jobs[at] = at_s[below], jobs[below]
        at = below
    at_s[at], jobs[at] = end_s, job


@in_place
def add_end(ends: Ends, end_s: float, job: int) -> None:
    """A job has started that will end then."""
    ends.size[0] += 1
    _put(ends, ends.size[0] - 1, end_s, job)


@in_place
def drop_end(ends: Ends, job: int) -> None:
    """A job runs no more; quick for the one that ends first."""
    at = 0
    while ends.job[at] != job:
        at += 1
    ends.size[0] -= 1
    last = ends.size[0]
    if at < last:
        _put(ends, at, ends.at_s[last], ends.job[last])
