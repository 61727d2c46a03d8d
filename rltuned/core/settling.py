"""How much of the new order one cycle may write: the change cap, and never against a guard.

When the cap does not allow the whole new order, its top is put right first; later cycles go on
further down. Three ways are tried, and the one that puts most of the top right is taken: the next
places get the numbers that they are to have in the end; the jobs of a head exchange their numbers;
or jobs go to their new places in chains (`core/chains.py`). What would put a job outside its
guards, or further outside than it is, is never written.
"""

from typing import Final

import numpy as np

from rltuned.core.chains import chained
from rltuned.core.guards import IntArray, places
from rltuned.core.lineup import (
    Queue,
    by_number,
    firm_places,
    levels_from,
    passes,
    right_places,
)

DRIFT_SHARE: Final = 0.01
"""Part of the span of managed priorities by which numbers may be off while the order is right."""


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
    if fresh:
        settled = _first_changes(queue, proposed, max_changes)
        return settled if queue.allows(settled, max_changes) else queue.in_force
    if right_places(queue, queue.in_force) == len(proposed):
        return queue.in_force  # numbers of their own would cost many cycles and change no start
    settled = _best(queue, max_changes)
    left = max_changes - int((settled != queue.in_force).sum())
    # few writes may have put much right, and then the next job is harder
    return _best(queue.taken(settled), left) if left > max_changes // 2 else settled


def _best(queue: Queue, max_changes: int) -> IntArray:
    """What puts most of the top right; the present numbers where nothing does."""
    firm = firm_places(queue, queue.in_force)
    ways = [_levelled(queue, max_changes, start) for start in sorted({firm, 0}, reverse=True)]
    ways.append(_head_first(queue, max_changes))
    ways += [chained(queue, max_changes, loosely=loosely) for loosely in (False, True)]
    return max(
        ways, key=lambda numbers: (right_places(queue, numbers), firm_places(queue, numbers))
    )


def _first_changes(queue: Queue, proposed: IntArray, max_changes: int) -> IntArray:
    after = queue.after
    moved = after[proposed[after] != queue.in_force[after]][:max_changes]
    settled = queue.in_force.copy()
    settled[moved] = proposed[moved]
    return settled


def _levelled(queue: Queue, max_changes: int, start: int) -> IntArray:
    """As many places from `start` on as can be afforded get their number for good.

    Where jobs tie, that number is free, and nobody else has to change for it. Whoever stands too
    high to be behind them takes one of the numbers that they have left.
    """
    levels = levels_from(queue, start)
    best = queue.in_force
    low, high = start, len(best)
    while low < high:
        middle = (low + high + 1) // 2
        numbers = _promoted(queue, start, levels[: middle - start])
        if numbers is not None and queue.allows(numbers, max_changes):
            best, low = numbers, middle
        else:
            high = middle - 1
    return best


def _promoted(queue: Queue, start: int, levels: IntArray) -> IntArray | None:
    """The present numbers with these given to places from `start` on; None where it cannot be."""
    count = start + len(levels)
    head, rest = queue.after[start:count], queue.after[count:]
    displaced = rest[queue.in_force[rest] >= levels[-1]]
    moved = np.concatenate([head, displaced])
    values = np.sort(queue.dealt[moved])
    left = values[: len(displaced)]
    numbers = queue.in_force.copy()
    numbers[head], numbers[displaced] = levels, left[::-1]
    if (left >= levels[-1]).any() or passes(queue.others, values, np.sort(numbers[moved])):
        return None
    return numbers


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
    if passes(queue.others, values, strict):
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
