"""How much of the new order one cycle may write: the change cap, and never against a guard.

When the cap does not allow the whole new order, its top is put right first; later cycles go on
further down. Three ways are tried, and the one that puts most of the top right is taken: the next
places get the numbers that they are to have in the end; the jobs of a head exchange their numbers;
or jobs go to their new places in chains that end at a place which the guards allow, so a guarded
order is still reached in steps. What would put a job outside its guards, or further outside than it
is, is never written.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rltuned.core.guards import IntArray, Windows, places
from rltuned.domain.plan import MAX_PRIORITY

_MISSES: Final = 64
"""So many places whose new owner cannot get there within the cap, and it is left at that."""
_ROOM: Final = 1_000
"""By so much at most a number is raised over what Slurm gave to make equal ones strict. A job that
is not ours and comes later should find the numbers about where Slurm would have them."""
DRIFT_SHARE: Final = 0.01
"""Part of the span of managed priorities by which numbers may be off while the order is right."""


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
    if _right(queue, queue.in_force) == len(proposed):
        return queue.in_force  # numbers of their own would cost many cycles and change no start
    settled = _best(queue, max_changes)
    left = max_changes - int((settled != queue.in_force).sum())
    # few writes may have put much right, and then the next job is harder
    return _best(queue.taken(settled), left) if left > max_changes // 2 else settled


def _best(queue: Queue, max_changes: int) -> IntArray:
    """What puts most of the top right; the present numbers where nothing does."""
    firm = _firm(queue, queue.in_force)
    ways = [_levelled(queue, max_changes, start) for start in sorted({firm, 0}, reverse=True)]
    ways += [_head_first(queue, max_changes), _chained(queue, max_changes)]
    return max(ways, key=lambda numbers: (_right(queue, numbers), _firm(queue, numbers)))


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
    levels = _levels(queue, start)
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


def _levels(queue: Queue, start: int) -> IntArray:
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
    if (left >= levels[-1]).any() or _passes(queue.others, values, np.sort(numbers[moved])):
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


def _right(queue: Queue, numbers: IntArray) -> int:
    """How many places from the top on, jobs stand where the new order wants them."""
    wrong = np.flatnonzero(by_number(numbers) != queue.after)
    return int(wrong[0]) if len(wrong) else len(numbers)


def _firm(queue: Queue, numbers: IntArray) -> int:
    """How many of these have a number above that of every job behind, so nobody ties with them."""
    line = numbers[queue.after]
    behind = np.append(np.maximum.accumulate(line[::-1])[::-1][1:], -1)
    tied = np.flatnonzero(line <= behind)
    return int(tied[0]) if len(tied) else len(line)


def _chained(queue: Queue, max_changes: int) -> IntArray:
    """From the top on, gives each place to its new owner; the present numbers when it cannot.

    Whoever had the place goes to his own new one, and so on, until one can take the place that
    the first has left. So all but the last of a chain are where they are to be for good, and he is
    within his guards. Where a detour needs fewer jobs, it is taken: one write for the place at the
    top is worth more than many for places further down.
    """
    order = by_number(queue.in_force)
    moves = max_changes
    while moves > 1:
        line = _Line(queue, order)
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

    def __init__(self, queue: Queue, order: IntArray) -> None:
        self.order = order.tolist()
        self.moved: set[int] = set()
        self._place = places(order).tolist()
        self._target = places(queue.after).tolist()
        earliest, latest = queue.windows.widened(places(by_number(queue.in_force)))
        self._earliest, self._latest = earliest.tolist(), latest.tolist()
        self._reach = earliest[order], latest[order]  # by place

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
