"""Chains: from the top on each place goes to its new owner, and whoever had it moves on.

So a guarded order is reached in steps, and nobody is put against his guards on the way.
"""

from typing import Final

import numpy as np

from rltuned.core.guards import IntArray, places
from rltuned.core.lineup import Queue, by_number, firm_places, levels_from, passes

_MISSES: Final = 64
"""So many places whose new owner cannot get there within the cap, and it is left at that."""


def chained(queue: Queue, max_changes: int, *, loosely: bool) -> IntArray:
    """The numbers after as many chains as can be afforded; the present ones when it cannot.

    Whoever had a place goes to his own new one, and so on, until one can take the place that the
    first has left. So all but the last of a chain are where they are to be for good, and he is
    within his guards. Where a detour needs fewer jobs, it is taken: one write for the place at the
    top is worth more than many for places further down.

    Args:
        queue: as it stands and is to stand.
        max_changes: writes allowed.
        loosely: further down equals may stand by their age, and no number is spent on their order.
            Then only detours are taken, and to places where all equals would be within the guards.
    """
    order = by_number(queue.in_force)
    moves = max_changes
    while moves > 1:
        line = _Line(queue, order, loosely=loosely)
        line.fill(queue.after.tolist(), moves)
        wanted = np.array(line.order, dtype=np.int64)
        numbers = (_spaced if loosely else _numbered)(queue, order, wanted)
        if numbers is not None and queue.allows(numbers, max_changes):
            return numbers
        moves //= 2  # jobs that only make room among equal numbers count as changed too
    return queue.in_force


def _spaced(queue: Queue, order: IntArray, wanted: IntArray) -> IntArray | None:
    """Levels for the places at the top that are right now; the others take the numbers by place.

    None when that would carry one of them over a job that is not ours.
    """
    firm = firm_places(queue, queue.in_force)
    wrong = np.flatnonzero(wanted != queue.after)
    right = max(firm, int(wrong[0]) if len(wrong) else len(wanted))
    numbers = queue.in_force.copy()
    numbers[wanted] = queue.in_force[order]
    numbers[queue.after[firm:right]] = levels_from(queue, firm)[: right - firm]
    moved = numbers != queue.in_force
    before, then = np.sort(queue.in_force[moved]), np.sort(numbers[moved])
    return None if passes(queue.others, before, then) else numbers


def _numbered(queue: Queue, order: IntArray, wanted: IntArray) -> IntArray | None:
    """The present numbers by place, moved up just where equal ones would stand the wrong way round.

    None when that would carry one of them over a job that is not ours.
    """
    present = queue.in_force[order]
    line, who = present.tolist(), wanted.tolist()
    for place in range(len(line) - 2, -1, -1):
        # of equal numbers the job that stands first in the snapshot goes first
        line[place] = max(line[place], line[place + 1] + (who[place] > who[place + 1]))
    strict = np.array(line, dtype=np.int64)
    if passes(queue.others, present, strict):
        return None
    numbers = np.empty_like(strict)
    numbers[wanted] = strict
    return numbers


def _with_equals(
    earliest: IntArray, latest: IntArray, present: IntArray
) -> tuple[IntArray, IntArray]:
    """The part of each job's places where everybody with the same number is within it too.

    All by job but `present`, which are the numbers by place, falling.
    """
    count = len(present)
    place = np.arange(count)
    differs = present[1:] != present[:-1]
    first = np.maximum.accumulate(np.where(np.append(True, differs), place, 0))
    last = np.minimum.accumulate(np.where(np.append(differs, True), place, count)[::-1])[::-1]
    return (
        np.where(first[earliest] < earliest, last[earliest] + 1, earliest),
        np.where(last[latest] > latest, first[latest] - 1, latest),
    )


class _Line:
    """The order in the making: jobs by place, and the place of each job."""

    def __init__(self, queue: Queue, order: IntArray, *, loosely: bool) -> None:
        self._loosely = loosely
        self._firm = firm_places(queue, queue.in_force)
        self._misses = 1 if loosely else _MISSES
        self.order = order.tolist()
        self.moved: set[int] = set()
        self._place = places(order).tolist()
        self._target = places(queue.after).tolist()
        earliest, latest = queue.windows.widened(places(order))
        if loosely:
            earliest, latest = _with_equals(earliest, latest, queue.in_force[order])
        self._earliest, self._latest = earliest.tolist(), latest.tolist()
        self._reach = earliest[order], latest[order]  # by place

    def fill(self, owners: list[int], moves: int) -> None:
        """Give places to their new owners from the top on, as long as so many moves are enough."""
        misses = 0
        for owner in owners:
            chain = self.chain(owner, moves)
            if chain is not None and len(self.moved.union(chain)) <= moves:
                self.move(chain)
            elif (misses := misses + 1) == self._misses:
                break

    def chain(self, first: int, most: int) -> list[int] | None:
        """Jobs of which each goes to the place of the next, and the last to that of the first.

        Empty when the first is in place; None, or longer than `most`, when there is none so short.
        """
        left = self._place[first]
        if left == self._target[first]:
            # among equals it gets a number of its own
            return [first] if self._loosely and left >= self._firm else []
        if self._loosely:
            return self._detour(first, most) or None
        found = [first]
        while len(found) <= most:
            last = self.order[self._target[found[-1]]]
            found.append(last)
            if self._earliest[last] <= left <= self._latest[last]:
                break
        return self._detour(first, len(found) - 1) or found

    def _detour(self, first: int, most: int) -> list[int]:
        """A shorter chain: the second goes as far as he may towards the place that the first has
        left, and drives out whoever may go furthest from there; empty when there is none.
        """
        left, wanted = self._place[first], self._target[first]
        found = [first, self.order[wanted]]
        while not self._earliest[last := found[-1]] <= left <= self._latest[last]:
            low, high = max(self._earliest[last], wanted + 1), self._latest[last] + 1
            if len(found) >= most or low >= high:
                return []
            earliest, latest = self._reach
            far = latest[low:high].argmax() if left >= high else earliest[low:high].argmin()
            following = self.order[low + int(far)]
            if following in found:
                return []
            found.append(following)
        return found if len(found) <= most else []

    def move(self, chain: list[int]) -> None:
        to = [self._place[job] for job in [*chain[1:], *chain[:1]]]
        for job, place in zip(chain, to, strict=True):
            self.order[place], self._place[job] = job, place
            self._reach[0][place], self._reach[1][place] = self._earliest[job], self._latest[job]
        self.moved.update(chain)
