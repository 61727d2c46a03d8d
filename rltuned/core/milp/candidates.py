"""Candidate placements of one job on a given free state, each with its cost.

Nodes that look alike to a job (same free amounts, same hardware) are one group, so a candidate is
counted once: one per multiset of groups. Of those the ones that no other beats in every cost come
first, then the rest, up to a bound; packing and spreading are always among them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from rltuned.core.capacity import BoolArray, Capacity, IntArray
from rltuned.core.milp.costs import CPUS, FREE, IDLE, MEM, Cost, CostModel, FloatArray, Split
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
    """How far candidates are searched: kept per job and moment; looked at per job and GPU type."""

    most: int = 6
    max_patterns: int = 256


class _Draft(NamedTuple):
    """A candidate before nodes are picked. row: GPU type. picks: columns of a group, how many of
    them, whether idle; those with the larger share first.
    """

    row: int
    picks: tuple[tuple[tuple[int, ...], int, bool], ...]
    cost: Cost
    kind: PlacementKind


_Key = tuple[tuple[object, ...], bytes]
"""A request without its time limit, and the nodes it may use."""
Widths = dict[_Key, tuple[int, tuple[int, ...]]]
"""What `width` finds."""


class CandidateGenerator:
    """The candidates of requests on one free state. widths: shared on the same hardware."""

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
        self._pressure = np.array([*costs.pressure, *[0.0] * len(capacity.total_gpus)])
        self._idle = capacity.untouched()
        self._widths = {} if widths is None else widths
        self._known: dict[_Key, tuple[_Draft, ...]] = {}
        self._alike: dict[tuple[tuple[int, ...], bytes], _Groups] = {}

    def candidates(
        self, request: Request, member: BoolArray, turn: int = 0
    ) -> tuple[Candidate, ...]:
        """All that are kept, packing first; empty when the request does not fit. member: (N,) nodes
        it may use. turn: spreads jobs over different nodes of a group; 0 = the first ones.
        """
        # all that has a part in where a job fits
        asked = request.total, request.gpu_types, request.nodes, request.exclusive
        key = (asked, member.tobytes())
        if key not in self._known:
            if key not in self._widths:
                self._widths[key] = width(request, member, self.capacity)
            self._known[key] = self._drafts(request, member, *self._widths[key])
        found: dict[tuple[int, ...], Candidate] = {}
        for one in (0, turn) if turn else (0,):
            for draft in self._known[key]:
                columns = _columns(draft, one)
                if (draft.row, *columns) not in found:
                    found[draft.row, *columns] = self._on_nodes(draft, request, columns)
        return tuple(found.values())

    def costed(self, request: Request, shares: tuple[Share, ...]) -> Candidate:
        """Given nodes as a candidate."""
        c, split = self.capacity, Split.of(request, len(shares))
        columns = [c.index[share.node] for share in shares]
        row = c.row_on(shares[0], columns[0])
        more = np.array([share.taken.gpus > split.low for share in shares], dtype=np.int64)
        nodes = self._costs.nodes(c, self._idle, row, np.array(columns))
        each = self._costs.of_shares(nodes, split, more=more)
        opens = tuple(sorted(column for column in columns if self._idle[column]))
        kind = PlacementKind.WHOLE if request.exclusive else PlacementKind.MIX
        return Candidate(kind, shares, Cost(*each.mean(axis=1).tolist()), opens)

    def _on_nodes(self, draft: _Draft, request: Request, columns: list[int]) -> Candidate:
        opens: list[int] = []
        end = 0
        for _, count, idle in draft.picks:
            end += count
            opens += columns[end - count : end] if idle else []
        shares = shares_on(request, columns, draft.row, self.capacity)
        return Candidate(draft.kind, shares, draft.cost, tuple(sorted(opens)))

    def _drafts(
        self, request: Request, member: BoolArray, count: int, rows: tuple[int, ...]
    ) -> tuple[_Draft, ...]:
        if not count:
            return ()
        split = Split.of(request, count)
        groups = self._groups(split, member, rows)
        if count == 1:
            patterns = self._single(groups, rows)
        else:
            patterns = self._patterns(split, groups, rows, count)
        if not patterns:
            return ()
        sheet = self._sheet(split, groups, patterns, rows, count)
        found = []
        for at, kind in _kept(sheet, self._bounds.most):
            pattern = patterns[at]
            picks = tuple(
                (groups.members[g], n, bool(groups.nodes[IDLE, g])) for g, n, _ in pattern
            )
            named = PlacementKind.WHOLE if request.exclusive else kind
            row = int(groups.rows[pattern[0][0]])
            found.append(_Draft(row, picks, Cost(*sheet[1:4, at].tolist()), named))
        return tuple(found)

    def _single(self, groups: "_Groups", rows: Sequence[int]) -> list["_Dealt"]:
        """As `_patterns`, for one node."""
        most, found = self._bounds.max_patterns, list[int]()
        types = groups.rows.tolist()
        for row in rows:
            start, end = bisect_left(types, row), bisect_right(types, row)
            if end - start <= most:
                found += range(start, end)
            else:
                back = range(end - 1, end - 1 - most // 2, -1)
                found += dict.fromkeys((*range(start, start + most - most // 2), *back))
        return [((group, 1, 0),) for group in found]

    def _patterns(
        self, split: Split, groups: "_Groups", rows: Sequence[int], count: int
    ) -> list["_Dealt"]:
        """Type by type every multiset of groups up to the bound; beyond it half from either end."""
        most, found = self._bounds.max_patterns, list[_Dealt]()
        roomier = (groups.nodes[FREE] > split.low).tolist()
        types = groups.rows.tolist()
        for row in rows:
            start, end = bisect_left(types, row), bisect_right(types, row)
            sizes = [len(members) for members in groups.members[:end]]
            patterns = list(islice(_multisets(sizes, count, start), most + 1))
            if len(patterns) > most:
                back = islice(_multisets(sizes[start:][::-1], count), most // 2)
                other = [tuple((end - 1 - g, n) for g, n in p[::-1]) for p in back]
                patterns = list(dict.fromkeys(patterns[: most - most // 2] + other))
            dealt = (_dealt(pattern, roomier, split.larger) for pattern in patterns)
            found += [pattern for pattern in dealt if pattern is not None]
        return found

    def _sheet(
        self,
        split: Split,
        groups: "_Groups",
        patterns: Sequence["_Dealt"],
        rows: Sequence[int],
        count: int,
    ) -> FloatArray:
        """(5, P) of each pattern: free GPUs on its nodes, three costs, idle nodes begun."""
        low = high = self._costs.of_shares(groups.nodes, split, more=0)
        if split.larger:
            high = self._costs.of_shares(groups.nodes, split, more=1)
        numbers = chain.from_iterable(chain.from_iterable(patterns))
        group, taken, larger = np.fromiter(numbers, dtype=np.int64).reshape(-1, 3).T
        sums = np.concatenate([groups.nodes[: IDLE + 1, group], low[:, group]])
        if count > 1:
            if split.larger:
                sums[2:] *= taken - larger
                sums[2:] += high[:, group] * larger
                sums[:2] *= taken
            else:
                sums *= taken
            sums[2:] /= count
        if len(group) > len(patterns):
            starts = np.cumsum([0, *(len(pattern) for pattern in patterns[:-1])])
            sums, group = np.add.reduceat(sums, starts, axis=1), group[starts]
        waste = self._pressure[groups.rows[group]] - self._pressure[list(rows)].min()
        free, idle, fragmentation, imbalance = sums
        return np.array([free, fragmentation, imbalance, waste, idle])

    def _groups(self, split: Split, member: BoolArray, rows: tuple[int, ...]) -> "_Groups":
        """Alike nodes that can carry at least the smaller share, type by type."""
        key = (rows, member.tobytes())
        if key not in self._alike:
            self._alike[key] = self._of_rows(member, *key)
        members, row_of, table = self._alike[key]
        ok = (
            (table[FREE] >= split.low) & (table[CPUS] >= split.cpus) & (table[MEM] >= split.mem_mib)
        )
        if split.exclusive:
            ok &= table[IDLE] > 0
        kept = np.flatnonzero(ok)
        return _Groups([members[g] for g in kept.tolist()], row_of[kept], table[:, kept])

    def _of_rows(self, member: BoolArray, rows: tuple[int, ...], of_member: bytes) -> "_Groups":
        """The groups of some types, one type after the other."""
        for row in rows:
            if ((row,), of_member) not in self._alike:
                self._alike[(row,), of_member] = self._looks(member, row)
        members, row_of, nodes = zip(*(self._alike[(r,), of_member] for r in rows), strict=True)
        return _Groups(
            list(chain.from_iterable(members)),
            np.concatenate(row_of),
            np.concatenate(nodes, axis=1),
        )

    def _looks(self, member: BoolArray, row: int) -> "_Groups":
        """All nodes of some partitions that have a type, those with the fewest free GPUs first."""
        c, able = self.capacity, member & self.capacity.usable
        if row < len(c.gpu_types):
            able &= c.total_gpus[row] > 0
        columns = np.flatnonzero(able)
        # an idle node looks different: to begin using it has a cost
        looks = (
            idle_gpus(row, c)[columns], c.free_cpus[columns], c.free_mem_mib[columns],
            c.total_gpus[row][columns], c.total_cpus[columns], c.total_mem_mib[columns],
            self._idle[columns],
        )  # fmt: skip
        found: dict[tuple[int, ...], list[int]] = {}
        for column, *look in zip(columns.tolist(), *(one.tolist() for one in looks), strict=True):
            found.setdefault(tuple(look), []).append(column)
        order = sorted(found, key=lambda k: (k[0], found[k][0]))
        members = tuple(tuple(found[look]) for look in order)
        first = np.array([some[0] for some in members], dtype=np.int64)
        nodes = self._costs.nodes(c, self._idle, row, first)
        return _Groups(members, np.full(len(members), row), nodes)


class _Groups(NamedTuple):
    """G groups of nodes that look alike, GPU type by GPU type. members: of each group. rows: (G,)
    GPU type. nodes: (8, G) one node of each (`CostModel.nodes`).
    """

    members: Sequence[tuple[int, ...]]
    rows: IntArray
    nodes: FloatArray


_Pattern = tuple[tuple[int, int], ...]
"""(group, how many of it), groups rising."""
_Dealt = tuple[tuple[int, int, int], ...]
"""(group, how many of it, of those with the larger share), larger shares first."""


def _columns(draft: _Draft, turn: int) -> list[int]:
    """The nodes of a draft at a turn, those with the larger share first."""
    columns: list[int] = []
    for members, count, _ in draft.picks:
        start = turn * count % len(members)
        columns += (members[start:] + members[:start])[:count]
    return columns


def _dealt(pattern: _Pattern, roomier: Sequence[bool], larger: int) -> _Dealt | None:
    """Give out the larger shares, lowest groups first, within one group; None = too few takers."""
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
    """Columns of a sheet: packing, spreading, then what nothing beats, then the rest."""
    chosen = {int(sheet[0].argmin()): PlacementKind.PACK}
    chosen.setdefault(int(sheet[0].argmax()), PlacementKind.SPREAD)
    patterns = sheet.shape[1]
    if patterns > len(chosen) < most:
        rest = np.lexsort((np.arange(patterns), sheet[1:4].sum(axis=0), ~_front(sheet[1:].T)))
        for at in rest.tolist():
            chosen.setdefault(at, PlacementKind.MIX)
    return list(chosen.items())[:most]


def _front(costs: FloatArray) -> BoolArray:
    """(n,) those that no other beats or equals in every cost; of equals the first counts."""
    no_worse = (costs[:, None, :] <= costs[None, :, :]).all(axis=2)  # i is no worse than j
    equal = no_worse & no_worse.T
    beaten = (no_worse & ~equal) | np.triu(equal, 1)
    return np.logical_not(beaten.any(axis=0))
