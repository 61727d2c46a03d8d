"""Directed graphs as parents by node: order, parts, levels, upward ranks. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

Parents = Mapping[int, Collection[int]]
"""Of each node; a parent that is no key is none."""


def within(parents: Parents, nodes: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """The part of a graph between some nodes, in the order of their ids."""
    kept = set(nodes)
    return {n: tuple(sorted(p for p in parents[n] if p in kept)) for n in sorted(kept)}


def topological(parents: Parents) -> list[int] | None:
    """The nodes, each behind its parents; None = there is a cycle."""
    try:
        return list(TopologicalSorter(within(parents, parents)).static_order())
    except CycleError:
        return None


def children(parents: Parents) -> dict[int, list[int]]:
    """Of each node."""
    found: dict[int, list[int]] = {node: [] for node in parents}
    for node in parents:
        for parent in parents[node]:
            if parent in found:
                found[parent].append(node)
    return found


def components(parents: Parents) -> list[list[int]]:
    """Nodes that edges connect, each part sorted, the part with the least node first."""
    near: defaultdict[int, set[int]] = defaultdict(set)
    for node, those in children(parents).items():
        near[node].update(those)
        for child in those:
            near[child].add(node)
    found, seen = [], set[int]()
    for node in sorted(parents):
        if node in seen:
            continue
        part, edge = {node}, [node]
        while edge:
            new = near[edge.pop()] - part
            part |= new
            edge.extend(new)
        seen |= part
        found.append(sorted(part))
    return found


def levels(parents: Parents, order: Sequence[int]) -> dict[int, int]:
    """How many nodes the longest path to each one has, itself included."""
    found: dict[int, int] = {}
    for node in order:
        found[node] = 1 + max((found[p] for p in parents[node] if p in found), default=0)
    return found
