"""How much of the new order one cycle may write: the change cap, and never against a guard.

When the cap does not allow the whole new order, its top is put right first, by an exchange of
numbers; later cycles go on further down. A part that would put a job outside its guards, or
further outside than it is now, is not written: then a smaller part is, or nothing.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from rltuned.core.guards import IntArray, Windows, places
from rltuned.domain.plan import MAX_PRIORITY

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
        return _head_first(queue, max_changes)
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


def _exchange(queue: Queue, head: IntArray) -> IntArray | None:
    """The head's own numbers dealt out in its new order, ties made strict upwards.

    None when that would carry one of them over a job that is not ours.
    """
    values = np.sort(queue.dealt[head])
    rank = np.arange(len(head), dtype=np.int64)
    strict = np.maximum.accumulate(values - rank) + rank
    others = queue.others
    passed = np.searchsorted(others, values, "right") != np.searchsorted(others, strict, "right")
    if passed.any() or (len(strict) and strict[-1] > MAX_PRIORITY):
        return None
    numbers = queue.in_force.copy()
    numbers[head] = strict[::-1]
    return numbers


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
