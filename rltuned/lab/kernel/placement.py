# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""core/placement, compiled: the same nodes and amounts for the same free state."""

from typing import NamedTuple

from rltuned.lab.kernel.compiler import BoolArray, IntArray, compiled, in_place
from rltuned.lab.kernel.state import Free, Hardware, Shapes, Shares

NOWHERE = 1 << 62
"""Rank of a placement that does not exist."""
MANY_FROM = 4
"""From so many nodes on, a look for each rank is cheaper than one for each node."""


class Amounts(NamedTuple):
    """What one node has, or has free."""

    gpus: int
    cpus: int
    mem_mib: int


class Taken(NamedTuple):
    """Where a choice by rank stands: all before this node, and it itself, are taken."""

    rank: int
    node: int


class Shape(NamedTuple):
    """One shape's numbers. Scalars: a loop over nodes must not touch arrays it does not need,
    because each touch of an array inside a structure costs a reference count.
    """

    gpus: int
    width: int
    low: int
    larger: int
    cpus_each: int
    mem_each: int
    exclusive: bool


@in_place
def shape_of(shapes: Shapes, shape: int) -> Shape:
    """Read one row of the shapes."""
    return Shape(
        shapes.gpus[shape],
        shapes.width[shape],
        shapes.low[shape],
        shapes.larger[shape],
        shapes.cpus_each[shape],
        shapes.mem_each[shape],
        shapes.exclusive[shape],
    )


@in_place
def hosts(asks: Shape, free: Amounts, total: Amounts) -> bool:
    """Whether a node has CPUs, memory and quiet enough now."""
    if free.cpus < asks.cpus_each or free.mem_mib < asks.mem_each:
        return False
    return not asks.exclusive or free == total


@in_place
def fits(shapes: Shapes, shape: int, hardware: Hardware, free: Free) -> bool:
    """Whether a job of this shape could start."""
    for row in range(shapes.accepts.shape[1]):
        if shapes.accepts[shape, row] and ways(shapes, shape, hardware, free, row, 1) > 0:
            return True
    return False


@in_place
def ways(shapes: Shapes, shape: int, hardware: Hardware, free: Free, row: int, most: int) -> int:
    """Disjoint sets of nodes of one GPU type that carry the shape now; counting ends at `most`."""
    asks, member = shape_of(shapes, shape), hardware.member[shapes.partition[shape]]
    free_gpus, free_cpus, free_mem = free.gpus, free.cpus, free.mem_mib
    gpus, cpus, mem_mib = hardware.gpus, hardware.cpus, hardware.mem_mib
    have, has = free.of_type[row], hardware.of_type[row]
    with_low, with_more = 0, 0
    for node in range(len(free_gpus)):
        there = have[node]
        if there < asks.low or not member[node] or (asks.gpus > 0 and has[node] == 0):
            continue
        now = Amounts(free_gpus[node], free_cpus[node], free_mem[node])
        if hosts(asks, now, Amounts(gpus[node], cpus[node], mem_mib[node])):
            with_low += 1
            with_more += there > asks.low
            if with_low >= most * asks.width and with_more >= asks.larger:
                return most
    if with_low < asks.width or with_more < asks.larger:
        return 0
    return int(with_low // asks.width)


@in_place
def place(
    shapes: Shapes, shape: int, hardware: Hardware, free: Free, spread: bool, chosen: IntArray
) -> bool:
    """Fill chosen[:width] with nodes, larger shares first, chosen[-1] with the GPU type."""
    asks, member = shape_of(shapes, shape), hardware.member[shapes.partition[shape]]
    width = asks.width
    trial = chosen[width : 2 * width]
    found, best = False, 0
    for row in range(shapes.accepts.shape[1]):
        if not shapes.accepts[shape, row]:
            continue
        if width >= MANY_FROM:
            rank = _choose_many(asks, member, hardware, free, row, spread, trial)
        else:
            rank = _choose(asks, member, hardware, free, row, spread, trial)
        if rank == NOWHERE:
            continue
        if not found or rank < best or (rank == best and _before(trial, chosen[:width])):
            for at in range(width):
                chosen[at] = trial[at]
            chosen[-1] = row
            best, found = rank, True
    return found


@in_place
def _choose(
    asks: Shape,
    member: BoolArray,
    hardware: Hardware,
    free: Free,
    row: int,
    spread: bool,
    trial: IntArray,
) -> int:
    """Fill trial with nodes for one GPU type; their free GPUs (negative for spread), or NOWHERE."""
    free_gpus, free_cpus, free_mem = free.gpus, free.cpus, free.mem_mib
    gpus, cpus, mem_mib = hardware.gpus, hardware.cpus, hardware.mem_mib
    have, has = free.of_type[row], hardware.of_type[row]
    total, sign = 0, -1 if spread else 1
    for position in range(asks.width):
        least = asks.low + 1 if position < asks.larger else asks.low
        best, best_rank = -1, 0
        for node in range(len(free_gpus)):
            there = have[node]
            if asks.gpus > 0 and has[node] == 0:
                continue
            # a job without GPUs goes by all the GPUs that it would sit beside
            rank = sign * (there if asks.gpus > 0 else free_gpus[node])
            if there < least or not member[node] or (best >= 0 and rank >= best_rank):
                continue
            now = Amounts(free_gpus[node], free_cpus[node], free_mem[node])
            if not hosts(asks, now, Amounts(gpus[node], cpus[node], mem_mib[node])):
                continue
            if node not in trial[:position]:
                best, best_rank = node, rank
        if best < 0:
            return NOWHERE
        trial[position] = best
        total += best_rank
    return total


@in_place
def _choose_many(
    asks: Shape,
    member: BoolArray,
    hardware: Hardware,
    free: Free,
    row: int,
    spread: bool,
    trial: IntArray,
) -> int:
    """The same choice for a job of many nodes: a look for each rank instead of one per node."""
    taken = Taken(-NOWHERE, -1)
    for first, last in ((0, asks.larger), (asks.larger, asks.width)):
        if first == last:
            continue
        least = asks.low + 1 if first < asks.larger else asks.low
        part = trial[first:last]
        taken = _take(asks, member, hardware, free, row, spread, part, least, taken)
        if taken.rank == NOWHERE:
            return NOWHERE
    total, have = 0, free.of_type[row] if asks.gpus > 0 else free.gpus
    for at in range(asks.width):
        total += have[trial[at]]
    return -total if spread else total


@in_place
def _take(
    asks: Shape,
    member: BoolArray,
    hardware: Hardware,
    free: Free,
    row: int,
    spread: bool,
    trial: IntArray,
    least: int,
    taken: Taken,
) -> Taken:
    """Fill trial with nodes of so many free GPUs, by rank; the last one, NOWHERE = too few. taken:
    the last one of larger shares.
    """
    # a job without GPUs goes by all the GPUs that it would sit beside
    have = free.of_type[row] if asks.gpus > 0 else free.gpus
    sign, count = -1 if spread else 1, 0
    rank = -NOWHERE if spread else least
    while True:
        following = NOWHERE
        for node in range(len(have)):
            its, there = sign * have[node], have[node]
            if its < rank or (its > rank and its >= following) or there < least:
                continue
            gone = there > asks.low and _is_taken(taken, its, node)
            if gone or not member[node] or not _can_host(asks, hardware, free, row, node):
                continue
            if its > rank:
                following = its
                continue
            trial[count] = node
            count += 1
            if count == len(trial):
                return Taken(rank, node)
        if following == NOWHERE:
            return Taken(NOWHERE, -1)
        rank = following


@in_place
def _is_taken(taken: Taken, rank: int, node: int) -> bool:
    return bool(rank < taken.rank or (rank == taken.rank and node <= taken.node))


@in_place
def _can_host(asks: Shape, hardware: Hardware, free: Free, row: int, node: int) -> bool:
    """Whether a node has room for the smaller share of a job by this GPU type."""
    if asks.gpus > 0 and (hardware.of_type[row, node] == 0 or free.of_type[row, node] < asks.low):
        return False
    now = Amounts(free.gpus[node], free.cpus[node], free.mem_mib[node])
    return hosts(
        asks, now, Amounts(hardware.gpus[node], hardware.cpus[node], hardware.mem_mib[node])
    )


@compiled
def _before(first: IntArray, second: IntArray) -> bool:
    a, b = first.copy(), second.copy()
    a.sort()
    b.sort()
    for i in range(len(a)):
        if a[i] != b[i]:
            return bool(a[i] < b[i])
    return False


@in_place
def record(
    shapes: Shapes, shape: int, hardware: Hardware, chosen: IntArray, offset: int, shares: Shares
) -> None:
    """Write down the amounts of a placement: even, larger first; whole nodes when exclusive."""
    width = shapes.width[shape]
    for i in range(width):
        node, at = chosen[i], offset + i
        shares.node[at] = node
        shares.row[at] = -1 if shapes.exclusive[shape] else chosen[-1]
        if shapes.exclusive[shape]:
            shares.gpus[at] = hardware.gpus[node]
            shares.cpus[at] = hardware.cpus[node]
            shares.mem_mib[at] = hardware.mem_mib[node]
        else:
            shares.gpus[at] = _even(shapes.gpus[shape], width, i)
            shares.cpus[at] = _even(shapes.cpus[shape], width, i)
            shares.mem_mib[at] = _even(shapes.mem_mib[shape], width, i)


@in_place
def _even(amount: int, parts: int, position: int) -> int:
    return amount // parts + (1 if position < amount % parts else 0)


@in_place
def move(
    hardware: Hardware, free: Free, shares: Shares, offset: int, width: int, sign: int
) -> None:
    """Give (sign 1) or take (sign -1) the shares of one job."""
    for at in range(offset, offset + width):
        node, row = shares.node[at], shares.row[at]
        if row >= 0:
            free.of_type[row, node] += sign * shares.gpus[at]
        else:
            for one in range(len(free.of_type)):
                free.of_type[one, node] += sign * hardware.of_type[one, node]
        free.gpus[node] += sign * shares.gpus[at]
        free.cpus[node] += sign * shares.cpus[at]
        free.mem_mib[node] += sign * shares.mem_mib[at]
