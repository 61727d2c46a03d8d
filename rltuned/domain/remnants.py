"""What `rltuned restore` sees of the queue: what rltuned may have left there, and nothing else."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.units import JobId, UnixTime

UNASKED: Final = Request(total=Resources(0, 0, 0))
"""In place of what a job asks for, which a restore does not read."""


@dataclass(frozen=True, slots=True)
class Remnants:
    """Ids, numbers and flags of the pending records, without requests. unreadable: job id as
    printed -> why. plugin: PrioritySiteFactorPlugin, which owns all site factors; empty = none.
    """

    cluster: str
    pending: tuple[PendingJob, ...]
    unreadable: tuple[tuple[str, str], ...] = ()
    plugin: str = ""

    def hidden(self, job_id: JobId) -> str:
        """Why a job that is not in `pending` may be pending all the same; empty = it is not."""
        for name, why in self.unreadable:
            if name == str(job_id) or not name.isdigit():
                return f"the row of {name!r} in squeue cannot be read: {why}"
        return ""

    def left_out(self, keys: Collection[tuple[JobId, UnixTime]]) -> set[tuple[JobId, UnixTime]]:
        """Those of these jobs of which it is known that they are not pending any more."""
        shown = {(j.job_id, j.submitted_at) for j in self.pending}
        return {key for key in keys if key not in shown and not self.hidden(key[0])}
