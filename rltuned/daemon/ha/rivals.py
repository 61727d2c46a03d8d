"""Another daemon on the same cluster, without a lease: seen by what it writes.

rltuned puts another number on every job that it orders, so a second one shows as many pending jobs
with many different numbers that this journal never wrote. An administrator changes a few jobs by
hand, and a submit plugin gives a few levels to many; neither looks like this. Under priority/basic
Slurm does not say that a number was set, but rltuned's numbers lie above all of Slurm's own. The
sign is the same after a journal was lost: then, too, nothing may be written.
"""

import math
from typing import Final

from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import HIGHEST_BASIC
from rltuned.domain.snapshot import Snapshot

FEWEST: Final = 10
"""Different foreign numbers at least."""
SHARE: Final = 0.1
"""Of the pending jobs that are not held, at least: of different numbers, or under priority/basic,
where jobs of the same minute may share one, of jobs."""
USERS: Final = 2
"""Whose jobs bear them, at least, where so many have jobs: users lower numbers of their own."""
LOOKS: Final = 3
"""In a row make a rival, until a restart. Nothing is written from the first on."""


class Rivals:
    """Watches for numbers that this journal never wrote."""

    def __init__(self) -> None:
        self._looks = 0
        self._found = ""

    def judge(self, snapshot: Snapshot) -> str:
        """Why nothing may be written; empty = no other daemon seems to write."""
        if self._found:
            return self._found
        free = [job for job in snapshot.pending if job.priority > 0]
        is_basic = snapshot.priorities.kind == "basic"
        of = foreign_basic if is_basic else foreign
        found = [(number, job.user) for job in free if (number := of(job)) is not None]
        numbers, users = {number for number, _ in found}, {user for _, user in found}
        least = math.ceil(SHARE * len(free))
        few = len(numbers) < FEWEST or len(users) < min(USERS, len({job.user for job in free}))
        if few or len(found if is_basic else numbers) < least:
            self._looks = 0
            return ""
        self._looks += 1
        why = f"{len(numbers)} different numbers on pending jobs are not rltuned's"
        if self._looks < LOOKS:
            return f"{why}; waiting for another look"
        self._found = (
            f"{why}, {LOOKS} looks in a row: another rltuned writes to this cluster, or a journal "
            "was lost; stop the other one, restore with `rltuned restore`, then restart this one"
        )
        return self._found


def foreign(job: PendingJob) -> int | None:
    """A number that neither Slurm nor this journal has given to a job; None = there is none."""
    if job.owned is not None:
        return job.in_force if job.taken_over else None
    if job.fixed:
        return job.priority
    return job.site_factor or None


def foreign_basic(job: PendingJob) -> int | None:
    """The same under priority/basic, for numbers that only rltuned writes."""
    number = job.priority + job.nice  # Slurm takes the nice off
    if number <= HIGHEST_BASIC:
        return None
    owned = job.owned
    ours = () if owned is None else (owned.value, owned.original, *owned.earlier)
    return None if {number, job.priority} & set(ours) else number
