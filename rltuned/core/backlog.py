# ruff: noqa: PLR0917 - compiled functions take their arguments by place
"""The unit of the queue: how long the cluster needs for what waits, and where a job stands in it.

| word          | symbol | unit  | what it is                                                     |
|---------------|--------|-------|----------------------------------------------------------------|
| size          | m      | GPUs  | what a job takes away from others, see `sizes`; at least 1     |
| length        | L      | s     | its time limit, at most LONGEST_S, and that where it has none  |
| expected time | e      | s     | its predicted mean run time; else L x the site's use of limits |
| plan          | p      | s     | what the rule goes by, see core/run_times.plan_s; else L       |
| area          | a      | GPU s | e x m                                                          |
| pool          | P      |       | the nodes that it could run on: partitions and GPU types       |
| backlog       | B      | s     | the area that waits on its pool, over the usable GPUs there    |
| place         | q      | 0..1  | the part of the competing jobs with a smaller area             |

    B_i = sum_j o_ij a_j / G_i        o_ij: the part of the GPUs of j's pool that i's pool has too
    q_i = (jobs before i + half of those equal to it, itself among them) / jobs with o_ij > 0

A job's work is spread evenly over the GPUs of its own pool, so that no work counts twice where
pools overlap. Only jobs that rltuned may order now are counted: what is held, or waits for another
job or for a quota, needs nothing of the cluster yet.

No user moves others by more than all others together (core/influence): the jobs of the user with
the most work count for others at most as much as the work of all others, and in places likewise its
number of jobs. For its own jobs they count whole, so that its numbers do not jump when a second
user comes or goes.

The functions above the line work on arrays alone and are what the kernel compiles: the daemon and
the simulator run the same lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.capacity import BoolArray, Capacity
from rltuned.core.influence import leader
from rltuned.domain.jobs import PendingJob, Request

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LONGEST_S: Final = 30 * 86_400.0
"""No limit says more than this, so a job without one is never cheaper than the longest limit."""
USE_GUESS: Final = 0.5
"""What jobs use of their limits, by GPU time, until some of the site's own have ended."""
MOST_OF_A_NODE: Final = 0.5
"""A job that asks for more of a node's CPUs or memory than this makes GPUs unusable to others."""
RAN, ALLOWED = 0, 1
"""Places in the sums of `note_use`: GPU s that ended jobs ran, and that their limits allowed."""


def backlogs_s(
    area: FloatArray,
    pool: IntArray,
    overlap: FloatArray,
    gpus: FloatArray,
    user: IntArray,
    users: int,
) -> FloatArray:
    """(n,) B of jobs with areas (n,) and pools (n,). overlap: (P, P) o of pools i, j; gpus: (P,) G.
    user: (n,) numbers below users; users = 0: they are not known, and no one is bounded.
    """
    found = np.zeros(len(area))
    for own in range(len(gpus)):
        mine = pool == own
        if not mine.any() or gpus[own] <= 0.0:
            continue
        work = overlap[own][pool] * area
        total_s = np.cumsum(work)[-1] / gpus[own]
        if users == 0:
            found = np.where(mine, total_s, found)
            continue
        by_user = np.bincount(user, work, users).astype(np.float64)
        first, factor = leader(by_user)
        others_s = total_s - (1.0 - factor) * by_user[first] / gpus[own]
        found = np.where(mine, np.where(user == first, total_s, others_s), found)
    return found


def places(
    key: FloatArray,
    order: IntArray,
    pool: IntArray,
    overlap: FloatArray,
    user: IntArray,
    users: int,
) -> FloatArray:
    """(n,) q of jobs by a key (n,), smaller first. order: (n,) the jobs by that key."""
    count = len(key)
    found = np.zeros(count)
    if count == 0:
        return found
    by_key = key[order]
    is_new = by_key[1:] != by_key[:-1]
    group = np.zeros(count, dtype=np.int64)
    group[1:] = np.cumsum(is_new.astype(np.int64))
    edges = np.zeros(group[-1] + 2, dtype=np.int64)
    edges[1:-1] = np.flatnonzero(is_new) + 1
    edges[-1] = count
    begin, end = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    begin[order] = edges[group]
    end[order] = edges[group + 1]
    until = np.zeros(count + 1)
    for own in range(len(overlap)):
        mine = pool == own
        if not mine.any():
            continue
        beside = (overlap[own][pool] > 0.0).astype(np.float64)
        until[1:] = np.cumsum(beside[order])
        place = (until[begin] + until[end]) / (2.0 * max(until[-1], 1.0))
        if users > 0:
            first, factor = leader(np.bincount(user, beside, users).astype(np.float64))
            if factor < 1.0:
                is_first = user == first
                until[1:] = np.cumsum(np.where(is_first, factor * beside, beside)[order])
                bounded = (until[begin] + until[end]) / (2.0 * max(until[-1], 1e-9))
                place = np.where(is_first, place, bounded)
        found = np.where(mine, place, found)
    return found


def note_use(sums: FloatArray, ran_s: float, length_s: float, size: float) -> None:
    """A job ran so long of its length. sums: (2,), by GPU time: short jobs say little."""
    sums[RAN] += ran_s * size
    sums[ALLOWED] += length_s * size


def use_of(sums: FloatArray) -> float:
    """What jobs use of their limits, by GPU time; a guess while none has ended."""
    return USE_GUESS if sums[ALLOWED] <= 0.0 else float(sums[RAN] / sums[ALLOWED])


# -- The same of a queue and a cluster as objects ------------------------------------------------


def length_s(limit_s: FloatArray) -> FloatArray:
    """(n,) lengths of finite limits; features.UNLIMITED_AS_S stands for none."""
    found: FloatArray = np.minimum(limit_s, LONGEST_S)
    return found


@dataclass(frozen=True, slots=True)
class Pools:
    """Who competes with whom: pool (n,) of each job, user (n,) and their number, overlap (P, P),
    gpus (P,) usable.
    """

    pool: IntArray
    user: IntArray
    users: int
    overlap: FloatArray
    gpus: FloatArray

    def backlogs_s(self, area: FloatArray) -> FloatArray:
        """(n,) seconds."""
        return backlogs_s(area, self.pool, self.overlap, self.gpus, self.user, self.users)

    def places(self, key: FloatArray) -> FloatArray:
        """(n,) from 0 to 1 by a key, smaller first."""
        order = np.argsort(key, kind="stable")
        return places(key, order, self.pool, self.overlap, self.user, self.users)


def pools_of(jobs: Sequence[PendingJob], capacity: Capacity) -> Pools:
    """The pools of a queue on the nodes that Slurm starts jobs on now."""
    numbers: dict[tuple[tuple[str, ...], tuple[int, ...]], int] = {}
    pool = np.empty(len(jobs), dtype=np.int64)
    for at, job in enumerate(jobs):
        key = job.partitions, capacity.accepted(job.request)
        pool[at] = numbers.setdefault(key, len(numbers))
    units = [units_of(*key, capacity) for key in numbers]
    table = np.array(units).reshape(len(numbers), len(capacity.names))
    overlap, gpus = shared(table * capacity.usable)
    user, users = numbered([job.user for job in jobs])
    return Pools(pool, user, users, overlap, gpus)


def numbered(names: Sequence[str]) -> tuple[IntArray, int]:
    """(n,) a number for each user, and how many; each job without one is a user of its own. None
    has one: 0 users, as nothing tells them apart.
    """
    known: dict[str, int] = {}
    found = [known.setdefault(name, len(known)) if name else -1 for name in names]
    if not known:
        return np.zeros(len(names), dtype=np.int64), 0
    users = len(known)
    numbers = np.array(found, dtype=np.int64)
    strangers = np.flatnonzero(numbers < 0)
    numbers[strangers] = users + np.arange(len(strangers))
    return numbers, users + len(strangers)


def units_of(partitions: tuple[str, ...], rows: tuple[int, ...], capacity: Capacity) -> FloatArray:
    """(N,) GPUs of each node of a pool: of the types it accepts, or for a job without GPUs what its
    CPUs stand for.
    """
    member = capacity.members_of(partitions)
    if rows != (len(capacity.gpu_types),):
        accepted: FloatArray = (capacity.total_gpus[list(rows)].sum(axis=0) * member).astype(float)
        return accepted
    found: FloatArray = capacity.total_cpus * member / cpus_per_unit(member, capacity)
    return found


def shared(units: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Overlap (P, P) and GPUs (P,) of pools with units (P, N); see the head of this file."""
    gpus: FloatArray = units.sum(axis=1)
    common = (units > 0).astype(np.float64) @ units.T
    overlap: FloatArray = common / np.maximum(gpus, 1e-9)
    return overlap, gpus


def cpus_per_unit(member: BoolArray, capacity: Capacity) -> float:
    """CPUs per GPU of some nodes, per node where they have no GPU; at least 1."""
    cpus, gpus = int(capacity.total_cpus[member].sum()), int(capacity.total_gpus[:, member].sum())
    return max(1.0, cpus / max(1, gpus or int(member.sum())))


class Sizes:
    """What jobs take away from others, in GPUs, on one cluster; for a job without GPUs on nodes
    that have none, in nodes.

    A job takes the GPUs that it asks for. An exclusive one takes all of its nodes. One that asks
    for more than half of a node's CPUs or memory takes that part of the node's GPUs, as no other
    job can use them; a job without GPUs takes its part whatever it is.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._nodes: dict[tuple[tuple[str, ...], tuple[int, ...]], FloatArray] = {}

    def of(self, request: Request, partitions: tuple[str, ...]) -> float:
        """GPUs, at least 1."""
        asked = request.size
        units, cpus, mem_mib, most_gpus, most_cpus, most_mem = self._node(request, partitions)
        fewest = (asked.gpus / most_gpus, asked.cpus / most_cpus, asked.mem_mib / most_mem)
        width = request.nodes or max(1, *(int(np.ceil(part)) for part in fewest))
        part = max(asked.cpus / cpus, asked.mem_mib / mem_mib) / width
        if request.exclusive:
            part = 1.0
        elif asked.gpus and part <= MOST_OF_A_NODE:
            part = 0.0
        return float(max(asked.gpus, width * units * min(part, 1.0), 1.0))

    def _node(self, request: Request, partitions: tuple[str, ...]) -> FloatArray:
        """(6,) mean GPUs, CPUs and MiB of a node that the job could run on, and the most of each.
        Where no node has GPUs, one node is one unit.
        """
        capacity = self._capacity
        key = partitions, capacity.accepted(request)
        if key not in self._nodes:
            has = units_of(*key, capacity) > 0
            if not has.any():
                has = np.ones(len(capacity.names), dtype=bool)
            gpus = capacity.total_gpus.sum(axis=0)[has]
            columns = (gpus, capacity.total_cpus[has], capacity.total_mem_mib[has])
            table = [np.mean(c) if len(c) else 0.0 for c in columns]
            table += [np.max(c, initial=0) for c in columns]
            if not table[0]:
                table[0] = 1.0
            self._nodes[key] = np.maximum(np.array(table, dtype=np.float64), [1e-9] * 3 + [1.0] * 3)
        return self._nodes[key]
