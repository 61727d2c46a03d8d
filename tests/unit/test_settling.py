"""Under the change cap the head of the queue comes right first, however the numbers lie."""

from dataclasses import replace

import numpy as np
import pytest

from rltuned.core.guards import Guards, IntArray, Windows, places, project, windows
from rltuned.core.lineup import Queue, by_number
from rltuned.core.planning import FloatArray, Limits, arrange, standings
from rltuned.core.settling import settle
from rltuned.core.starvation import NOBODY, lift
from tests.builders import job

CAP = 50
FREE = Guards()


def spread(count: int, seed: int = 2) -> IntArray:
    """Numbers by lot, hardly any two alike."""
    return np.random.default_rng(seed).integers(1_000, 9_000_000, count)


def queue_of(
    numbers: IntArray, wanted: IntArray, *, overdue: IntArray = NOBODY, guards: Guards = FREE
) -> Queue:
    jobs = tuple(job(i, priority=int(n)) for i, n in enumerate(numbers.tolist(), start=1))
    allowed = windows(jobs, guards, overdue)
    after = project(lift(wanted, overdue), allowed)
    return Queue(numbers, numbers, numbers, after, np.zeros(0, dtype=np.int64), allowed)


def scores_of(order: IntArray) -> FloatArray:
    """Scores by which the jobs stand in this order."""
    return -places(order).astype(np.float64)


def right(queue: Queue, numbers: IntArray) -> int:
    """How many places from the top on are right."""
    return int(np.append(by_number(numbers) != queue.after, True).argmax())


def next_cycle(queue: Queue, most: int = CAP) -> Queue:
    """The queue that took one cycle's writes; a cluster where nothing else happens."""
    proposed = np.empty_like(queue.in_force)
    proposed[queue.after] = standings(queue.dealt, None)
    numbers = settle(queue, proposed, most, fresh=False)
    assert queue.allows(numbers, most)
    return replace(queue, in_force=numbers, dealt=numbers)


def test_a_long_queue_of_equal_numbers_is_put_right_by_one_write_for_each_place() -> None:
    numbers = np.full(1_000, 5_000)
    queue = queue_of(numbers, np.random.default_rng(1).permutation(1_000))
    for cycle in range(1, 6):
        queue = next_cycle(queue)
        assert right(queue, queue.in_force) >= cycle * CAP


def test_equals_that_stand_right_get_numbers_of_their_own_before_others_can_follow() -> None:
    late = np.arange(100)  # as submitted, at the top, and all at one number
    wanted = np.random.default_rng(1).permutation(200)
    queue = queue_of(np.full(200, 5_000), wanted, overdue=late)
    for _ in range(4):
        queue = next_cycle(queue)
    assert right(queue, queue.in_force) == 200


def test_a_queue_that_stands_right_is_not_written_only_because_many_of_it_tie() -> None:
    jobs = tuple(job(i, priority=5_000) for i in range(1, 201))
    nobody = np.zeros(0, dtype=np.int64)
    ordering = arrange(jobs, -np.arange(200.0), nobody, Limits(max_changes=CAP, hysteresis=0.0))
    assert (ordering.settled == 5_000).all()
    assert not ordering.held_back


def test_a_band_is_moved_into_also_by_a_queue_that_stands_right() -> None:
    jobs = tuple(job(i, priority=5_000 - i) for i in range(1, 201))
    nobody = np.zeros(0, dtype=np.int64)
    limits = Limits(max_changes=CAP, hysteresis=0.0, band=(8_000, 9_000))
    ordering = arrange(jobs, scores_of(np.arange(200)), nobody, limits)
    assert (ordering.settled >= 8_000).sum() == CAP


def test_where_the_top_is_right_and_the_rest_has_no_room_no_plan_counts_as_held_back() -> None:
    numbers = np.append(np.full(300, 5_000), np.arange(5_060, 5_000, -1))
    order = np.append(np.arange(300, 360), np.random.default_rng(1).permutation(300))
    jobs = tuple(job(i, priority=int(n)) for i, n in enumerate(numbers, start=1))
    others = np.array([5_001])
    ordering = arrange(jobs, scores_of(order), others, Limits(max_changes=60, hysteresis=0.0))
    assert (ordering.settled == numbers).all()
    assert not ordering.held_back
    less = arrange(jobs, scores_of(order[::-1]), others, Limits(max_changes=1, hysteresis=0.0))
    assert (less.settled == numbers).all()
    assert less.held_back


def test_where_all_are_overdue_the_oldest_come_to_the_top_in_every_cycle() -> None:
    numbers = spread(4_000)
    queue = queue_of(numbers, by_number(numbers), overdue=np.arange(4_000))
    assert queue.after.tolist() == list(range(4_000))
    done = 0
    for _ in range(40):
        queue = next_cycle(queue)
        now = right(queue, queue.in_force)
        assert now >= done + CAP // 8
        done = now


@pytest.mark.parametrize("reach", [40, 400])
def test_where_nobody_may_be_moved_far_the_head_comes_right_in_every_cycle(reach: int) -> None:
    numbers = spread(2_000)
    wanted = np.random.default_rng(1).permutation(2_000)
    queue = queue_of(numbers, wanted, guards=Guards(max_displacement=reach))
    done = 0
    while done < len(numbers):
        queue = next_cycle(queue)
        now = right(queue, queue.in_force)
        assert now > done
        done = now


def test_tasks_of_arrays_that_tie_come_right_at_the_top_as_well() -> None:
    numbers = np.repeat(spread(40), 50)
    wanted = np.random.default_rng(1).permutation(2_000)
    queue = queue_of(numbers, wanted, guards=Guards(max_displacement=250))
    for _ in range(5):
        queue = next_cycle(queue, most=250)
    assert right(queue, queue.in_force) >= 300


def test_who_stands_too_far_in_front_is_not_put_too_far_behind_instead() -> None:
    """An overdue job may come forward; that it was moved up once is no reason to let it wait."""
    natural = np.arange(10)
    allowed = Windows(natural, np.maximum(natural - 2, 0), natural, {})
    now = np.array([9, 1, 2, 3, 4, 0, 6, 7, 8, 5])  # job 5 stands 3 places too far in front
    then = np.array([9, 1, 2, 3, 4, 7, 6, 0, 8, 5])  # and here 2 too far behind
    assert not allowed.no_worse(then, now)


def test_all_overdue_and_far_from_their_places_the_oldest_still_come_first() -> None:
    numbers = spread(4_000)
    queue = queue_of(
        numbers, by_number(numbers), overdue=np.arange(4_000), guards=Guards(max_displacement=50)
    )
    done = 0
    for _ in range(20):
        queue = next_cycle(queue)
        now = right(queue, queue.in_force)
        assert now >= done + CAP // 8
        done = now


def test_nobody_is_raised_over_a_job_that_is_not_ours() -> None:
    ties = np.full(300, 5_000)
    queue = queue_of(ties, np.arange(299, -1, -1))
    near = replace(queue, others=np.array([4_999, 5_000, 5_060]))
    for _ in range(3):
        near = next_cycle(near)
        assert near.in_force.max() <= 5_060
    assert right(near, near.in_force) >= CAP


def test_equal_numbers_are_raised_only_so_far() -> None:
    queue = queue_of(np.full(2_000, 5_000), np.arange(1_999, -1, -1))
    for _ in range(30):
        queue = next_cycle(queue)
    assert 5_000 < queue.in_force.max() <= 6_000
    assert right(queue, queue.in_force) == 1_000  # enough for many passes of Slurm's backfill


def test_where_the_numbers_above_are_used_up_the_next_follow_as_the_first_start() -> None:
    numbers = np.append(np.full(500, 5_000), [5_001, 5_002, 5_003])  # all but three have started
    queue = queue_of(numbers, np.arange(502, -1, -1))
    for cycle in range(1, 4):
        queue = next_cycle(queue)
        assert right(queue, queue.in_force) >= cycle * CAP


def test_those_at_the_top_that_cannot_start_are_not_raised_again_and_again() -> None:
    stuck, rest = np.arange(6_000, 5_980, -1), np.full(500, 5_000)
    numbers = np.concatenate([stuck, [5_003, 5_002, 5_001], rest])
    queue = queue_of(numbers, np.append(np.arange(23), np.arange(522, 22, -1)))
    queue = next_cycle(replace(queue, given=np.full(523, 5_000)))
    assert queue.in_force.max() == 6_000
    assert right(queue, queue.in_force) >= CAP


def test_what_stands_right_is_left_alone_when_more_of_its_equals_arrive() -> None:
    count = 400
    queue = next_cycle(queue_of(np.full(count, 5_000), np.arange(count - 1, -1, -1)))
    head = queue.after[:CAP]
    numbers = np.append(queue.in_force, np.full(100, 5_000))
    after = np.concatenate([head, np.arange(count, count + 100), queue.after[CAP:]])
    free = Windows(places(after), np.zeros(500, int), np.full(500, 499), {})
    given = np.full(500, 5_000)
    grown = next_cycle(Queue(numbers, numbers, given, after, queue.others, free))
    assert (grown.in_force[head] == queue.in_force[head]).all()
    assert right(grown, grown.in_force) >= 2 * CAP
