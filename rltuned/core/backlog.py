# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""The unit of the queue: how long the cluster needs for what waits, and where a job stands in it.

| word          | symbol | unit  | what it is                                                     |
|---------------|--------|-------|----------------------------------------------------------------|
| size          | m      | GPUs  | what a job takes away from others; at least 1 (core/pools)     |
| length        | L      | s     | its time limit, at most LONGEST_S, and that where it has none  |
| expected time | e      | s     | its predicted mean run time; else L x the site's use of limits |
| plan          | p      | s     | what the rule goes by, see core/run_times.plan_s; else L       |
| area          | a      | GPU s | e x m                                                          |
| tasks         | w      | jobs  | how many jobs the record stands for, see below                 |
| pool          | P      |       | the nodes that it could run on: partitions and GPU types       |
| backlog       | B      | s     | the area that waits on its pool, over the usable GPUs there    |
| place         | q      | 0..1  | the part of the competing tasks with a smaller area            |

    B_i = sum_j o_ij w_j a_j / G_i    o_ij: the part of the GPUs of j's pool that i's pool has too
    q_i = (tasks before i + half of those equal to it, its own among them) / tasks with o_ij > 0

The same work counts the same, as one array, as several, or as jobs: w is the number of tasks that
wait. Of an array with a bound (%) it is as many as may start besides those that run, over all its
records: the others wait for tasks of their own array, as a dependent job waits for another job, and
need nothing of the cluster yet. w is the weight in backlogs, places, the neutral delay, the shares
of users and all sums that are shown (core/pools.waiting_tasks).

A job's work is spread evenly over the GPUs of its own pool, so that no work counts twice where
pools overlap. Only jobs that rltuned may order now are counted: what is held, or waits for another
job or for a quota, needs nothing of the cluster yet.

No user moves others by more than all others together (see below): the jobs of the user with
the most work count for others at most as much as the work of all others, and in places likewise its
number of tasks. For its own jobs they count whole, so that its numbers do not jump when a second
user comes or goes.

The functions work on arrays alone; core/pools and core/pools make those of a queue and a cluster.
The simulator compiles them (kernel/demand).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

# One rule for what the jobs of many users say together: none counts for more than all others.
#
# The user who submits the most could otherwise set, for the whole site, what a backlog is, where a
# job stands in it, or how far limits can be trusted. The user with the largest amount is counted
# with a factor that makes it as large as the amounts of all others together; the others count
# whole. Where there is one user alone, it counts whole.
#
# Where that is too much, as in the neutral delay, users count once each; what a cycle may write is
# handed out in turns.
#
# What ended jobs say of limits leaves out the user who moves it most. In what jobs of all users
# ran, a user counts as one job of its own average, however many have ended.
#
# The functions call none of each other and are what the kernel compiles.


IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def leader(amounts: FloatArray) -> tuple[int, float]:
    """The user with the largest of the amounts (U,), and the factor with which it counts."""
    first, total = -1, 0.0
    for user in range(len(amounts)):
        total += amounts[user]
        if first < 0 or amounts[user] > amounts[first]:
            first = user
    if first < 0:
        return first, 1.0
    others = total - amounts[first]
    if others <= 0.0 or amounts[first] <= others:
        return first, 1.0
    return first, others / amounts[first]


def median_of_users(
    values: FloatArray, order: IntArray, tasks: FloatArray, user: IntArray, users: int
) -> float:
    """The median of values (n,) in which each user counts once, however many values it has.

    order: (n,) places by value. tasks: (n,) how many jobs each value is of, above 0. user: (n,)
    numbers below users; users = 0: they are not known, and each job counts.
    """
    count = len(values)
    weight = tasks.copy()
    if users > 0:
        has = np.zeros(users)
        for at in range(count):
            has[user[at]] += tasks[at]
        for at in range(count):
            weight[at] = tasks[at] / has[user[at]]
    half = 0.5 * weight.sum()
    below, slack = 0.0, 1e-9 * half
    for at in range(count):
        below += weight[order[at]]
        if below > half + slack or at == count - 1:
            return float(values[order[at]])
        if below >= half - slack:
            return float(0.5 * (values[order[at]] + values[order[at + 1]]))
    return 0.0


def in_turns(order: IntArray, user: IntArray, users: int) -> IntArray:
    """The places in order (k,), each user's first before anyone's second, and so on.

    user: (n,) the user of each place, a number below users; users = 0: as they are.
    """
    if users == 0 or len(order) == 0:
        return order
    has = np.zeros(users, dtype=np.int64)
    turn = np.empty(len(order), dtype=np.int64)
    for at in range(len(order)):
        turn[at] = has[user[order[at]]]
        has[user[order[at]]] += 1
    begins = np.zeros(turn.max() + 2, dtype=np.int64)
    for one in turn:
        begins[one + 1] += 1
    begins = np.cumsum(begins)
    found = np.empty_like(order)
    for at in range(len(order)):
        found[begins[turn[at]]] = order[at]
        begins[turn[at]] += 1
    return found


def moves_more(whole: float, without_first: float, without_user: float) -> bool:
    """Whether a number would change more without a user than without the one that is left out now.

    It is asked at the end of a user's job, so the users need not be gone through.
    """
    return abs(whole - without_user) > abs(whole - without_first)


def standing(passed: float, kept: float) -> float:
    """What a user's last share of 1 in a fading sum still is, after so many shares of others; what
    is missing to 1 is what its next job adds. So the user is never more than one share of it.
    """
    return float(kept**passed)


LONGEST_S: Final = 30 * 86_400.0
"""No limit says more than this, so a job without one is never cheaper than the longest limit."""
USE_GUESS: Final = 0.5
"""What jobs use of their limits, by GPU time, until some of the site's own have ended."""


def backlogs_s(
    work: FloatArray,
    pool: IntArray,
    overlap: FloatArray,
    gpus: FloatArray,
    user: IntArray,
    users: int,
) -> FloatArray:
    """(n,) B of jobs with work w a (n,) and pools (n,). overlap: (P, P) o of pools i, j; gpus: (P,)
    G. user: (n,) numbers below users; users = 0: they are not known, and no one is bounded.
    """
    found = np.zeros(len(work))
    for own in range(len(gpus)):
        mine = pool == own
        if not mine.any() or gpus[own] <= 0.0:
            continue
        here = overlap[own][pool] * work
        total_s = np.cumsum(here)[-1] / gpus[own]
        if users == 0:
            found = np.where(mine, total_s, found)
            continue
        by_user = np.bincount(user, here, users).astype(np.float64)
        first, factor = leader(by_user)
        others_s = total_s - (1.0 - factor) * by_user[first] / gpus[own]
        found = np.where(mine, np.where(user == first, total_s, others_s), found)
    return found


def places(
    key: FloatArray,
    order: IntArray,
    tasks: FloatArray,
    pool: IntArray,
    overlap: FloatArray,
    user: IntArray,
    users: int,
) -> FloatArray:
    """(n,) q of jobs by a key (n,), smaller first. order: (n,) the jobs by that key. tasks: (n,)
    w.
    """
    count = len(key)
    found = np.zeros(count)
    if count == 0:
        return found
    by_key = key[order]
    is_new = by_key[1:] != by_key[:-1]
    group = np.zeros(count, dtype=np.int64)
    group[1:] = np.cumsum(is_new.astype(np.int64))
    edges = np.zeros(group[-1] + 2, dtype=np.int64)
    edges[1:-1] = np.flatnonzero(is_new) + 1
    edges[-1] = count
    begin, end = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    begin[order] = edges[group]
    end[order] = edges[group + 1]
    until = np.zeros(count + 1)
    for own in range(len(overlap)):
        mine = pool == own
        if not mine.any():
            continue
        beside = np.where(overlap[own][pool] > 0.0, tasks, 0.0)
        until[1:] = np.cumsum(beside[order])
        place = (until[begin] + until[end]) / (2.0 * max(until[-1], 1.0))
        if users > 0:
            first, factor = leader(np.bincount(user, beside, users).astype(np.float64))
            if factor < 1.0:
                is_first = user == first
                until[1:] = np.cumsum(np.where(is_first, factor * beside, beside)[order])
                bounded = (until[begin] + until[end]) / (2.0 * max(until[-1], 1e-9))
                place = np.where(is_first, place, bounded)
        found = np.where(mine, place, found)
    return found


def length_s(limit_s: FloatArray) -> FloatArray:
    """(n,) lengths of finite limits; features.UNLIMITED_AS_S stands for none."""
    found: FloatArray = np.minimum(limit_s, LONGEST_S)
    return found
