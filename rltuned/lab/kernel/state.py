"""A simulated cluster as flat arrays: hardware, jobs, what runs and what is reserved."""

from typing import NamedTuple

import numpy as np

from rltuned.core.cluster import Amounts, copied
from rltuned.core.slurm_plan import NodeSpace, Parameters, empty_plan
from rltuned.lab.kernel.compiler import BoolArray, FloatArray, IntArray, in_place

PASS, STARTS, RUNNING, LATE, LOOKS, CHANGED, CUT = range(7)
"""Places in State.counters: number of the pass, starts so far, running jobs, 1 when a job started
in this pass after another was refused, and how often the queue was looked at; for Slurm's passes 1
when something has changed since the last backfill, and when a main pass did not see all jobs."""


NO_PLAN = empty_plan(0, 0, 0, 0, 0)


class Hardware(NamedTuple):
    """What never changes: N nodes in name order, P partitions. near: those that share a node."""

    total: Amounts
    member: BoolArray  # (P, N)
    near: BoolArray  # (P, P)


class Shapes(NamedTuple):
    """The different requests of a trace; each (S,) but accepts.

    width: nodes. accepts: (S, T+1) GPU types on which so many nodes carry it. low, larger: GPUs
    per node, and on how many nodes one more. cpus_each, mem_each: the largest share. family: shapes
    that ask the same of each of their nodes, of one GPU type; others are their own.
    """

    gpus: IntArray
    cpus: IntArray
    mem_mib: IntArray
    width: IntArray
    accepts: BoolArray
    low: IntArray
    larger: IntArray
    cpus_each: IntArray
    mem_each: IntArray
    exclusive: BoolArray
    partition: IntArray
    family: IntArray


class Jobs(NamedTuple):
    """The trace, in submit order, (n,). runs_s: cut at its limit. offset: its shares in Shares."""

    submit_s: FloatArray
    runs_s: FloatArray
    limit_s: FloatArray
    shape: IntArray
    offset: IntArray


class Shares(NamedTuple):
    """What every job took, one row per node of every job. row: GPU type; -1 = all of the node's."""

    node: IntArray
    row: IntArray
    gpus: IntArray
    cpus: IntArray
    mem_mib: IntArray


class Verdicts(NamedTuple):
    """What is known of each family now; each (F,).

    More nodes never fit where fewer do not, and take of a head what fewer take. failed: the last
    pass in which failed_from nodes did not fit. refused: stamp of the moment in which refused_from
    nodes were kept from starting beside heads unless they end by until_s; fits_to: so many fitted
    then.
    """

    failed: IntArray
    failed_from: IntArray
    refused: IntArray
    refused_from: IntArray
    fits_to: IntArray
    until_s: FloatArray


class State(NamedTuple):
    """Everything that changes. Shapes: n jobs, N nodes, P partitions.

    usable: nodes that have neither failed nor been drained. running: jobs by latest end,
    counters[RUNNING] of them. head: reserved job of each partition, -1 = none; later: what will be
    free at its shadow time. verdicts: what is known of the families. plan: of Slurm's backfill;
    allowed: the hardware with those members that it may use now.
    """

    free: Amounts
    usable: BoolArray  # (N,)
    start_s: FloatArray  # (n,)
    shares: Shares
    running: IntArray  # (n,)
    latest: FloatArray  # (n,) latest end of each running job, same order
    head: IntArray  # (P,)
    shadow_s: FloatArray  # (P,)
    later: Amounts  # (P, ...)
    verdicts: Verdicts
    counters: IntArray
    chosen: IntArray  # work space
    plan: NodeSpace
    allowed: Hardware


class Slurm(NamedTuple):
    """What the passes go by; on False = they are not played. user, assoc: (n,) numbers of the
    user, and of user, account and partition.
    """

    on: bool
    rules: Parameters
    user: IntArray
    assoc: IntArray


class Setup(NamedTuple):
    """The fixed side of a run. spread, easy: placement and backfill rule, if it is
    not Slurm's own.
    """

    hardware: Hardware
    shapes: Shapes
    jobs: Jobs
    spread: bool
    easy: bool
    slurm: Slurm


@in_place
def later_of(state: State, partition: int) -> Amounts:
    """What will be free at the shadow time of a partition's head."""
    later = state.later
    return Amounts(
        later.gpus[partition],
        later.of_type[partition],
        later.cpus[partition],
        later.mem_mib[partition],
    )


@in_place
def copy_free(free: Amounts, later: Amounts) -> None:
    """Let `later` begin as what is free now."""
    for node in range(len(free.gpus)):
        later.gpus[node], later.cpus[node] = free.gpus[node], free.cpus[node]
        later.mem_mib[node] = free.mem_mib[node]
        for row in range(len(free.of_type)):
            later.of_type[row, node] = free.of_type[row, node]


@in_place
def begin_pass(state: State) -> None:
    """Forget heads and memories: something was freed, or the order changed."""
    state.counters[PASS] += 1
    state.head[:] = -1


@in_place
def stamp(state: State) -> int:
    """A number that changes with every pass and every start: what is free, and for whom."""
    return int(state.counters[PASS] * (len(state.start_s) + 1) + state.counters[STARTS])


def empty_state(hardware: Hardware, shapes: Shapes, jobs: Jobs, plan: NodeSpace = NO_PLAN) -> State:
    """An empty cluster before the first job. plan: room for that of Slurm's backfill."""
    count, families = len(jobs.submit_s), int(shapes.family.max()) + 1
    partitions, total = len(hardware.near), int(shapes.width[jobs.shape].sum())
    free = copied(hardware.total)
    return State(
        free=free,
        usable=np.ones(len(hardware.total.cpus), dtype=bool),
        start_s=np.full(count, np.nan),
        shares=Shares(*(np.zeros(total, dtype=np.int64) for _ in range(5))),
        running=np.empty(count, dtype=np.int64),
        latest=np.empty(count),
        head=np.full(partitions, -1),
        shadow_s=np.full(partitions, np.inf),
        later=Amounts(
            *(np.zeros((partitions, *amount.shape), dtype=np.int64) for amount in hardware.total)
        ),
        verdicts=Verdicts(
            failed=np.full(families, -1),
            failed_from=np.zeros(families, dtype=np.int64),
            refused=np.full(families, -1),
            refused_from=np.zeros(families, dtype=np.int64),
            fits_to=np.zeros(families, dtype=np.int64),
            until_s=np.zeros(families),
        ),
        counters=np.zeros(7, dtype=np.int64),
        chosen=np.empty(2 * int(shapes.width.max()) + 1, dtype=np.int64),
        plan=plan,
        allowed=hardware._replace(member=np.zeros_like(hardware.member)),
    )


# The queue of a simulated Slurm: who waits, and when those end that have left it.


PENDING, STARTED = 0, 1
"""Places in PendingQueue.size."""


class Ends(NamedTuple):
    """When running jobs will end, the soonest first: a heap of the first size[0] of at_s (n,) and
    job (n,), of n jobs at most; equal times go by number.
    """

    at_s: FloatArray
    job: IntArray
    size: IntArray


class PendingQueue(NamedTuple):
    """Pending jobs, size[PENDING] of them, in submit order; a job that starts leaves them at the
    end of the pass.

    ranked: (n,) the same by their keys, where the order is FIXED, else (0,); key: (n,) those.
    started: who started in this pass, size[STARTED] of them; ends: of those that run. order: (n,)
    jobs by arrival; arrive_s: (n,) when each comes, which may be after its submission. member:
    (P, N) nodes of the partitions, whatever is down.
    """

    jobs: IntArray
    ranked: IntArray
    size: IntArray
    key: FloatArray
    started: IntArray
    ends: Ends
    order: IntArray
    arrive_s: FloatArray
    member: BoolArray


def empty_queue(
    setup: Setup, key: FloatArray, arrive_s: FloatArray, *, fixed: bool
) -> PendingQueue:
    """An empty queue. key: see above; arrive_s: (n,); fixed: the order is FIXED."""
    count = len(arrive_s)
    jobs, started, ending = np.empty((3, count), dtype=np.int64)
    return PendingQueue(
        jobs=jobs,
        ranked=np.empty(count if fixed else 0, dtype=np.int64),
        size=np.zeros(2, dtype=np.int64),
        key=key,
        started=started,
        ends=Ends(np.empty(count), ending, np.zeros(1, dtype=np.int64)),
        order=np.argsort(arrive_s, kind="stable"),
        arrive_s=arrive_s,
        member=setup.hardware.member.copy(),
    )


@in_place
def enqueue(queue: PendingQueue, job: int) -> None:
    """A job starts to wait."""
    at = size = queue.size[PENDING]
    while at > 0 and queue.jobs[at - 1] > job:
        queue.jobs[at] = queue.jobs[at - 1]
        at -= 1
    queue.jobs[at] = job
    queue.size[PENDING] = size + 1
    if len(queue.ranked) > 0:
        rank(queue, size, job)


@in_place
def _before(key: FloatArray, job: int, other: int) -> bool:
    """Whether a job stands before another one; equal keys go by submit order."""
    mine, theirs = key[job], key[other]
    return bool(mine < theirs or (mine == theirs and job < other))


@in_place
def place_of(queue: PendingQueue, job: int) -> int:
    """Where a pending job stands by its key."""
    ranked, key = queue.ranked, queue.key
    low, high = 0, queue.size[PENDING]
    while low < high:
        middle = (low + high) // 2
        if _before(key, ranked[middle], job):
            low = middle + 1
        else:
            high = middle
    return int(low)


@in_place
def rank(queue: PendingQueue, place: int, job: int) -> None:
    """Put a job from a place to that of its key, which is new."""
    ranked, key, last, at = queue.ranked, queue.key, queue.size[PENDING] - 1, place
    while at > 0 and _before(key, job, ranked[at - 1]):
        ranked[at] = ranked[at - 1]
        at -= 1
    while at < last and _before(key, ranked[at + 1], job):
        ranked[at] = ranked[at + 1]
        at += 1
    ranked[at] = job


@in_place
def dequeue(setup: Setup, queue: PendingQueue, now: float, job: int) -> None:
    """A job has started, and will end."""
    queue.ends.size[0] += 1
    _put(queue.ends, queue.ends.size[0] - 1, now + setup.jobs.runs_s[job], job)
    queue.started[queue.size[STARTED]] = job
    queue.size[STARTED] += 1


@in_place
def drop_started(queue: PendingQueue, start_s: FloatArray) -> None:
    """The pass is over: who started in it waits no more. start_s: (n,) NaN = has not."""
    size, jobs, ranked = queue.size, queue.jobs, queue.ranked
    if size[STARTED] == 0:
        return
    kept = 0
    for at in range(size[PENDING]):
        if np.isnan(start_s[jobs[at]]):
            jobs[kept] = jobs[at]
            kept += 1
    if len(ranked) > 0:
        kept = 0
        for at in range(size[PENDING]):
            if np.isnan(start_s[ranked[at]]):
                ranked[kept] = ranked[at]
                kept += 1
    size[PENDING], size[STARTED] = kept, 0


@in_place
def drop_end(ends: Ends, job: int) -> None:
    """A job runs no more; quick for the one that ends first."""
    at = 0
    while ends.job[at] != job:
        at += 1
    ends.size[0] -= 1
    last = ends.size[0]
    if at < last:
        _put(ends, at, ends.at_s[last], ends.job[last])


@in_place
def _put(ends: Ends, at: int, end_s: float, job: int) -> None:
    """Fill a hole: what ends later moves down, what ends sooner moves up."""
    at_s, jobs, count = ends.at_s, ends.job, ends.size[0]
    while at > 0:
        above = (at - 1) // 2
        if at_s[above] < end_s or (at_s[above] == end_s and jobs[above] < job):
            break
        at_s[at], jobs[at] = at_s[above], jobs[above]
        at = above
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        other = below + 1
        if other < count and (
            at_s[other] < at_s[below] or (at_s[other] == at_s[below] and jobs[other] < jobs[below])
        ):
            below = other
        if end_s < at_s[below] or (end_s == at_s[below] and job < jobs[below]):
            break
        at_s[at], jobs[at] = at_s[below], jobs[below]
        at = below
    at_s[at], jobs[at] = end_s, job
