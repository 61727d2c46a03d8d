"""Warm start from the daemon's journal: who had started by the next look, and who had not.

Two snapshots in a row show a decision of Slurm's main scheduler: of the jobs that wait in the
first, some run in the second. Each of them is preferred to every job that is left waiting, would
have fitted in its place, and stood behind it. What a network sees is the first snapshot alone; the
second one says only who started.

Left out, because it says nothing of the main scheduler's order:
- jobs that rltuned had written to, as choices and as rivals;
- starts in front of a job that would have fitted and had the higher priority: backfill;
- looks too far apart, and jobs that are gone without being seen to run.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rltuned.core.features import Float32Array, encode
from rltuned.core.observation import MAX_QUEUE_SIZE
from rltuned.core.order import DEFAULT, Order
from rltuned.core.select import Scope, select
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import TraceError
from rltuned.journal.cycles import CycleObservation
from rltuned.lab.train.history import FEWEST_STARTS, fits_in_place_of
from rltuned.lab.train.imitation import OrderedQueues, asked_of
from rltuned.policies.actor import seen_by

LONGEST_GAP_S: Final = 300.0
"""Looks further apart than this do not show one decision; the daemon looks every minute."""
_FREE: Final = Scope(min_age_s=0.0)


@dataclass(frozen=True, slots=True)
class Moment:
    """One preference: of the jobs of `queue` (places), `chosen` was started, `rivals` were not."""

    seen: CycleObservation
    queue: tuple[PendingJob, ...]
    chosen: int
    rivals: tuple[int, ...]


def moments_of(records: Iterable[CycleObservation]) -> Iterator[Moment]:
    """Every preference in a journal; records in the order of time."""
    for before, after in pairwise(records):
        seen, later = before.snapshot, after.snapshot
        gap_s = later.taken_at - seen.taken_at
        if seen.cluster == later.cluster and 0 < gap_s <= LONGEST_GAP_S:
            yield from _between(before, later)


def choices_of(
    records: Iterable[CycleObservation], *, most: int = 6_000, order: Order = DEFAULT
) -> OrderedQueues:
    """What a network learns from a journal, the latest `most` moments, about delays of an order.

    Raises TraceError.
    """
    rows = deque((_row(moment, order) for moment in moments_of(records)), maxlen=most)
    if len(rows) < FEWEST_STARTS:
        raise TraceError(
            f"{len(rows)} starts in the journal's snapshots had rivals; {FEWEST_STARTS} are needed"
        )
    return OrderedQueues.chosen(rows)


def _row(moment: Moment, order: Order) -> tuple[Float32Array, Float32Array, int]:
    """(n, features) and (n, 4) delays of those compared, as the daemon sees them; who won."""
    matrix = encode(moment.queue, moment.seen.snapshot, moment.seen.context)
    seen, asked = seen_by("queue", matrix), asked_of(matrix, order)
    places = sorted((moment.chosen, *moment.rivals[: MAX_QUEUE_SIZE - 1]))
    return seen[places], asked[places], places.index(moment.chosen)


def _between(record: CycleObservation, later: Snapshot) -> Iterator[Moment]:
    seen = record.snapshot
    queue = select(seen, _FREE).chosen  # what is not ours teaches best
    begun = {(j.job_id, j.submitted_at) for j in later.running if j.started_at >= seen.taken_at}
    waiting = {(j.job_id, j.submitted_at) for j in later.pending}
    left = [
        place
        for place, job in enumerate(queue)
        if job.owned is None and (job.job_id, job.submitted_at) in waiting
    ]
    for place, job in enumerate(queue):
        if job.owned is None and (job.job_id, job.submitted_at) in begun:
            rivals = tuple(other for other in left if _is_rival(queue[other], job))
            if rivals and all(queue[other].priority <= job.priority for other in rivals):
                yield Moment(record, queue, place, rivals)


def _is_rival(job: PendingJob, chosen: PendingJob) -> bool:
    """Whether a job that was left waiting would have fitted where the chosen one went."""
    together = not set(chosen.partitions).isdisjoint(job.partitions)
    return together and fits_in_place_of(job.request, chosen.request)
