"""How much of the new order one cycle may write: the change cap, and never against a guard.

When the cap does not allow the whole new order, its top is put right first, by an exchange of
numbers; later cycles go on further down. Where that would put a job against its guards, jobs go to
their new places in chains that end at a place which is allowed, so the order is still reached in
steps. What would put a job outside its guards, or further outside than it is, is never written.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from rltuned.core.guards import IntArray, Windows, places
from rltuned.domain.plan import MAX_PRIORITY

_MISSES: Final = 64
"""So many places whose new owner cannot get there within the cap, and it is left at that."""
DRIFT_SHARE: Final = 0.01
"""Part of the span of managed priorities by which numbers may be off while the order is right."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The jobs that we order, as they stand and as they are to stand.

    Attributes:
        in_force: (n,) present numbers.
        dealt: (n,) the numbers that jobs bring into an exchange.
        after: (n,) job indices in the new order.
        others: numbers of the jobs that are not ours, sorted upwards; none of them may be passed
            by making ties strict.
        windows: where the guards allow each job to stand.
    """

    in_force: IntArray
    dealt: IntArray
    after: IntArray
    others: IntArray
    windows: Windows

    def allows(self, numbers: IntArray, max_changes: int) -> bool:
        """Whether these numbers are within the cap, and no job is put against its guards."""
        if int((numbers != self.in_force).sum()) > max_changes:
            return False
        now = places(by_number(self.in_force))
        return self.windows.no_worse(places(by_number(numbers)), now)


def by_number(numbers: IntArray) -> IntArray:
    """Job indices, highest number first.

    Slurm breaks ties by submit time and then id, which is the order jobs stand in a snapshot.
    """
    return np.argsort(-numbers, kind="stable")


def settle(queue: Queue, proposed: IntArray, max_changes: int, *, fresh: bool) -> IntArray:
    """(n,) the numbers after this cycle: the proposed ones, or as much of them as is allowed.

    Args:
        queue: as it stands and is to stand.
        proposed: (n,) the numbers of the whole new order.
        max_changes: writes allowed.
        fresh: the numbers are a band's and not exchanged, so the first ranks can move in alone.
    """
    if queue.allows(proposed, max_changes):
        return proposed
    if not fresh:
        settled = _head_first(queue, max_changes)
        chained = _chained(queue, max_changes)
        return max(settled, chained, key=lambda numbers: _right(queue, numbers))
    settled = _first_changes(queue, proposed, max_changes)
    return settled if queue.allows(settled, max_changes) else queue.in_force


def _first_changes(queue: Queue, proposed: IntArray, max_changes: int) -> IntArray:
    after = queue.after
    moved = after[proposed[after] != queue.in_force[after]][:max_changes]
    settled = queue.in_force.copy()
    settled[moved] = proposed[moved]
    return settled


def _head_first(queue: Queue, max_changes: int) -> IntArray:
    """Finds a head as large as can be afforded: the jobs among the first so many now or in the new
    order exchange their numbers, everybody else keeps his. The next cycle finds that head in order
    and spends its writes further down.
    """
    reach = np.minimum(places(by_number(queue.in_force)), places(queue.after))
    best = queue.in_force.copy()
    low, high = 0, len(best)
    while low < high:
        middle = (low + high + 1) // 2
        numbers = _exchange(queue, queue.after[reach[queue.after] < middle])
        if numbers is not None and queue.allows(numbers, max_changes):
            best, low = numbers, middle
        else:
            high = middle - 1
    return best


def _right(queue: Queue, numbers: IntArray) -> int:
    """How many places from the top on, jobs stand where the new order wants them."""
    wrong = np.flatnonzero(by_number(numbers) != queue.after)
    return int(wrong[0]) if len(wrong) else len(numbers)


def _chained(queue: Queue, max_changes: int) -> IntArray:
    """From the top on, gives each place to its new owner; the present numbers when it cannot.

    Whoever had the place goes to his own new one, and so on, until one can take the place that
    the first has left. So all but the last of a chain are where they are to be for good, and he is
    within his guards.
    """
    order = by_number(queue.in_force)
    moves = max_changes
    while moves > 1:
        line = _Line(queue, order.tolist(), places(order).tolist())
        misses = 0
        for owner in queue.after.tolist():
            chain = line.chain(owner, moves)
            if len(line.moved.union(chain)) <= moves:
                line.move(chain)
            elif (misses := misses + 1) == _MISSES:
                break
        numbers = _numbered(queue, order, line.order)
        if numbers is not None and queue.allows(numbers, max_changes):
            return numbers
        moves //= 2  # jobs that only make room among equal numbers count as changed too
    return queue.in_force


def _numbered(queue: Queue, order: IntArray, wanted: list[int]) -> IntArray | None:
    """The present numbers by place, moved up just where equal ones would stand the wrong way round.

    None when that would carry one of them over a job that is not ours.
    """
    present = queue.in_force[order]
    line = present.tolist()
    for place in range(len(line) - 2, -1, -1):
        # of equal numbers the job that stands first in the snapshot goes first
        line[place] = max(line[place], line[place + 1] + (wanted[place] > wanted[place + 1]))
    strict = np.array(line, dtype=np.int64)
    if _passes(queue.others, present, strict):
        return None
    numbers = np.empty_like(strict)
    numbers[wanted] = strict
    return numbers


class _Line:
    """The order in the making: jobs by place, and the place of each job."""

    def __init__(self, queue: Queue, order: list[int], place: list[int]) -> None:
        self.order = order
        self.moved: set[int] = set()
        self._place = place
        self._target = places(queue.after).tolist()
        self._earliest = queue.windows.earliest.tolist()
        self._latest = queue.windows.latest.tolist()

    def chain(self, first: int, most: int) -> list[int]:
        """Jobs of which each goes to the place of the next, and the last to that of the first.

        Empty when the first is in place; longer than `most` when there is none so short.
        """
        left = self._place[first]
        if left == self._target[first]:
            return []
        found = [first]
        while len(found) <= most:
            last = self.order[self._target[found[-1]]]
            found.append(last)
            if self._earliest[last] <= left <= self._latest[last]:
                break
        return found

    def move(self, chain: list[int]) -> None:
        to = [self._place[job] for job in [*chain[1:], *chain[:1]]]
        for job, place in zip(chain, to, strict=True):
            self.order[place], self._place[job] = job, place
        self.moved.update(chain)


def _exchange(queue: Queue, head: IntArray) -> IntArray | None:
    """The head's own numbers dealt out in its new order, ties made strict upwards.

    None when that would carry one of them over a job that is not ours.
    """
    values = np.sort(queue.dealt[head])
    rank = np.arange(len(head), dtype=np.int64)
    strict = np.maximum.accumulate(values - rank) + rank
    if _passes(queue.others, values, strict):
        return None
    numbers = queue.in_force.copy()
    numbers[head] = strict[::-1]
    return numbers


def _passes(others: IntArray, values: IntArray, higher: IntArray) -> bool:
    """Whether moving numbers up carries one over a job that is not ours, or over Slurm's limit."""
    passed = np.searchsorted(others, values, "right") != np.searchsorted(others, higher, "right")
    return bool(passed.any() or (higher > MAX_PRIORITY).any())


def only_drifted(queue: Queue, proposed: IntArray) -> bool:
    """True when the order is right already and the numbers are off by little.

    Under multifactor every number drifts a little each minute (age, fair share); following that
    with writes would cost one RPC per job and cycle and change no start.
    """
    line, numbers = queue.in_force[queue.after], proposed[queue.after]
    if not len(line) or not (np.diff(line) < 0).all():
        return False
    slack = max(1.0, DRIFT_SHARE * float(numbers[0] - numbers[-1]))
    return bool((np.abs(line - numbers) <= slack).all())
