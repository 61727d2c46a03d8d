"""The jobs that we order, as they stand and as they are to stand; which numbers say so."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rltuned.core.guards import IntArray, Windows, places
from rltuned.domain.plan import MAX_PRIORITY

_ROOM: Final = 1_000
"""By so much at most a number is raised over what Slurm gave to make equal ones strict. A job that
is not ours and comes later should find the numbers about where Slurm would have them."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The jobs that we order, as they stand and as they are to stand.

    Attributes:
        in_force: (n,) present numbers.
        dealt: (n,) the numbers that jobs bring into an exchange.
        given: (n,) the numbers that Slurm gave them.
        after: (n,) job indices in the new order.
        others: numbers of the jobs that are not ours, sorted upwards; none of them may be passed
            by making ties strict.
        windows: where the guards allow each job to stand.
    """

    in_force: IntArray
    dealt: IntArray
    given: IntArray
    after: IntArray
    others: IntArray
    windows: Windows

    def allows(self, numbers: IntArray, max_changes: int) -> bool:
        """Whether these numbers are within the cap, and no job is put against its guards."""
        if int((numbers != self.in_force).sum()) > max_changes:
            return False
        now = places(by_number(self.in_force))
        return self.windows.no_worse(places(by_number(numbers)), now)

    def taken(self, numbers: IntArray) -> "Queue":
        """The queue once these numbers are written."""
        dealt = np.where(numbers != self.in_force, numbers, self.dealt)
        return replace(self, in_force=numbers, dealt=dealt)


def by_number(numbers: IntArray) -> IntArray:
    """Job indices, highest number first.

    Slurm breaks ties by submit time and then id, which is the order jobs stand in a snapshot.
    """
    return np.argsort(-numbers, kind="stable")


def right_places(queue: Queue, numbers: IntArray) -> int:
    """How many places from the top on, jobs stand where the new order wants them."""
    wrong = np.flatnonzero(by_number(numbers) != queue.after)
    return int(wrong[0]) if len(wrong) else len(numbers)


def firm_places(queue: Queue, numbers: IntArray) -> int:
    """How many of these have a number above that of every job behind, so nobody ties with them."""
    line = numbers[queue.after]
    behind = np.append(np.maximum.accumulate(line[::-1])[::-1][1:], -1)
    tied = np.flatnonzero(line <= behind)
    return int(tied[0]) if len(tied) else len(line)


def levels_from(queue: Queue, start: int) -> IntArray:
    """Numbers for the places from `start` on: all ties made strict upwards, but below what stands
    in front of them, and no job that is not ours passed.
    """
    values = np.sort(queue.dealt)
    rank = np.arange(len(values), dtype=np.int64)
    strict = np.maximum.accumulate(values - rank) + rank
    next_other = np.append(queue.others, MAX_PRIORITY + 1)
    roof = next_other[np.searchsorted(queue.others, values, "right")] - 1
    levels = np.minimum.reduce([strict, roof, np.sort(queue.given) + _ROOM])[::-1][start:]
    if start:
        levels = np.minimum(levels, queue.in_force[queue.after[start - 1]] - 1)
    steps = rank[: len(levels)]
    falling: IntArray = np.minimum.accumulate(levels + steps) - steps
    return falling


def passes(others: IntArray, values: IntArray, higher: IntArray) -> bool:
    """Whether moving numbers up carries one over a job that is not ours, or over Slurm's limit."""
    passed = np.searchsorted(others, values, "right") != np.searchsorted(others, higher, "right")
    return bool(passed.any() or (higher > MAX_PRIORITY).any())
