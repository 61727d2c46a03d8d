# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""Slurm's two passes: the main one, and sched/backfill's, which reserves for every job it tests.

Only starts matter: a pass in which no waiting job fits what is free is left out, and a pass of the
backfill ends where nothing that is reserved so far leaves a later job room to start now, as what is
reserved only grows. Both are exact. A tick at which nothing has changed is
left out, which is exact where only events change the order.
"""

import math

import numpy as np

from rltuned.core import slurm_plan
from rltuned.core.cluster import Amounts
from rltuned.core.slurm_plan import (
    BITS,
    FIRST_WINDOW_S,
    MINUTE_S,
    RECORDS,
    SPLITS,
    TESTED,
    Parameters,
)
from rltuned.lab.kernel.compiler import BoolArray, IntArray, ascending, compiled, in_place
from rltuned.lab.kernel.placement import fits, has_failed, move, note_failed, place, record, start
from rltuned.lab.kernel.ranking import FIXED, Eyes, Ranking, priority_of, scores
from rltuned.lab.kernel.state import (
    CHANGED,
    CUT,
    PENDING,
    RUNNING,
    PendingQueue,
    Setup,
    State,
    begin_pass,
    copy_free,
    dequeue,
    later_of,
)

WAITS, STARTS, FULL = 0, 1, 2
"""What comes of a job: nothing or a reservation; it starts; there is no room for more."""

clear = in_place(slurm_plan.clear)
look_between = in_place(slurm_plan.look_between)
overlaps = in_place(slurm_plan.overlaps)
split = in_place(slurm_plan.split)
hold = in_place(slurm_plan.hold)
slot = in_place(slurm_plan.slot)
wider = in_place(slurm_plan.wider)
within = in_place(slurm_plan.within)
is_multiple = in_place(slurm_plan.is_multiple)
next_multiple = in_place(slurm_plan.next_multiple)


@in_place
def next_pass(setup: Setup, state: State, now: float) -> float:
    """When a pass comes although nothing happens; infinite = none does."""
    found = math.inf
    if state.counters[CHANGED]:
        found = next_multiple(now, setup.slurm.rules.bf_interval)
    if state.counters[CUT]:
        found = min(found, next_multiple(now, setup.slurm.rules.sched_interval))
    return found


@compiled
def look_as_slurm(
    setup: Setup,
    state: State,
    ranking: Ranking,
    eyes: Eyes,
    queue: PendingQueue,
    now: float,
    happened: bool,
) -> None:
    """The passes that are due. happened: a job came or ended, a node or the order changed."""
    rules, counters = setup.slurm.rules, state.counters
    counters[CHANGED] |= happened
    whole = is_multiple(now, rules.sched_interval)
    main = happened or (counters[CUT] > 0 and whole)
    back = counters[CHANGED] > 0 and is_multiple(now, rules.bf_interval)
    if not main and not back:
        return
    begin_pass(state)
    counters[CUT] &= not main
    jobs = queue.jobs[: queue.size[PENDING]]
    if not _any_fits(setup, state, jobs):
        counters[CHANGED] &= not back
        return
    order = queue.ranked[: queue.size[PENDING]]
    if ranking.rule != FIXED:
        order = jobs[ascending(-scores(setup, state, ranking, eyes, jobs, now))]
    if main:
        most = len(order) if whole else rules.default_queue_depth
        _main_pass(setup, state, queue, order, now, most)
    if back:
        counters[CHANGED] = 0
        _backfill_pass(setup, state, ranking, queue, order, now)


@in_place
def _any_fits(setup: Setup, state: State, jobs: IntArray) -> bool:
    """Whether a job that waits fits what is free."""
    for job in jobs:  # noqa: SIM110 - compiled
        if _can_fit(setup, state, job):
            return True
    return False


@in_place
def _can_fit(setup: Setup, state: State, job: int) -> bool:
    """Whether a job waits and fits what is free, whatever is reserved."""
    shape = setup.jobs.shape[job]
    if not np.isnan(state.start_s[job]) or has_failed(setup.shapes, state, shape):
        return False
    if fits(setup.shapes, shape, setup.hardware, state.free):
        return True
    note_failed(setup.shapes, state, shape)
    return False


@in_place
def _could_start(setup: Setup, state: State, now: float, job: int) -> bool:
    """Whether nothing that is reserved so far keeps a job that fits from starting now."""
    if not _can_fit(setup, state, job):
        return False
    shape = setup.jobs.shape[job]
    look_between(state.plan, now, now + setup.jobs.limit_s[job], 0)
    _allow(setup, state, setup.shapes.partition[shape])
    return fits(setup.shapes, shape, state.allowed, state.free)


@in_place
def _begin(
    setup: Setup, state: State, queue: PendingQueue, now: float, job: int, spread: bool
) -> bool:
    """Start the job on nodes that are allowed; False: it does not fit them."""
    shapes, shape = setup.shapes, setup.jobs.shape[job]
    if not place(shapes, shape, state.allowed, state.free, spread, state.chosen):
        return False
    record(shapes, shape, setup.hardware, state.chosen, setup.jobs.offset[job], state.shares)
    start(setup, state, now, job)
    dequeue(setup, queue, now, job)
    state.counters[CHANGED] = 1
    return True


@in_place
def _main_pass(
    setup: Setup,
    state: State,
    queue: PendingQueue,
    order: IntArray,
    now: float,
    most: int,
) -> None:
    """Start jobs in order, in each partition until the first that does not fit; its nodes then
    take no job of another partition either.
    """
    plan, partition_of = state.plan, setup.shapes.partition
    plan.shut[:] = 0
    plan.blocked[:] = 0
    for at in range(len(order)):
        if at == most:
            state.counters[CUT] = 1
            return
        job = order[at]
        partition = partition_of[setup.jobs.shape[job]]
        if plan.shut[partition]:
            continue
        member, allowed = setup.hardware.member[partition], state.allowed.member[partition]
        for node in range(len(member)):
            allowed[node] = member[node] and not plan.blocked[node]
        if _begin(setup, state, queue, now, job, setup.spread):
            continue
        if now - queue.arrive_s[job] >= setup.slurm.rules.bf_min_age_reserve:
            plan.shut[partition] = 1
            for node in range(len(member)):
                plan.blocked[node] |= member[node]


@in_place
def _backfill_pass(
    setup: Setup,
    state: State,
    ranking: Ranking,
    queue: PendingQueue,
    order: IntArray,
    now: float,
) -> None:
    """Test jobs in order: start each, or reserve for it."""
    rules, plan, started, last = setup.slurm.rules, state.plan, 0, len(order)
    step_s = rules.bf_resolution
    until_s = math.floor((now + rules.bf_window * MINUTE_S) / step_s) * step_s
    clear(plan, math.floor(now / step_s) * step_s, until_s)
    for at in range(len(order)):
        while last > at and not _could_start(setup, state, now, order[last - 1]):
            last -= 1
        if last == at or plan.sizes[TESTED] >= rules.bf_max_job_test:
            return
        job = order[at]
        if not np.isnan(state.start_s[job]) or not _counted(setup, state, job):
            continue
        priority = priority_of(ranking, job, max(now - setup.jobs.submit_s[job], 0.0))
        reserves = priority >= rules.bf_min_prio_reserve
        came_of_it = _test(setup, state, queue, now, job, reserves)
        if came_of_it == STARTS:
            started += 1
            state.counters[CUT] = 1  # another job is the first of its partition now
        if came_of_it == FULL or (came_of_it == STARTS and started == rules.bf_max_job_start):
            return


@in_place
def _counted(setup: Setup, state: State, job: int) -> bool:
    """Count the job for its user, partition and association; False: they have had enough."""
    rules, plan, user, assoc = (
        setup.slurm.rules,
        state.plan,
        setup.slurm.user[job],
        setup.slurm.assoc[job],
    )
    part = setup.shapes.partition[setup.jobs.shape[job]]
    both = user * len(plan.by_part) + part
    if not (
        within(plan.by_user, user, rules.bf_max_job_user)
        and within(plan.by_part, part, rules.bf_max_job_part)
        and within(plan.by_both, both, rules.bf_max_job_user_part)
        and within(plan.by_assoc, assoc, rules.bf_max_job_assoc)
    ):
        return False
    plan.by_user[user] += 1
    plan.by_part[part] += 1
    plan.by_both[both] += 1
    plan.by_assoc[assoc] += 1
    return True


@in_place
def _test(
    setup: Setup, state: State, queue: PendingQueue, now: float, job: int, reserves: bool
) -> int:
    """Start the job, or reserve for it the earliest time at which it fits beside the plan.
    reserves: its priority is high enough for that.
    """
    rules, plan, shape = setup.slurm.rules, state.plan, setup.jobs.shape[job]
    part, limit_s = setup.shapes.partition[shape], setup.jobs.limit_s[job]
    until_s = plan.begin_s[plan.sizes[RECORDS]]
    is_young = now - queue.arrive_s[job] < rules.bf_min_age_reserve
    has_room = within(plan.reserved, part, rules.bf_job_part_count_reserve)
    now_only = is_young or not has_room or not reserves
    from_s, tested = now, plan.sizes[TESTED]
    _fill_ours(setup, state, part)
    while from_s <= until_s:
        later_s, fits_s = look_between(plan, from_s, from_s + limit_s, rules.looks_on), math.inf
        if _allow(setup, state, part) >= setup.shapes.width[shape]:
            plan.sizes[TESTED] = tested + 1
            fits_s = _earliest(setup, state, from_s, shape, from_s if now_only else later_s)
        if fits_s == now:
            _begin(setup, state, queue, now, job, setup.spread)
            return STARTS
        if now_only or (fits_s <= later_s and fits_s > now + rules.bf_window * MINUTE_S):
            return WAITS
        if fits_s > later_s:
            from_s = later_s
            continue
        if plan.sizes[SPLITS] >= (rules.bf_node_space_size or rules.bf_max_job_test):
            return FULL
        if _reserve(setup, state, shape, fits_s, limit_s):
            return WAITS
        from_s = fits_s if fits_s > from_s else from_s + rules.bf_resolution
    return WAITS


@in_place
def _reserve(setup: Setup, state: State, shape: int, start_s: float, limit_s: float) -> bool:
    """Reserve the nodes that the shape would take of `later`; False: one of them is reserved."""
    rules, plan, part = setup.slurm.rules, state.plan, setup.shapes.partition[shape]
    _mask_choice(setup, rules, state, shape, part)
    begin_s, end_s = slot(start_s, limit_s, rules.bf_resolution, rules.ends_up)
    if overlaps(plan, begin_s, end_s):
        return False
    split(plan, begin_s)
    split(plan, end_s)
    hold(plan, begin_s, end_s)
    plan.reserved[part] += 1
    return True


@in_place
def _fill_ours(setup: Setup, state: State, part: int) -> None:
    """Tell the plan the partition's nodes."""
    member, ours = setup.hardware.member[part], state.plan.ours
    ours[:] = 0
    for node in range(len(member)):
        if member[node]:
            ours[node // BITS] |= 1 << (node % BITS)


@in_place
def _allow(setup: Setup, state: State, part: int) -> int:
    """Allow the partition's nodes but for those of the plan's mask; how many there are."""
    member, allowed, mask = setup.hardware.member[part], state.allowed.member[part], state.plan.mask
    count = 0
    for node in range(len(member)):
        allowed[node] = member[node] and not (mask[node // BITS] >> (node % BITS)) & 1
        count += allowed[node]
    return count


@in_place
def _earliest(setup: Setup, state: State, from_s: float, shape: int, until_s: float) -> float:
    """When the shape fits its allowed nodes, from from_s on, as running jobs reach their limits;
    infinite: not up to until_s. Leaves in `later` what is free then.

    Slurm takes the ends in groups and tests behind each: all that lie near the first one whose job
    holds an allowed node, then those in a window that grows.
    """
    part, at, window_s = setup.shapes.partition[shape], 0, FIRST_WINDOW_S
    later, linear_s, near_s = later_of(state, part), setup.slurm.rules.bf_window_linear, math.inf
    copy_free(state.free, later)
    if not has_failed(setup.shapes, state, shape) and fits(
        setup.shapes, shape, state.allowed, later
    ):
        return from_s
    while at < state.counters[RUNNING]:
        at, near_s, last_s = _give_group(setup, state, later, at, near_s, window_s, part)
        if last_s > until_s:
            return math.inf
        window_s = wider(window_s, linear_s)
        while at < state.counters[RUNNING] and state.latest[at] > near_s + window_s:
            window_s = wider(window_s, linear_s)
        if fits(setup.shapes, shape, state.allowed, later):
            if setup.slurm.rules.own_ends:
                last_s = _last_end_on_choice(setup, state, shape, part, at)
            return max(from_s, last_s)
    return math.inf


@in_place
def _last_end_on_choice(setup: Setup, state: State, shape: int, part: int, ended: int) -> float:
    """The last end among the first `ended` running jobs on the nodes that the shape would take of
    `later`; 0: none of them has one.
    """
    mask = state.plan.mask
    _mask_choice(setup, setup.slurm.rules, state, shape, part)
    for at in range(ended - 1, -1, -1):
        job = state.running[at]
        offset = setup.jobs.offset[job]
        for share in range(offset, offset + setup.shapes.width[setup.jobs.shape[job]]):
            node = state.shares.node[share]
            if (mask[node // BITS] >> (node % BITS)) & 1:
                return float(state.latest[at])
    return 0.0


@in_place
def _give_group(
    setup: Setup, state: State, later: Amounts, at: int, near_s: float, window_s: float, part: int
) -> tuple[int, float, float]:
    """Free in `later` what the next group holds. Returns where the next one begins among those
    that run, the mark from which windows reach (near_s, if it is known), and the group's last end;
    infinite: nothing is left.
    """
    jobs, latest, running = setup.jobs, state.latest, state.running
    count, last_s = state.counters[RUNNING], math.inf
    while at < count:
        job, end_s = running[at], latest[at]
        at += 1
        offset, width = jobs.offset[job], setup.shapes.width[jobs.shape[job]]
        if not _touches(state, offset, width, state.allowed.member[part]):
            continue
        if near_s == math.inf:
            near_s = end_s - end_s % window_s + window_s
        last_s = end_s
        move(setup.hardware, later, state.shares, offset, width, 1)
        if at < count and latest[at] > near_s + window_s:
            break
    return at, near_s, last_s


@in_place
def _touches(state: State, offset: int, width: int, allowed: BoolArray) -> bool:
    """Whether a running job holds an allowed node."""
    for at in range(offset, offset + width):  # noqa: SIM110 - compiled
        if allowed[state.shares.node[at]]:
            return True
    return False


@in_place
def _mask_choice(setup: Setup, rules: Parameters, state: State, shape: int, part: int) -> None:
    """Fill the plan's mask with the nodes that the shape would take of `later`: idle ones first,
    or with bf_busy_nodes the others.
    """
    idle_first, mask = rules.bf_busy_nodes == 0, state.plan.mask
    place(setup.shapes, shape, state.allowed, later_of(state, part), idle_first, state.chosen)
    mask[:] = 0
    for at in range(setup.shapes.width[shape]):
        node = state.chosen[at]
        mask[node // BITS] |= 1 << (node % BITS)
