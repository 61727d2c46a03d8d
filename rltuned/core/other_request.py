"""What a waiting job would ask for with another time limit or number of GPUs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from rltuned.core.placement import ceil_div
from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.context import Context
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import Snapshot
from rltuned.text import span

_HOUR_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class OtherRequest:
    """limit_s: inf = UNLIMITED. None = as it is."""

    limit_s: float | None = None
    gpus: int | None = None

    def of(self, request: Request) -> Request:
        """CPUs and memory go with the GPUs."""
        if self.limit_s is not None:
            request = replace(request, time_limit_s=self.limit_s)
        before, gpus = request.total, self.gpus
        if gpus is None or gpus == before.gpus:
            return request
        cpus, mem_mib = (
            ceil_div(amount * gpus, before.gpus) if before.gpus else amount
            for amount in (before.cpus, before.mem_mib)
        )
        total = Resources(gpus, max(1, cpus), mem_mib)
        return replace(request, total=total, nodes=None, nodes_most=None, expected=None)


def barred(seen: Snapshot, job: PendingJob, other: OtherRequest) -> str:
    """Why Slurm would not start the job with that, by its partitions; empty = it would."""
    found = []
    for name in job.partitions:
        one = next((p for p in seen.partitions if p.name == name), None)
        if one is None or one.max_time_s is None or _takes(one, other.of(job.request)):
            return ""
        found.append(f"partition {name} takes at most {_minutes(one.max_time_s)}")
    return f"Slurm would not start it: {', '.join(found)}"


def _minutes(limit_s: float) -> str:
    return f"{limit_s / 60:.0f} min" if limit_s < _HOUR_S else span(limit_s)


def _takes(partition: Partition, request: Request) -> bool:
    limit_s = request.time_limit_s
    return limit_s is None or partition.max_time_s is None or limit_s <= partition.max_time_s


def with_other(
    seen: Snapshot,
    context: Context,
    job: PendingJob,
    other: OtherRequest,
    look: Callable[[Snapshot], Context],
) -> tuple[Snapshot, Context]:
    """Those in which the job asks for that, in those of its partitions that take such a limit.
    look: predicts run times.
    """
    request = other.of(job.request)
    short = {p.name for p in seen.partitions if not _takes(p, request)}
    where = tuple(name for name in job.partitions if name not in short) or job.partitions
    changed = replace(job, request=request, partitions=where)
    pending = (changed if one.job_id == job.job_id else one for one in seen.pending)
    seen = replace(seen, pending=tuple(pending))
    run_time = look(seen).run_times.get(job.job_id)
    if run_time is None:
        return seen, context
    return seen, replace(context, run_times={**context.run_times, job.job_id: run_time})
