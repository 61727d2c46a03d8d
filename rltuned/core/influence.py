"""One rule for what the jobs of many users say together: none counts for more than all others.

The user who submits the most could otherwise set, for the whole site, what a backlog is, where a
job stands in it, or how far limits can be trusted. The user with the largest amount is counted
with a factor that makes it as large as the amounts of all others together; the others count
whole. Where there is one user alone, it counts whole.

Where that is too much, as in the neutral delay, users count once each; what a cycle may write is
handed out in turns.

What ended jobs say of limits leaves out the user who moves it most. In what jobs of all users ran,
a user counts as one job of its own average, however many have ended.

The functions call none of each other and are what the kernel compiles.
"""

import numpy as np
from numpy.typing import NDArray

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
