"""What the starts of jobs say of an order, and which waiting jobs others have changed."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from rltuned.core.decide import Decision
from rltuned.domain.jobs import PendingJob
from rltuned.domain.runs import JobRun
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobKey, UnixTime


@dataclass(frozen=True, slots=True)
class Agreement:
    """rltuned's order beside what Slurm did: of the ranked jobs, n started and the others wait.
    agreed: of these n, those in rltuned's top n. own, slurms: fraction of (started, waiting) pairs
    that rltuned's and Slurm's order rank the same way; None = no pairs.
    """

    started: int
    agreed: int
    own: float | None
    slurms: float | None


def look_back(last: Decision, started: Iterable[JobRun]) -> Agreement | None:
    """Compare the last decision with what has started since; None = nothing that was ranked has."""
    units = {run.job.unit for run in started}
    waiting: list[tuple[int, int]] = []
    begun: list[tuple[int, int]] = []
    for entry in last.entries:
        ranks = (entry.rank_after, entry.rank_before)
        (begun if entry.job.unit in units else waiting).append(ranks)
    if not begun:
        return None
    return Agreement(
        started=len(begun),
        agreed=sum(ours <= len(begun) for ours, _ in begun),
        own=_earlier([r[0] for r in begun], [r[0] for r in waiting]),
        slurms=_earlier([r[1] for r in begun], [r[1] for r in waiting]),
    )


def _earlier(begun: list[int], waiting: list[int]) -> float | None:
    if not waiting:
        return None
    behind = np.searchsorted(np.sort(begun), np.asarray(waiting))
    return float(behind.sum()) / (len(begun) * len(waiting))


class Touched:
    """Waiting jobs that others have changed or held, from look to look. `units`: those.

    They are no evidence: a user may change, hold and free their own jobs, and sees whether delays
    are on, so that one user could make on blocks look worse than off blocks, or better.
    """

    def __init__(self) -> None:
        self.units: set[JobKey] = set()
        self._asked: dict[JobKey, tuple[object, ...]] = {}
        self._eligible: dict[JobKey, UnixTime] = {}
        self._left: set[JobKey] = set()

    def look(self, seen: Snapshot) -> None:
        """Take in one look. A job stays touched until it has left the queue, and one look more."""
        gone = self._asked.keys() - {job.key for job in seen.pending}
        here = {job.unit for job in seen.pending}
        self.units -= self._left - here
        self._left = self.units - here
        for key in gone:
            self._asked.pop(key)
            self._eligible.pop(key, None)
        self.units.update(job.unit for job in self._changed(seen.pending, seen.taken_at))

    def _changed(self, pending: Iterable[PendingJob], now: float) -> Iterable[PendingJob]:
        for job in pending:
            key, asked = job.key, _asked(job)
            moved = job.eligible_at is None or job.eligible_at > now
            was = self._eligible.get(key)
            # a hold and its release between two looks leave nothing but a new eligible time
            postponed = was is not None and (moved or job.eligible_at != was)
            if not moved and job.eligible_at is not None:
                self._eligible[key] = job.eligible_at
            set_by_others = job.taken_over or (job.fixed and job.owned is None)
            is_held = job.is_held
            if is_held or set_by_others or postponed or self._asked.setdefault(key, asked) != asked:
                yield job


def _asked(job: PendingJob) -> tuple[object, ...]:
    """What its user asked for, without what rltuned changes of it."""
    ours = job.owned is not None and job.owned.field == "priority" and job.nice == 0
    nice = (job.owned.nice or 0) if ours and job.owned is not None else job.nice
    request = replace(job.request, exclusive=False) if job.request.exclusive else job.request
    return (
        request, job.partitions, job.user, job.account, job.qos, nice, job.reservation,
        job.required_nodes, job.excluded_nodes,
    )  # fmt: skip
