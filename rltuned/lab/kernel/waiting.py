"""Pending jobs of an order that changes only by writes: who comes next and may still start.

Jobs of a family that ask for about as many nodes stand in one search tree by their keys, a treap.
Each job knows the shortest limit, the fewest and the most nodes of those below it, so a search
leaves out whole branches that cannot start now. A tournament over the trees has the next job of
all. What a pass costs follows what it looks at, not how many wait.
"""

from typing import NamedTuple

import numpy as np

from rltuned.lab.kernel.compiler import BoolArray, FloatArray, IntArray, in_place

NONE = -1
LEFT, RIGHT, FEWEST, MOST, WIDTH, TREE = 0, 1, 2, 3, 4, 5
"""Places in Waiting.links: the jobs below on either side, the fewest and the most nodes of all that
stand there (itself included), and of itself its nodes and its tree."""
LIMIT, SHORTEST = 0, 1
"""Places in Waiting.limits_s: of itself, and the shortest of all that stand there."""
ROOT, NEXT = 0, 1
"""Places in Waiting.trees: the top of the tree, and the job that is looked at next."""


class Waiting(NamedTuple):
    """The trees. n jobs, F trees; NONE = none.

    links: (n, 6); limits_s: (n, 2); trees: (F, 2). winner: (2 C,) the tree whose next job is the
    first, of each pair and of pairs of pairs; C >= F. touched: (1 + F,) the trees whose next job
    may not be their first, after their number; is_touched: (F,) the same. path: (n,) work space.
    """

    links: IntArray
    limits_s: FloatArray
    trees: IntArray
    winner: IntArray
    touched: IntArray
    is_touched: BoolArray
    path: IntArray


class Gate(NamedTuple):
    """Who of a tree need not be looked at now, by nodes and limit; see `passes`.

    headed: its partition has a head. failed_from, refused_from: so many nodes do not fit, or are
    kept from starting unless they end by until_s. fits_to: so many nodes are known to fit.
    """

    now: float
    headed: bool
    failed_from: int
    refused_from: int
    fits_to: int
    until_s: float


EVERY = 1 << 62
"""More nodes than any job has."""
OPEN = Gate(0.0, True, EVERY, EVERY, EVERY, 0.0)
"""Every job passes."""


@in_place
def passes(gate: Gate, fewest: int, most: int, shortest_s: float) -> bool:
    """Whether one of some jobs might start, or become a head by not fitting."""
    if gate.headed and fewest >= gate.failed_from:
        return False
    if not gate.headed and most > gate.fits_to:
        return True
    return fewest < gate.refused_from or gate.now + shortest_s <= gate.until_s


@in_place
def before(key: FloatArray, job: int, other: int) -> bool:
    """Whether a job stands before another one; equal keys go by submit order."""
    mine, theirs = key[job], key[other]
    return bool(mine < theirs or (mine == theirs and job < other))


@in_place
def _weight(job: int) -> int:
    """What makes the trees flat: numbers as if drawn at random, the largest on top."""
    mixed = (job + 1) * 0x2545F4914F6CDD1D
    mixed ^= mixed >> 29
    mixed *= 0x369DEA0F31A53F85
    return mixed ^ (mixed >> 32)


@in_place
def _sum_up(links: IntArray, limits_s: FloatArray, path: IntArray, depth: int) -> None:
    """Work out what the nodes on a path know of those below them, the lowest first."""
    for at in range(depth - 1, -1, -1):
        job = path[at]
        shortest_s, fewest, most = limits_s[job, LIMIT], links[job, WIDTH], links[job, WIDTH]
        for side in (LEFT, RIGHT):
            below = links[job, side]
            if below >= 0:
                shortest_s = min(shortest_s, limits_s[below, SHORTEST])
                fewest = min(fewest, links[below, FEWEST])
                most = max(most, links[below, MOST])
        limits_s[job, SHORTEST], links[job, FEWEST], links[job, MOST] = shortest_s, fewest, most


@in_place
def insert(waiting: Waiting, key: FloatArray, job: int) -> None:
    """A job starts to wait."""
    links, path, weight = waiting.links, waiting.path, _weight(job)
    tree = links[job, TREE]
    above, side, node, depth = NONE, LEFT, waiting.trees[tree, ROOT], 0
    while node >= 0 and _weight(node) >= weight:
        path[depth] = above = node
        depth += 1
        side = LEFT if before(key, job, node) else RIGHT
        node = links[node, side]
    if above < 0:
        waiting.trees[tree, ROOT] = job
    else:
        links[above, side] = job
    path[depth] = job
    depth += 1
    # what stood there is parted: those before the job go to its left, the others to its right
    low, low_side, high, high_side = job, LEFT, job, RIGHT
    while node >= 0:
        path[depth] = node
        depth += 1
        if before(key, node, job):
            links[low, low_side] = node
            low, low_side, node = node, RIGHT, links[node, RIGHT]
        else:
            links[high, high_side] = node
            high, high_side, node = node, LEFT, links[node, LEFT]
    links[low, low_side] = links[high, high_side] = NONE
    _sum_up(links, waiting.limits_s, path, depth)
    first = waiting.trees[tree, NEXT]
    if first < 0 or before(key, job, first):
        put_next(waiting, key, tree, job)


@in_place
def remove(waiting: Waiting, key: FloatArray, job: int) -> None:
    """A job no longer waits; who comes next in its tree is for the caller to say."""
    links, path = waiting.links, waiting.path
    tree = links[job, TREE]
    above, side, node, depth = NONE, LEFT, waiting.trees[tree, ROOT], 0
    while node != job:
        path[depth] = above = node
        depth += 1
        side = LEFT if before(key, job, node) else RIGHT
        node = links[node, side]
    low, high = links[job, LEFT], links[job, RIGHT]
    while True:
        node = low
        if low < 0 or (high >= 0 and _weight(high) > _weight(low)):
            node = high
        if above < 0:
            waiting.trees[tree, ROOT] = node
        else:
            links[above, side] = node
        if low < 0 or high < 0:
            break
        path[depth] = above = node
        depth += 1
        if node == high:
            side, high = LEFT, links[high, LEFT]
        else:
            side, low = RIGHT, links[low, RIGHT]
    _sum_up(links, waiting.limits_s, path, depth)


@in_place
def follower(waiting: Waiting, key: FloatArray, tree: int, job: int, gate: Gate) -> int:
    """The first of a tree that stands behind a job (NONE: of all) and may pass the gate."""
    links, limits_s, path = waiting.links, waiting.limits_s, waiting.path
    node, depth = waiting.trees[tree, ROOT], 0
    while node >= 0 and passes(
        gate, links[node, FEWEST], links[node, MOST], limits_s[node, SHORTEST]
    ):
        if job < 0 or before(key, job, node):
            path[depth] = node
            depth += 1
            node = links[node, LEFT]
        else:
            node = links[node, RIGHT]
    while depth > 0:
        depth -= 1
        node = path[depth]
        if passes(gate, links[node, WIDTH], links[node, WIDTH], limits_s[node, LIMIT]):
            return int(node)
        node = links[node, RIGHT]
        while node >= 0 and passes(
            gate, links[node, FEWEST], links[node, MOST], limits_s[node, SHORTEST]
        ):
            path[depth] = node
            depth += 1
            node = links[node, LEFT]
    return NONE


@in_place
def put_next(waiting: Waiting, key: FloatArray, tree: int, job: int) -> None:
    """Say who of a tree is looked at next, and play its matches again."""
    winner, trees = waiting.winner, waiting.trees
    trees[tree, NEXT] = job
    at = len(winner) // 2 + tree
    winner[at] = tree if job >= 0 else NONE
    while at > 1:
        one, other = winner[at & ~1], winner[at | 1]
        if one < 0 or (other >= 0 and before(key, trees[other, NEXT], trees[one, NEXT])):
            one = other
        at //= 2
        winner[at] = one


@in_place
def touch(waiting: Waiting, tree: int) -> None:
    """Remember that the next job of a tree may not be its first."""
    if not waiting.is_touched[tree]:
        waiting.is_touched[tree] = True
        waiting.touched[0] += 1
        waiting.touched[waiting.touched[0]] = tree


@in_place
def rewind(waiting: Waiting, key: FloatArray) -> None:
    """The first job of every tree is its next one."""
    for at in range(waiting.touched[0]):
        tree = waiting.touched[1 + at]
        waiting.is_touched[tree] = False
        put_next(waiting, key, tree, follower(waiting, key, tree, NONE, OPEN))
    waiting.touched[0] = 0


def empty_waiting(tree: IntArray, width: IntArray, limit_s: FloatArray) -> Waiting:
    """An empty queue. Each (n,) of all jobs; with none of them for an order that always changes."""
    count, trees = len(tree), int(tree.max(initial=-1)) + 1
    half = 1 << max(trees - 1, 0).bit_length()
    nothing = np.full(count, NONE)
    return Waiting(
        links=np.column_stack((nothing, nothing, width, width, width, tree)),
        limits_s=np.column_stack((limit_s, limit_s)),
        trees=np.full((trees, 2), NONE),
        winner=np.full(2 * half, NONE),
        touched=np.zeros(1 + trees, dtype=np.int64),
        is_touched=np.zeros(trees, dtype=np.bool_),
        path=np.empty(count, dtype=np.int64),
    )
