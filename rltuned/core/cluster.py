# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""What fits where: the array functions by which every world of rltuned places a job.

The daemon calls them as they are; the simulator compiles them (lab/kernel/placement). A job that
takes several nodes takes them of one GPU type. `pack` takes the nodes with the least free GPUs, so
the least is left over; `spread` those with most; ties go by place, which is by name.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class Amounts(NamedTuple):
    """What N nodes have, or what is free on them. of_type: (T+1, N) GPUs of each type; the last row
    stands for "no GPU" and is 0. gpus: (N,) of all types; cpus, mem_mib: (N,).
    """

    gpus: IntArray
    of_type: IntArray
    cpus: IntArray
    mem_mib: IntArray


class Ask(NamedTuple):
    """What a job takes of `width` nodes: low GPUs of each, one more of `larger` of them. cpus_each,
    mem_each: its largest share. exclusive: whole nodes on which nothing runs.
    """

    gpus: int
    width: int
    low: int
    larger: int
    cpus_each: int
    mem_each: int
    exclusive: bool


def amounts(of_type: IntArray, cpus: IntArray, mem_mib: IntArray) -> Amounts:
    """With the GPUs of all types."""
    return Amounts(of_type.sum(axis=0), of_type, cpus, mem_mib)


def copied(free: Amounts) -> Amounts:
    """To be spent apart."""
    return Amounts(*(amount.copy() for amount in free))


def less(free: Amounts, gpus: IntArray, cpus: IntArray) -> Amounts:
    """Without so many GPUs (N,) of every type and CPUs (N,); at least 0."""
    of_type = np.maximum(free.of_type - gpus, 0)
    return amounts(of_type, np.maximum(free.cpus - cpus, 0), free.mem_mib)


def capped(free: Amounts, total: Amounts) -> Amounts:
    """At most what there is: what jobs hold need not add up to what nodes show as used."""
    return amounts(*(np.minimum(a, b) for a, b in zip(free[1:], total[1:], strict=True)))


def idle(total: Amounts, free: Amounts) -> BoolArray:
    """(N,) nodes on which nothing runs."""
    found: BoolArray = (free.gpus == total.gpus) & (free.cpus == total.cpus)
    found &= free.mem_mib == total.mem_mib
    return found


def able(ask: Ask, member: BoolArray, total: Amounts, free: Amounts, row: int) -> BoolArray:
    """(N,) nodes of member (N,) with room for a smaller share now, by GPUs of one type."""
    have, low, cpus, mem_mib = free.of_type[row], ask.low, ask.cpus_each, ask.mem_each
    ok: BoolArray = member & (have >= low) & (free.cpus >= cpus) & (free.mem_mib >= mem_mib)
    if ask.gpus > 0 and low == 0:  # nodes of the type, also for a share without GPUs
        ok = ok & (total.of_type[row] > 0)
    if ask.exclusive:
        ok = ok & idle(total, free)
    return ok


def ways(ask: Ask, member: BoolArray, total: Amounts, free: Amounts, row: int) -> int:
    """How many disjoint sets of nodes of one GPU type carry the job now."""
    ok = able(ask, member, total, free, row)
    count = int(ok.sum())
    if ask.larger and (ok & (free.of_type[row] > ask.low)).sum() < ask.larger:
        return 0
    return count // ask.width


def choose(
    ask: Ask, member: BoolArray, total: Amounts, free: Amounts, row: int, sign: int
) -> IntArray:
    """(width,) nodes of one GPU type, those with the larger share first; (0,) = not there now.
    sign: 1 = pack, -1 = spread, 0 = by place alone.
    """
    could = np.flatnonzero(able(ask, member, total, free, row))
    if len(could) < ask.width:
        return could[:0]
    have = free.of_type[row][could]
    # a job without GPUs goes by all the GPUs that it would sit beside
    rank = sign * (have if ask.gpus > 0 else free.gpus[could])
    if ask.width == 1:
        at = np.argmin(rank)
        return could[at : at + 1]
    order = np.argsort(rank, kind="mergesort")
    if ask.larger == 0:
        return could[order[: ask.width]]
    has_more = have[order] > ask.low
    more = np.flatnonzero(has_more)[: ask.larger]
    if len(more) < ask.larger:
        return could[:0]
    has_more[:] = True
    has_more[more] = False
    rest = order[has_more][: ask.width - ask.larger]
    found: IntArray = could[np.concatenate((order[more], rest))]
    return found


def place(
    ask: Ask,
    accepts: BoolArray,
    member: BoolArray,
    total: Amounts,
    free: Amounts,
    sign: int,
    chosen: IntArray,
) -> int:
    """Fill chosen[:width] with the best nodes of the types in accepts (T+1,); returns the type, -1
    = it does not fit now.
    """
    found, best = -1, 0
    for row in range(len(accepts)):
        if not accepts[row]:
            continue
        nodes = choose(ask, member, total, free, row, sign)
        if len(nodes) == 0:
            continue
        have = free.of_type[row] if ask.gpus > 0 else free.gpus
        rank = sign * int(have[nodes].sum())
        if found < 0 or rank < best or (rank == best and first(nodes, chosen[: ask.width])):
            chosen[: ask.width] = nodes
            found, best = row, rank
    return found


def first(nodes: IntArray, others: IntArray) -> bool:
    """Whether a set of nodes stands before another one, as wide, by its places in order."""
    for one, other in zip(np.sort(nodes), np.sort(others)):  # noqa: B905 - compiled
        if one != other:
            return bool(one < other)
    return False


def even(amount: int, parts: int, at: int) -> int:
    """The share of a place, split as evenly as whole numbers allow, larger ones first."""
    return amount // parts + (1 if at < amount % parts else 0)
