"""Who competes with whom: the pools of a queue on the nodes that Slurm starts jobs on now."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from rltuned.core.backlog import backlogs_s, places
from rltuned.core.capacity import BoolArray, Capacity
from rltuned.domain.jobs import PendingJob
from rltuned.domain.units import JobId

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pools:
    """Who competes with whom: pool (n,) of each job, user (n,) and their number, overlap (P, P),
    gpus (P,) usable; tasks (n,) as waiting_tasks.
    """

    pool: IntArray
    user: IntArray
    users: int
    overlap: FloatArray
    gpus: FloatArray
    tasks: FloatArray

    def backlogs_s(self, area: FloatArray) -> FloatArray:
        """(n,) seconds. area: (n,) of one task each."""
        work = self.tasks * area
        return backlogs_s(work, self.pool, self.overlap, self.gpus, self.user, self.users)

    def places(self, key: FloatArray) -> FloatArray:
        """(n,) from 0 to 1 by a key, smaller first."""
        order = np.argsort(key, kind="stable")
        return places(key, order, self.tasks, self.pool, self.overlap, self.user, self.users)


def pools_of(
    jobs: Sequence[PendingJob],
    capacity: Capacity,
    room: Mapping[JobId, int],
    where: Mapping[JobId, tuple[str, ...]] = MappingProxyType({}),
) -> Pools:
    """The pools of a queue on the nodes that Slurm starts jobs on now. room: of
    Snapshot.room_in_arrays. where: see core/features.encode.
    """
    numbers: dict[tuple[tuple[str, ...], tuple[int, ...]], int] = {}
    pool = np.empty(len(jobs), dtype=np.int64)
    for at, job in enumerate(jobs):
        partitions = where.get(job.job_id, job.partitions)
        key = partitions, capacity.accepted(job.request)
        pool[at] = numbers.setdefault(key, len(numbers))
    units = [units_of(*key, capacity) for key in numbers]
    table = np.array(units).reshape(len(numbers), len(capacity.names))
    overlap, gpus = shared(table * capacity.usable)
    user, users = numbered([job.user for job in jobs])
    return Pools(pool, user, users, overlap, gpus, waiting_tasks(jobs, room))


def waiting_tasks(jobs: Iterable[PendingJob], room: Mapping[JobId, int]) -> FloatArray:
    """(n,) w of core/backlog: how many jobs each record stands for. room: how many more tasks of
    each bounded array may start, which its records share in their order.
    """
    left, found = dict(room), []
    for job in jobs:
        array = job.array
        tasks = 1 if array is None else max(1, array.tasks)
        if array is not None and array.array_job_id in left:
            tasks = min(tasks, left[array.array_job_id])
            left[array.array_job_id] -= tasks
        found.append(tasks)
    return np.array(found, dtype=np.float64)


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
