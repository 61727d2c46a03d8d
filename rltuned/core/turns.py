"""Exclusive jobs that are to share once their turn comes, told so ahead of it.

A node that falls free between two looks is given away by Slurm within a second, whole, to the next
exclusive job: a flag that is set at the next look comes too late. So the running jobs are imagined
ended, one after the other, and after each end Slurm's own walk (core/timeline) is played twice:
with the flags as they are, and with every job that waits and may share told to. Jobs that start by
the second walk are flagged when it is worth more, but those whose flag changes nothing.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.milp import Weights
from rltuned.core.options import standing, worth
from rltuned.core.timeline import Candidate, ResourceRelease, reference
from rltuned.domain.jobs import Share

ENDS_AHEAD: Final = 64
"""So many ends are imagined at most. More than the first jobs of a ranking can use come between two
looks only where there are more GPUs than waiting jobs, and there nobody keeps anybody waiting."""

_Starts = Mapping[int, tuple[Share, ...]]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who waits for what, once all that starts now has started.

    Attributes:
        candidates: all that were looked at, in the order in which Slurm will see them.
        shareable: those of them that may be told to share and are not yet, as they are then.
        free: what is left free now.
        ends: of running jobs, soonest first; ends by limit, as real ones are not known.
    """

    candidates: Sequence[Candidate]
    shareable: Mapping[int, Candidate]
    free: Capacity
    ends: Sequence[ResourceRelease]


def told_ahead(waiting: Waiting, started: Collection[int], weights: Weights) -> frozenset[int]:
    """Which of the shareable candidates are to be told to share before their turn.

    Args:
        waiting: see there; not changed.
        started: candidates that start now.
        weights: what a start and a flag are worth.
    """
    found: set[int] = set()
    free, running, begun = waiting.free.copy(), list(waiting.ends), list[ResourceRelease]()
    left = [at for at in range(len(waiting.candidates)) if at not in started]
    walk = _Walk(waiting, weights, left)
    for _ in range(ENDS_AHEAD):
        end = walk.next_end(running)
        if end is None:
            break
        running.remove(end)
        free.give(end.shares)
        free.cap()
        starts, flags = walk.best(free, [*running, *begun])
        found |= flags
        for at, shares in starts.items():
            free.take(shares)
            left.remove(at)
            begun.append(ResourceRelease(waiting.candidates[at].limit_s, shares))
    return frozenset(found)


@dataclass(slots=True)
class _Walk:
    """Slurm's walk over those that still wait, under one set of flags or another."""

    waiting: Waiting
    weights: Weights
    left: list[int]

    def next_end(self, ends: Sequence[ResourceRelease]) -> ResourceRelease | None:
        """The soonest end on a node that somebody who may be told to share could use."""
        hopeful = [self.waiting.candidates[at] for at in self.left if at in self.waiting.shareable]
        if not hopeful:
            return None
        could = np.logical_or.reduce([one.reach(self.waiting.free) for one in hopeful])
        index = self.waiting.free.index
        return next((end for end in ends if any(could[index[s.node]] for s in end.shares)), None)

    def best(
        self, free: Capacity, ends: Sequence[ResourceRelease]
    ) -> tuple[_Starts, frozenset[int]]:
        """Who starts, and with which flags."""
        plain = self._starts(frozenset(), free, ends)
        flags = frozenset(at for at in self.left if at in self.waiting.shareable)
        shared = self._starts(flags, free, ends)
        flags &= shared.keys()
        if self._value(shared, flags) <= self._value(plain, frozenset()):
            return plain, frozenset()
        for at in sorted(flags, reverse=True):
            fewer = self._starts(flags - {at}, free, ends)
            if self._value(fewer, flags - {at}) >= self._value(shared, flags):
                shared, flags = fewer, (flags - {at}) & fewer.keys()
        return shared, flags

    def _starts(
        self, flags: frozenset[int], free: Capacity, ends: Sequence[ResourceRelease]
    ) -> dict[int, tuple[Share, ...]]:
        jobs = [
            self.waiting.shareable[at] if at in flags else self.waiting.candidates[at]
            for at in self.left
        ]
        walked = reference(jobs, free, lambda: ends)
        return {self.left[i]: shares for i, shares in walked.starts.items()}

    def _value(self, starts: _Starts, flags: frozenset[int]) -> float:
        """What the starts are worth, less the price of the flags (`Weights.sharing`)."""
        gpus, candidates = int(self.waiting.free.total_gpus.sum()), self.waiting.candidates
        price = self.weights.sharing * standing(len(candidates) - 1, self.weights)
        gained = math.fsum(worth(candidates[at], at, gpus, self.weights) for at in starts)
        return gained - price * len(flags)
