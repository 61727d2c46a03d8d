"""Another daemon on the same cluster, without a lease: seen by what it writes.

rltuned puts another number on every job that it orders, so a second one shows as many pending jobs
with many different numbers that this journal never wrote. An administrator changes a few jobs by
hand, and a submit plugin gives a few levels to many; neither looks like this. The sign is the
same after a journal was lost: then, too, nothing may be written.
"""

import math
from typing import Final

from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot

FEWEST: Final = 10
"""Different foreign numbers at least."""
SHARE: Final = 0.1
"""Of the pending jobs that are not held, at least."""
LOOKS: Final = 3
"""In a row, and it is said and stays said until a restart. Nothing is written from the first on."""


class Rivals:
    """Watches for numbers that nobody of ours has written."""

    def __init__(self) -> None:
        self._looks = 0
        self._found = ""

    def judge(self, snapshot: Snapshot) -> str:
        """Why nothing may be written; empty = nobody else seems to write.

        snapshot: marked with what the journal says is ours.
        """
        if self._found:
            return self._found
        free = [job for job in snapshot.pending if job.priority > 0]
        numbers = {number for job in free if (number := foreign(job)) is not None}
        if len(numbers) < max(FEWEST, math.ceil(SHARE * len(free))):
            self._looks = 0
            return ""
        self._looks += 1
        why = f"{len(numbers)} different numbers on pending jobs are none of ours"
        if self._looks < LOOKS:
            return f"{why}; waiting for another look"
        self._found = (
            f"{why}, {LOOKS} looks in a row: another rltuned writes to this cluster, or a journal "
            "was lost; stop the other one, give back with `rltuned restore`, then restart this one"
        )
        return self._found


def foreign(job: PendingJob) -> int | None:
    """A number that neither Slurm nor our journal has given to a job; None = there is none."""
    if job.owned is not None:
        actual = job.priority if job.owned.field == "priority" else job.site_factor
        return actual if job.taken_over else None
    if job.fixed:
        return job.priority
    return job.site_factor or None
