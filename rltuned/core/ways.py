"""The ways in which one job could be placed on a given free state, each with its price.

Nodes that look alike to a job (same free amounts, same hardware) are one group, so all ways are
counted once: one per multiset of groups. Of those the ones that no other beats in every price come
first, then the rest, up to a bound; packing and spreading are always among them. docs/placement.md
gives the prices in formulas.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice

import numpy as np

from rltuned.core.capacity import BoolArray, Capacity, IntArray
from rltuned.core.placement import idle_gpus, shares_on, width
from rltuned.core.prices import Asks, FloatArray, Lens, Price, node_prices
from rltuned.domain.jobs import Request, Share


class PlacementKind(StrEnum):
    """What a way is to a person who reads about it."""

    PACK = "pack"
    """The nodes with the least free GPUs that fit."""
    SPREAD = "spread"
    """The nodes with the most, or one node more."""
    MIX = "mix"
    """Something between the two."""
    WHOLE = "whole"
    """Whole idle nodes, as an exclusive job asks."""
    SHARE = "share"
    """An exclusive job on its own amounts only, beside others."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way. opens: columns of the nodes, idle now, that it would begin to use."""

    kind: PlacementKind
    shares: tuple[Share, ...]
    price: Price
    opens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """How far ways are looked for.

    Attributes:
        max_ways: kept per job and moment.
        max_patterns: looked at per job, GPU type and node count; up to here the search is whole.
        wider: also try one node more, for jobs that named no node count and need several anyway.
            Only for those who can also say where a job goes: Slurm by itself uses the fewest.
    """

    max_ways: int = 6
    max_patterns: int = 256
    wider: bool = False

    def __post_init__(self) -> None:
        if self.max_ways < 1 or self.max_patterns < 1:
            raise ValueError(f"bounds must be at least 1: {self}")


@dataclass(frozen=True, slots=True)
class Draft:
    """A way before nodes are picked out of its groups.

    Attributes:
        row: GPU type.
        picks: columns of a group of alike nodes, how many of them, and whether they are idle; those
            with the larger share first.
    """

    row: int
    picks: tuple[tuple[tuple[int, ...], int, bool], ...]
    price: Price
    kind: PlacementKind

    def on_nodes(self, request: Request, capacity: Capacity, turn: int) -> Way:
        """Pick nodes; different turns pick different ones of a group, so that jobs part ways."""
        columns: list[int] = []
        opens: list[int] = []
        for members, count, idle in self.picks:
            start = turn * count % len(members)
            picked = [members[(start + i) % len(members)] for i in range(count)]
            columns += picked
            opens += picked if idle else []
        shares = shares_on(request, columns, self.row, capacity)
        return Way(self.kind, shares, self.price, tuple(sorted(opens)))


Shape = tuple[Request, bytes]
"""A request without its time limit, and the nodes it may use."""
Widths = dict[Shape, tuple[int, tuple[int, ...]]]


class Catalogue:
    """The ways of a queue's requests on one free state, each shape of request looked up once.

    Args:
        capacity: the free state.
        lens, bounds: see there.
        widths: what `width` said of a shape, shared by catalogues of the same hardware.
    """

    def __init__(
        self, capacity: Capacity, lens: Lens, bounds: SearchBounds, widths: Widths | None = None
    ) -> None:
        self.capacity = capacity
        self._lens = lens
        self._bounds = bounds
        self._idle = capacity.untouched()
        self._widths = {} if widths is None else widths
        self._known: dict[Shape, tuple[Draft, ...]] = {}
        self._tables: dict[tuple[Asks, bytes, int, int], tuple[_Table, list[_Dealt]]] = {}

    def ways(self, request: Request, member: BoolArray, turn: int = 0) -> tuple[Way, ...]:
        """All ways kept, packing first; empty when the request does not fit.

        Args:
            request: what is asked for.
            member: (N,) nodes it may use.
            turn: see `Draft.on_nodes`; other than 0, the nodes of turn 0 are offered as well.
        """
        # the time limit has no part in where a job fits
        key = (replace(request, time_limit_s=None), member.tobytes())
        drafts = self._known.get(key)
        if drafts is None:
            drafts = self._known[key] = self._drafts(request, member, key)
        found: dict[tuple[Share, ...], Way] = {}
        for one in (0, turn) if turn else (0,):
            for draft in drafts:
                way = draft.on_nodes(request, self.capacity, one)
                found.setdefault(way.shares, way)
        return tuple(found.values())

    def priced(self, request: Request, member: BoolArray, shares: tuple[Share, ...]) -> Way:
        """Somebody else's choice of nodes as a way: the one known here, or with its price."""
        known = next((w for w in self.ways(request, member) if w.shares == shares), None)
        if known is not None:
            return known
        c, asks = self.capacity, Asks.of(request, len(shares))
        columns = [c.index[share.node] for share in shares]
        row = c.row_on(shares[0], columns[0])
        parts = [
            node_prices(c, self._lens, self._idle, row, asks, more=int(share.taken.gpus > asks.low))
            for share in shares
        ]
        at = zip(parts, columns, strict=True)
        frag, imbalance, contention = np.mean([part[:, column] for part, column in at], axis=0)
        price = Price(float(frag), float(imbalance), float(contention))
        opens = tuple(sorted(column for column in columns if self._idle[column]))
        return Way(
            PlacementKind.WHOLE if request.exclusive else PlacementKind.MIX, shares, price, opens
        )

    def _drafts(self, request: Request, member: BoolArray, key: Shape) -> tuple[Draft, ...]:
        if key not in self._widths:
            self._widths[key] = width(request, member, self.capacity)
        narrowest, rows = self._widths[key]
        if not narrowest:
            return ()
        counts = [narrowest]
        if self._bounds.wider and _may_be_wider(request, narrowest):
            counts.append(narrowest + 1)
        wanted = [self._lens.pressure[r] if r < len(self._lens.pressure) else 0.0 for r in rows]
        found = [
            self._on_row(Asks.of(request, count), member, row, count, waste=pressure - min(wanted))
            for count in counts
            for row, pressure in zip(rows, wanted, strict=True)
        ]
        sheets = [t.sheet(p, c, c - narrowest) for t, p, c in found if p]
        lines = [(t, pattern) for t, p, _ in found for pattern in p]
        sheet = np.concatenate(sheets) if sheets else np.zeros((0, 7))
        return tuple(
            lines[at][0].draft(lines[at][1], sheet[at].tolist(), _whole(kind, request))
            for at, kind in _kept(sheet, self._bounds.max_ways)
        )

    def _on_row(
        self, asks: Asks, member: BoolArray, row: int, count: int, *, waste: float
    ) -> tuple["_Table", list["_Dealt"], int]:
        key = (asks, member.tobytes(), row, count)
        if key not in self._tables:
            self._tables[key] = self._table(asks, member, row, count)
        table, dealt = self._tables[key]
        return replace(table, waste=waste), dealt, count

    def _table(
        self, asks: Asks, member: BoolArray, row: int, count: int
    ) -> tuple["_Table", list["_Dealt"]]:
        groups = self._groups(asks, member, row)
        first = np.array([g[0] for g in groups], dtype=np.int64)
        more = (self.capacity.free_gpus[row][first] > asks.low).tolist()
        dealt = [
            _dealt(p, more, asks.larger) for p in self._patterns([len(g) for g in groups], count)
        ]
        c, idle = self.capacity, self._idle
        low = node_prices(c, self._lens, idle, row, asks, more=0)[:, first]
        high = low
        if asks.larger:
            high = node_prices(c, self._lens, idle, row, asks, more=1)[:, first]
        free = idle_gpus(row, c)[first]
        table = _Table(groups, row, idle[first], free, low, high)
        return table, [p for p in dealt if p is not None]

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

    def _groups(self, asks: "Asks", member: BoolArray, row: int) -> list[tuple[int, ...]]:
        """Alike nodes that can carry at least the smaller share, fewest free GPUs first."""
        c = self.capacity
        free = c.free_gpus[row]
        ok = member & c.usable & (c.free_cpus >= asks.cpus) & (c.free_mem_mib >= asks.mem_mib)
        ok &= free >= asks.low
        if asks.exclusive:
            ok &= self._idle
        columns = np.flatnonzero(ok)
        # an idle node is a thing of its own: to begin using it has a price
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
class _Table:
    """The groups of one GPU type for one split of a request. Shapes: G groups.

    low, high: (3, G) fragmentation, imbalance and contention of one node with either share.
    """

    groups: Sequence[tuple[int, ...]]
    row: int
    idle: BoolArray  # (G,)
    free: IntArray  # (G,)
    low: FloatArray
    high: FloatArray
    waste: float = 0.0

    def sheet(self, patterns: Sequence[_Dealt], count: int, extra: int) -> FloatArray:
        """(P, 7) of each pattern: nodes, free GPUs on them, four prices, idle nodes begun.

        extra: nodes more than the fewest.
        """
        with_low = np.zeros((len(patterns), len(self.groups)))
        with_high = np.zeros_like(with_low)
        for at, pattern in enumerate(patterns):
            for group, taken, larger in pattern:
                with_low[at, group] = taken - larger
                with_high[at, group] = larger
        taken_all = with_low + with_high
        prices = (with_low @ self.low.T + with_high @ self.high.T) / count  # (P, 3)
        prices[:, 2] = np.minimum(prices[:, 2] + extra / count, 1.0)
        waste, nodes = np.full(len(patterns), self.waste), np.full(len(patterns), float(count))
        return np.column_stack([nodes, taken_all @ self.free, prices, waste, taken_all @ self.idle])

    def draft(self, pattern: _Dealt, line: Sequence[float], kind: PlacementKind) -> Draft:
        """A pattern with its line of the sheet."""
        picks = tuple((self.groups[g], n, bool(self.idle[g])) for g, n, _ in pattern)
        return Draft(self.row, picks, Price(*line[2:6]), kind)


def _dealt(pattern: _Pattern, more: Sequence[bool], larger: int) -> _Dealt | None:
    """Give out the larger shares, lowest groups first; None when there are too few takers.

    Larger shares run out within one group, which keeps its remaining nodes beside them: cut in
    two, it would pick the same node twice.
    """
    first: list[tuple[int, int, int]] = []
    rest: list[tuple[int, int, int]] = []
    for group, taken in pattern:
        high = min(taken, larger) if more[group] else 0
        larger -= high
        (first if high else rest).append((group, taken, high))
    return None if larger else (*first, *rest)


def _whole(kind: PlacementKind, request: Request) -> PlacementKind:
    return PlacementKind.WHOLE if request.exclusive else kind


def _may_be_wider(request: Request, narrowest: int) -> bool:
    several = request.nodes is None and narrowest > 1 and not request.exclusive
    return several and request.total.gpus > narrowest


def _multisets(sizes: Sequence[int], count: int, start: int = 0) -> Iterator[_Pattern]:
    """All ways to take `count` nodes out of groups, those that use the first groups first."""
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
    if not len(sheet):
        return []
    by_size = np.lexsort((np.arange(len(sheet)), sheet[:, 1], sheet[:, 0]))
    pack = int(by_size[0])
    spread = int(np.lexsort((np.arange(len(sheet)), -sheet[:, 1], -sheet[:, 0]))[0])
    chosen = {pack: PlacementKind.PACK}
    chosen.setdefault(spread, PlacementKind.SPREAD)
    if len(sheet) > len(chosen) < most:
        prices = sheet[:, 2:]
        rest = np.lexsort((np.arange(len(sheet)), prices[:, :-1].sum(axis=1), ~_front(prices)))
        for line in rest.tolist():
            chosen.setdefault(line, PlacementKind.MIX)
    return list(chosen.items())[:most]


def _front(prices: FloatArray) -> BoolArray:
    """(n,) those that no other beats or equals in every price; of equals the first counts."""
    no_worse = (prices[:, None, :] <= prices[None, :, :]).all(axis=2)  # i is no worse than j
    equal = no_worse & no_worse.T
    beaten = (no_worse & ~equal) | np.triu(equal, 1)
    return np.logical_not(beaten.any(axis=0))
