"""Candidate placements of one job on a given free state, each with its cost.

Nodes that look alike to a job (same free amounts, same hardware) are one group, so a candidate is
counted once: one per multiset of groups. Of those the ones that no other beats in every cost come
first, then the rest, up to a bound; packing and spreading are always among them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

import numpy as np

from rltuned.core.capacity import BoolArray, Capacity, IntArray
from rltuned.core.milp.costs import Cost, CostModel, FloatArray, Split
from rltuned.core.placement import idle_gpus, shares_on, width
from rltuned.domain.jobs import Request, Share


class PlacementKind(StrEnum):
    """What a candidate is to a person who reads about it."""

    PACK = "pack"
    """The nodes with the least free GPUs that fit."""
    SPREAD = "spread"
    """The nodes with the most."""
    MIX = "mix"
    """Something between the two."""
    WHOLE = "whole"
    """Whole idle nodes, as an exclusive job asks."""
    SHARE = "share"
    """An exclusive job on its own amounts only, beside others."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One placement. opens: columns of the nodes, idle now, that it would begin to use."""

    kind: PlacementKind
    shares: tuple[Share, ...]
    cost: Cost
    opens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """How far candidates are searched.

    Attributes:
        most: kept per job and moment.
        max_patterns: looked at per job and GPU type; up to here the search is whole.
    """

    most: int = 6
    max_patterns: int = 256


class _Draft(NamedTuple):
    """A candidate before nodes are picked out of its groups.

    row: GPU type. picks: columns of a group, how many of them, and whether they are idle; those
    with the larger share first.
    """

    row: int
    picks: tuple[tuple[tuple[int, ...], int, bool], ...]
    cost: Cost
    kind: PlacementKind


Widths = dict[tuple[Request, bytes], tuple[int, tuple[int, ...]]]
"""By request without its time limit and by the nodes it may use: what `width` finds."""


class CandidateGenerator:
    """The candidates of a queue's requests on one free state; like requests are looked up once.

    Args:
        capacity: the free state.
        costs, bounds: see there.
        widths: shared by generators of the same hardware.
    """

    def __init__(
        self,
        capacity: Capacity,
        costs: CostModel,
        bounds: SearchBounds,
        widths: Widths | None = None,
    ) -> None:
        self.capacity = capacity
        self._costs = costs
        self._bounds = bounds
        self._idle = capacity.untouched()
        self._widths = {} if widths is None else widths
        self._known: dict[tuple[Request, bytes], tuple[_Draft, ...]] = {}

    def candidates(
        self, request: Request, member: BoolArray, turn: int = 0
    ) -> tuple[Candidate, ...]:
        """All that are kept, packing first; empty when the request does not fit.

        Args:
            request: what is asked for.
            member: (N,) nodes it may use.
            turn: different turns pick different nodes of a group, so that jobs do not all want the
                same; other than 0, the nodes of turn 0 are offered as well.
        """
        # the time limit has no part in where a job fits
        key = (replace(request, time_limit_s=None), member.tobytes())
        if key not in self._known:
            if key not in self._widths:
                self._widths[key] = width(request, member, self.capacity)
            self._known[key] = self._drafts(request, member, *self._widths[key])
        found: dict[tuple[Share, ...], Candidate] = {}
        for one in (0, turn) if turn else (0,):
            for draft in self._known[key]:
                candidate = self._on_nodes(draft, request, one)
                found.setdefault(candidate.shares, candidate)
        return tuple(found.values())

    def costed(self, request: Request, member: BoolArray, shares: tuple[Share, ...]) -> Candidate:
        """Given nodes as a candidate: the one known here, or one with its cost."""
        known = next((c for c in self.candidates(request, member) if c.shares == shares), None)
        if known is not None:
            return known
        c, split = self.capacity, Split.of(request, len(shares))
        columns = [c.index[share.node] for share in shares]
        row = c.row_on(shares[0], columns[0])
        parts = [
            self._costs.of_nodes(c, self._idle, row, split, more=int(share.taken.gpus > split.low))
            for share in shares
        ]
        each = [part[:, column] for part, column in zip(parts, columns, strict=True)]
        opens = tuple(sorted(column for column in columns if self._idle[column]))
        kind = PlacementKind.WHOLE if request.exclusive else PlacementKind.MIX
        return Candidate(kind, shares, Cost(*np.mean(each, axis=0).tolist()), opens)

    def _on_nodes(self, draft: _Draft, request: Request, turn: int) -> Candidate:
        columns: list[int] = []
        opens: list[int] = []
        for members, count, idle in draft.picks:
            start = turn * count % len(members)
            picked = [members[(start + i) % len(members)] for i in range(count)]
            columns += picked
            opens += picked if idle else []
        shares = shares_on(request, columns, draft.row, self.capacity)
        return Candidate(draft.kind, shares, draft.cost, tuple(sorted(opens)))

    def _drafts(
        self, request: Request, member: BoolArray, count: int, rows: tuple[int, ...]
    ) -> tuple[_Draft, ...]:
        if not count:
            return ()
        pressure = self._costs.pressure
        wanted = [pressure[row] if row < len(pressure) else 0.0 for row in rows]
        split = Split.of(request, count)
        tables = [self._table(split, member, row, count) for row in rows]
        lines = [(table, pattern) for table in tables for pattern in table.patterns]
        if not lines:
            return ()
        least = min(wanted)
        sheet = np.concatenate(
            [table.sheet(w - least, count) for table, w in zip(tables, wanted, strict=True)]
        )
        found = []
        for at, kind in _kept(sheet, self._bounds.most):
            table, pattern = lines[at]
            picks = tuple((table.groups[g], n, bool(table.idle[g])) for g, n, _ in pattern)
            named = PlacementKind.WHOLE if request.exclusive else kind
            found.append(_Draft(table.row, picks, Cost(*sheet[at, 1:4].tolist()), named))
        return tuple(found)

    def _table(self, split: Split, member: BoolArray, row: int, count: int) -> "_CandidateTable":
        c, groups = self.capacity, self._groups(split, member, row)
        first = np.array([g[0] for g in groups], dtype=np.int64)
        roomier = (c.free_gpus[row][first] > split.low).tolist()
        dealt = (
            _dealt(pattern, roomier, split.larger)
            for pattern in self._patterns([len(g) for g in groups], count)
        )
        low = self._costs.of_nodes(c, self._idle, row, split, more=0)[:, first]
        high = low
        if split.larger:
            high = self._costs.of_nodes(c, self._idle, row, split, more=1)[:, first]
        return _CandidateTable(
            row=row,
            groups=groups,
            patterns=[pattern for pattern in dealt if pattern is not None],
            idle=self._idle[first],
            free=idle_gpus(row, c)[first],
            low=low,
            high=high,
        )

    def _patterns(self, sizes: Sequence[int], count: int) -> list["_Pattern"]:
        """Every multiset of groups up to the bound; beyond it half from either end."""
        most = self._bounds.max_patterns
        patterns = list(islice(_multisets(sizes, count), most + 1))
        if len(patterns) <= most:
            return patterns
        last = len(sizes) - 1
        back = islice(_multisets(sizes[::-1], count), most // 2)
        other = [tuple((last - g, n) for g, n in p[::-1]) for p in back]
        return list(dict.fromkeys(patterns[: most - most // 2] + other))

    def _groups(self, split: Split, member: BoolArray, row: int) -> list[tuple[int, ...]]:
        """Alike nodes that can carry at least the smaller share, fewest free GPUs first."""
        c = self.capacity
        free = c.free_gpus[row]
        ok = member & c.usable & (c.free_cpus >= split.cpus) & (c.free_mem_mib >= split.mem_mib)
        ok &= free >= split.low
        if split.exclusive:
            ok &= self._idle
        columns = np.flatnonzero(ok)
        # an idle node looks different: to begin using it has a cost
        looks = np.stack(
            [
                idle_gpus(row, c)[columns], free[columns], c.free_cpus[columns],
                c.free_mem_mib[columns], c.total_gpus[row][columns], c.total_cpus[columns],
                c.total_mem_mib[columns], self._idle[columns],
            ],
            axis=1,
        )  # fmt: skip
        found: dict[tuple[int, ...], list[int]] = {}
        for column, look in zip(columns.tolist(), map(tuple, looks.tolist()), strict=True):
            found.setdefault(look, []).append(column)
        return [tuple(found[look]) for look in sorted(found, key=lambda k: (k[0], found[k][0]))]


_Pattern = tuple[tuple[int, int], ...]
"""(group, how many of it), groups rising."""
_Dealt = tuple[tuple[int, int, int], ...]
"""(group, how many of it, of those with the larger share), larger shares first."""


@dataclass(frozen=True, slots=True)
class _CandidateTable:
    """The groups of one GPU type for one split of a request. Shapes: G groups.

    low, high: (2, G) fragmentation and imbalance of one node with either share.
    """

    row: int
    groups: Sequence[tuple[int, ...]]
    patterns: Sequence[_Dealt]
    idle: BoolArray  # (G,)
    free: IntArray  # (G,)
    low: FloatArray
    high: FloatArray

    def sheet(self, waste: float, count: int) -> FloatArray:
        """(P, 5) of each pattern: free GPUs on its nodes, three costs, idle nodes begun."""
        with_low = np.zeros((len(self.patterns), len(self.groups)))
        with_high = np.zeros_like(with_low)
        for at, pattern in enumerate(self.patterns):
            for group, taken, larger in pattern:
                with_low[at, group] = taken - larger
                with_high[at, group] = larger
        taken_all = with_low + with_high
        costs = (with_low @ self.low.T + with_high @ self.high.T) / count  # (P, 2)
        wasted = np.full(len(self.patterns), waste)
        return np.column_stack([taken_all @ self.free, costs, wasted, taken_all @ self.idle])


def _dealt(pattern: _Pattern, roomier: Sequence[bool], larger: int) -> _Dealt | None:
    """Give out the larger shares, lowest groups first; None when there are too few takers.

    Larger shares run out within one group, which keeps its remaining nodes beside them: cut in
    two, it would pick the same node twice.
    """
    first: list[tuple[int, int, int]] = []
    rest: list[tuple[int, int, int]] = []
    for group, taken in pattern:
        high = min(taken, larger) if roomier[group] else 0
        larger -= high
        (first if high else rest).append((group, taken, high))
    return None if larger else (*first, *rest)


def _multisets(sizes: Sequence[int], count: int, start: int = 0) -> Iterator[_Pattern]:
    """All multisets of `count` nodes out of groups, those that use the first groups first."""
    left = sum(sizes[start:])
    for group in range(start, len(sizes)):
        if left < count:
            return
        left -= sizes[group]
        for take in range(min(sizes[group], count), 0, -1):
            if take == count:
                yield ((group, take),)
                continue
            for tail in _multisets(sizes, count - take, group + 1):
                yield ((group, take), *tail)


def _kept(sheet: FloatArray, most: int) -> list[tuple[int, PlacementKind]]:
    """Lines of a sheet: packing, spreading, then what nothing beats, then the rest."""
    chosen = {int(sheet[:, 0].argmin()): PlacementKind.PACK}
    chosen.setdefault(int(sheet[:, 0].argmax()), PlacementKind.SPREAD)
    if len(sheet) > len(chosen) < most:
        costs = sheet[:, 1:]
        rest = np.lexsort((np.arange(len(sheet)), costs[:, :-1].sum(axis=1), ~_front(costs)))
        for line in rest.tolist():
            chosen.setdefault(line, PlacementKind.MIX)
    return list(chosen.items())[:most]


def _front(costs: FloatArray) -> BoolArray:
    """(n,) those that no other beats or equals in every cost; of equals the first counts."""
    no_worse = (costs[:, None, :] <= costs[None, :, :]).all(axis=2)  # i is no worse than j
    equal = no_worse & no_worse.T
    beaten = (no_worse & ~equal) | np.triu(equal, 1)
    return np.logical_not(beaten.any(axis=0))
