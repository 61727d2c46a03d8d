"""What a waiting job would ask for with another time limit or number of GPUs."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from rltuned.core.placement import ceil_div
from rltuned.domain.cluster import Resources
from rltuned.domain.context import Context
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import Snapshot


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


def with_other(
    seen: Snapshot,
    context: Context,
    job: PendingJob,
    other: OtherRequest,
    look: Callable[[Snapshot], Context],
) -> tuple[Snapshot, Context]:
    """Those in which the job asks for that. look: predicts run times."""
    changed = replace(job, request=other.of(job.request))
    pending = (changed if one.job_id == job.job_id else one for one in seen.pending)
    seen = replace(seen, pending=tuple(pending))
    run_time = look(seen).run_times.get(job.job_id)
    if run_time is None:
        return seen, context
    return seen, replace(context, run_times={**context.run_times, job.job_id: run_time})
