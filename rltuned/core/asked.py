"""What a job is predicted by: what it asks for, and the kinds that it belongs to by that."""

from typing import NamedTuple

from rltuned.core.features import LIMIT_FULL_S, planning_limit_s
from rltuned.domain.jobs import PendingJob, Request, RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.units import GpuType, JobId

Job = PendingJob | RunningJob
JobKey = tuple[int, float]
"""Job id and submit time: Slurm hands out ids again."""


class Asked(NamedTuple):
    """What a job is predicted by. gpus: as it asks for them. array: its number; None = none.
    limit_s: None = not known. request, partitions: what its size follows from.
    """

    user: str
    account: str
    partition: str
    qos: str
    gpus: int
    gpu_types: tuple[GpuType, ...]
    limit_s: float | None
    array: JobId | None
    kinds: Kinds
    request: Request
    partitions: tuple[str, ...]

    @property
    def planned_s(self) -> float:
        """The limit as a number."""
        return min(planning_limit_s(self.limit_s), LIMIT_FULL_S)


def key_of(job: Job) -> JobKey:
    """What tells jobs apart."""
    return job.job_id, job.submitted_at or 0.0


def partitions_of(job: Job) -> tuple[str, ...]:
    """That it waits in, or ran in."""
    return job.partitions if isinstance(job, PendingJob) else (job.partition,)


def asked_of(job: Job) -> Asked:
    """What a job is predicted by."""
    request, partitions = job.request, partitions_of(job)
    if isinstance(job, PendingJob):
        array = None if job.array is None else job.array.array_job_id
    else:
        array = job.array_job_id
    of_user = job.user, job.account, partitions[0], job.qos
    size = request.size.gpus, request.gpu_types, request.time_limit_s
    return Asked(*of_user, *size, array, job.kinds, request, partitions)


def kinds_of(asked: Asked) -> dict[str, tuple[object, ...] | None]:
    """Each of KEYS, in their order, with what jobs of its kind share; None = not known."""
    user, account, partition, qos, gpus, gpu_types, limit_s, array, kinds, *_ = asked

    def of_user(*values: object) -> tuple[object, ...] | None:
        return (user, *values) if user and all(values) else None

    twin = (user, account, partition, gpus, limit_s)
    return {
        "all": (),
        "gpus": (gpus,),
        "gpus_limit": (gpus, limit_s) if limit_s and limit_s < LIMIT_FULL_S else None,
        "account": (account,) if account else None,
        "account_gpus": (account, gpus) if account else None,
        "user": of_user(),
        "user_gpus": (user, gpus) if user else None,
        "twin": twin,
        "burst": twin,
        "partition": of_user(partition),
        "qos": of_user(qos),
        "gpu_type": of_user(gpu_types),
        "array": None if array is None else (array,),
        "name": of_user(kinds.name),
        "command": of_user(kinds.command),
        "work_dir": of_user(kinds.work_dir),
        "submit_line": of_user(kinds.submit_line),
    }
