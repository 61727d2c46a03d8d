"""From a queue's first jobs to the instance of the integer program: ways, slots and gains."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.milp import Budget, Instance, Option, Weights
from rltuned.core.prices import Lens, Price
from rltuned.core.timeline import Candidate, Reference, ResourceRelease, Timeline, timeline
from rltuned.core.ways import Catalogue, PlacementKind, SearchBounds, Way, Widths

LATER_WAYS: Final = 2
"""Ways per job at slots after now, packing and spreading: they only hold a place, since the next
cycle decides anew."""
LATER_PATTERNS: Final = 16


@dataclass(frozen=True, slots=True)
class Frame:
    """What an instance is made from.

    Attributes:
        candidates: in the order of the ranking.
        shareable: those of them that are exclusive and may be told to share, with the request that
            they have then.
        capacity: free now.
        ends: of running jobs.
        reference: what would happen without us.
    """

    candidates: Sequence[Candidate]
    shareable: Mapping[int, Candidate]
    capacity: Capacity
    ends: Sequence[ResourceRelease]
    reference: Reference


def standing(rank: int, weights: Weights) -> float:
    """How much the start of the job at a rank (from 0) counts."""
    return float((1.0 + rank) ** -weights.order)


def earliness(offset_s: float, weights: Weights, budget: Budget) -> float:
    """1 now; from `later` on falling, to half of it at the horizon."""
    if offset_s == 0:
        return 1.0
    return weights.later * budget.horizon_s / (budget.horizon_s + offset_s)


def worth(candidate: Candidate, rank: int, all_gpus: int, weights: Weights) -> float:
    """What it is worth that a job starts now."""
    gpus = candidate.request.total.gpus / max(1, all_gpus)
    return weights.start * standing(rank, weights) + weights.occupancy * gpus


def build(
    frame: Frame, weights: Weights, budget: Budget, bounds: SearchBounds
) -> tuple[Instance, Timeline]:
    """The instance of a frame, and the moments of its slots."""
    promised = [r for r in frame.reference.reserved if r.shares is not None]
    times = timeline(
        frame.capacity,
        frame.ends,
        horizon_s=budget.horizon_s,
        most=max(budget.max_slots, 1 + len(promised)),
        also=[r.at_s for r in promised],
    )
    lens = lens_of(frame.candidates, frame.capacity)
    maker = _Maker(frame, weights, budget, times)
    widths: Widths = {}
    for slot, capacity in enumerate(times.capacities):
        own = (
            bounds
            if slot == 0
            else replace(bounds, max_ways=LATER_WAYS, max_patterns=LATER_PATTERNS)
        )
        catalogue = Catalogue(capacity, lens, own, widths)
        for at in range(len(frame.candidates)):
            maker.add(at, slot, catalogue)
    deadlines = []
    for promise in promised:
        slot = times.offsets_s.index(promise.at_s)
        way = Way(PlacementKind.PACK, promise.shares or (), Price())
        maker.offer(promise.candidate, slot, way)
        deadlines.append((promise.candidate, slot))
    last = standing(len(frame.candidates) - 1, weights)
    instance = Instance(
        options=tuple(maker.options),
        capacities=times.capacities,
        opening=weights.fragmentation * weights.opening * last,
        deadlines=tuple(deadlines),
    )
    return instance, times


class _Maker:
    """Collects options; one per job, slot and set of shares."""

    def __init__(self, frame: Frame, weights: Weights, budget: Budget, times: Timeline) -> None:
        self.options: list[Option] = []
        self._frame = frame
        self._weights = weights
        self._budget = budget
        self._times = times
        self._all_gpus = int(frame.capacity.total_gpus.sum())
        self._last = standing(len(frame.candidates) - 1, weights)
        self._seen: set[tuple[object, ...]] = set()

    def add(self, at: int, slot: int, catalogue: Catalogue) -> None:
        """Every way of one job at one slot."""
        one = self._frame.candidates[at]
        for way in catalogue.ways(one.request, one.member, turn=at):
            self.offer(at, slot, way)
        if slot == 0 and at in self._frame.reference.starts:
            shares = self._frame.reference.starts[at]
            self.offer(at, slot, catalogue.priced(one.request, one.member, shares))
        beside = self._frame.shareable.get(at)
        if beside is not None:
            for way in catalogue.ways(beside.request, beside.member, turn=at):
                price = replace(way.price, sharing=1.0)
                self.offer(at, slot, replace(way, kind=PlacementKind.SHARE, price=price))

    def offer(self, at: int, slot: int, way: Way) -> None:
        key = (at, slot, way.shares)
        if key in self._seen:
            return
        self._seen.add(key)
        one = self._frame.candidates[at]
        offset_s = self._times.offsets_s[slot]
        gain = worth(one, at, self._all_gpus, self._weights) * earliness(
            offset_s, self._weights, self._budget
        )
        prices = zip(self._weights.prices(), way.price.parts(), strict=True)
        gain -= self._last * math.fsum(weight * part for weight, part in prices)
        if slot == 0 and self._leaves(at, way):
            gain -= self._last * self._weights.stay
        self.options.append(
            Option(at, way, slot, self._times.last_slot(slot, one.limit_s), round(gain, 9))
        )

    def _leaves(self, at: int, way: Way) -> bool:
        """Whether a job that best fit would start now is sent elsewhere; sharing has its price."""
        by_itself = self._frame.reference.starts.get(at)
        return (
            by_itself is not None
            and way.kind is not PlacementKind.SHARE
            and way.shares != by_itself
        )


def lens_of(candidates: Sequence[Candidate], capacity: Capacity) -> Lens:
    """What a GPU comes with in this queue (medians), and how much of every type is in use."""
    asked = [c.request.total for c in candidates if c.request.total.gpus]
    total = capacity.total_gpus.sum(axis=1)
    used = 1.0 - capacity.free_gpus.sum(axis=1) / np.maximum(total, 1)
    return Lens(
        cpus_per_gpu=float(np.median([a.cpus / a.gpus for a in asked])) if asked else 0.0,
        mem_mib_per_gpu=float(np.median([a.mem_mib / a.gpus for a in asked])) if asked else 0.0,
        pressure=tuple(np.where(total > 0, used, 0.0).tolist()),
    )
