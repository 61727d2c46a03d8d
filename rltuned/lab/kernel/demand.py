"""core/backlog, compiled: what jobs ask for, who competes with whom, and how long the queue is.

Each row of a trace is one job, so it knows no arrays: every job counts as one task.
"""

from typing import NamedTuple

import numpy as np

from rltuned.core import backlog, limits
from rltuned.lab.kernel.compiler import (
    BoolArray,
    FloatArray,
    IntArray,
    ascending,
    compiled,
    in_place,
    with_inner,
)

leader = in_place(backlog.leader)
median_of_users = compiled(backlog.median_of_users)
in_turns = compiled(backlog.in_turns)
moves_more = in_place(backlog.moves_more)
_use_without = in_place(limits.use_without)
note_use = in_place(with_inner(limits.note_use, use_without=_use_without, moves_more=moves_more))
use_of = in_place(with_inner(limits.use_of, use_without=_use_without))
_backlogs_s = compiled(with_inner(backlog.backlogs_s, leader=leader))
_places = compiled(with_inner(backlog.places, leader=leader))
_MANY = 4
"""So many users for each waiting job are too many to go through."""


class Demand(NamedTuple):
    """What a policy may ask of n jobs, and what its places are by; pool empty: a pure order.

    own, share: of core/order. own_s, key: (n,) of a rule that needs no prediction. length_s, size,
    expected_s, clip_s: (n,) L, m, e (NaN = by L) and the clip. most_s: (n,) the longest delay.
    pool, user: (n,) numbers, users of them; units: (P, N) GPUs of every node. overlap: (P, P) and
    gpus: (P,) of those that are not down. used: sums of core/limits.note_use, a row of each known
    user. group: (n,) of a user's equal requests, -1 = of no known user; seen: (G, 4) work space of
    never_cheaper.
    """

    own: float
    share: float
    own_s: FloatArray
    key: FloatArray
    length_s: FloatArray
    size: FloatArray
    expected_s: FloatArray
    clip_s: FloatArray
    most_s: FloatArray
    pool: IntArray
    user: IntArray
    users: int
    units: FloatArray
    overlap: FloatArray
    gpus: FloatArray
    used: FloatArray
    group: IntArray
    seen: FloatArray


@compiled
def never_cheaper(
    demand: Demand, jobs: IntArray, limit_s: FloatArray, own_s: FloatArray, area: FloatArray
) -> None:
    """core/features: of a user's equal requests a shorter limit costs no more. In place, (k,)."""
    group, seen = demand.group, demand.seen
    for job in jobs:
        if group[job] >= 0:
            seen[group[job], :2] = limit_s[job]
            seen[group[job], 2:] = 0.0
    several = 0
    for job in jobs:
        if group[job] >= 0:
            low, high = seen[group[job], 0], seen[group[job], 1]
            seen[group[job], 0] = min(low, limit_s[job])
            seen[group[job], 1] = max(high, limit_s[job])
            several += limit_s[job] != low or limit_s[job] != high
    if several == 0:
        return
    for at in ascending(limit_s[jobs]):
        place = group[jobs[at]]
        if place >= 0 and seen[place, 0] < seen[place, 1]:
            seen[place, 2] = max(seen[place, 2], own_s[at])
            seen[place, 3] = max(seen[place, 3], area[at])
            own_s[at], area[at] = seen[place, 2], seen[place, 3]


@compiled
def reopen(demand: Demand, usable: BoolArray) -> None:
    """Nodes have gone or come back: core/pools.shared of those that are usable (N,)."""
    units, usable_units = demand.units, np.zeros(demand.units.shape)
    for pool in range(len(units)):
        for node in range(len(usable)):
            if usable[node]:
                usable_units[pool, node] = units[pool, node]
        demand.gpus[pool] = usable_units[pool].sum()
    for own in range(len(units)):
        for other in range(len(units)):
            common = 0.0
            for node in range(len(usable)):
                if usable_units[own, node] > 0.0:
                    common += usable_units[other, node]
            demand.overlap[own, other] = common / max(demand.gpus[other], 1e-9)


@compiled
def users_among(demand: Demand, jobs: IntArray) -> tuple[IntArray, int]:
    """(k,) a number for the user of each job, in the order of all users, and how many; no more of
    them than jobs where few of many users wait. A job of no known user is a user of its own, so a
    trace may have thousands.
    """
    user = demand.user[jobs]
    if demand.users <= _MANY * (1 + len(jobs)):
        return user, demand.users
    found, count = np.empty(len(jobs), dtype=np.int64), 0
    order = ascending(user.astype(np.float64))
    for at in range(len(order)):
        count += at > 0 and user[order[at]] != user[order[at - 1]]
        found[order[at]] = count
    return found, count + 1


@compiled
def backlog_of(demand: Demand, jobs: IntArray, area: FloatArray) -> FloatArray:
    """(k,) B of the jobs, in seconds."""
    user, users = users_among(demand, jobs)
    return _backlogs_s(area, demand.pool[jobs], demand.overlap, demand.gpus, user, users)


@compiled
def places_of(demand: Demand, jobs: IntArray, key: FloatArray) -> FloatArray:
    """(k,) their places by a key, smaller first."""
    user, users = users_among(demand, jobs)
    order, tasks = ascending(key), np.ones(len(jobs))
    return _places(key, order, tasks, demand.pool[jobs], demand.overlap, user, users)


@in_place
def note_end(demand: Demand, job: int, ran_s: float) -> None:
    """A job has ended: what it used of its limit, for the expected times of those that wait."""
    if len(demand.pool) > 0:
        row = demand.user[job] + 1
        row = row if row < len(demand.used) else 0  # of no known user
        note_use(demand.used, row, ran_s, demand.length_s[job], demand.size[job])


_FLAT, _WHOLE = np.zeros(0), np.zeros(0, dtype=np.int64)
NO_DEMAND = Demand(
    0.0, 0.0, _FLAT, _FLAT, _FLAT, _FLAT, _FLAT, _FLAT, _FLAT, _WHOLE, _WHOLE, 0, np.zeros((0, 0)),
    np.zeros((0, 0)), _FLAT, np.zeros((1, limits.USE_SUMS)), _WHOLE, np.zeros((0, 4)),
)  # fmt: skip
"""Of a pure order."""
