"""Why one job stands where it stands: what its score hangs on, which guards held it, what is ahead.

All of it is worked out anew from a decision, for a person who asks about one job; deciding itself
needs none of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.decide import Decision, Knobs, Policy, checked_scores
from rltuned.core.features import COLUMN, COLUMNS, FloatArray, StateMatrix
from rltuned.core.guards import Guard, places, windows
from rltuned.core.lineup import by_number
from rltuned.core.planning import current_values, order
from rltuned.core.select import Refusal
from rltuned.core.starvation import overdue
from rltuned.core.timeline import Candidate, reference, releases
from rltuned.domain.jobs import PendingJob

_RAW: Final = {
    "requested_gpus": "gpus",
    "requested_time": "limit_s",
    "submit_time": "wait_s",
    "req_cpu": "cpus",
    "req_mem": "mem_mib",
}
"""Features that the classic rules read unscaled, and where."""
_CANNOT_START: Final = frozenset(
    {
        Refusal.UNREADABLE,
        Refusal.HELD,
        Refusal.HELD_USER,
        Refusal.HELD_ADMIN,
        Refusal.DEPENDENCY,
        Refusal.NOT_ELIGIBLE,
        Refusal.RESERVATION,
        Refusal.UNFULFILLABLE,
        Refusal.HET_COMPONENT,
    }
)
"""Jobs that are not in line for the nodes, so nobody waits behind them."""


@dataclass(frozen=True, slots=True)
class Influence:
    """One feature of one job, and what the score would be were it like the queue's.

    Attributes:
        value, median: scaled to [0, 1] as the policy sees them; median of the ranked jobs.
        rank: 1 = nobody has a higher value.
        score_without: with the median in its place and all else as it is.
        difference: how much the feature adds to the score beyond what the median would.
        rank_without: by score, 1 = first.
    """

    feature: str
    value: float
    median: float
    rank: int
    score_without: float
    difference: float
    rank_without: int


def influences(policy: Policy, matrix: StateMatrix, row: int) -> tuple[Influence, ...]:
    """Leave one feature out at a time; the one that moves the score most comes first.

    A feature is replaced by the queue's median, in its scaled and, where the classic rules read
    it, its raw form. Features that are made of several (job_size, dsr) keep their value meanwhile.

    Args:
        policy: who scores.
        matrix: all ranked jobs.
        row: which of them.

    Raises:
        PolicyError: the policy gives no usable scores.
    """
    scores = checked_scores(policy, matrix)
    found = [_influence(policy, matrix, row, name, scores) for name in COLUMNS]
    return tuple(sorted(found, key=lambda f: -abs(f.difference)))


def _influence(
    policy: Policy, matrix: StateMatrix, row: int, name: str, scores: FloatArray
) -> Influence:
    column = matrix.column(name)
    without = float(checked_scores(policy, _with_median(matrix, row, name))[row])
    others = np.delete(scores, row)
    return Influence(
        feature=name,
        value=float(column[row]),
        median=float(np.median(column)),
        rank=1 + int((column > column[row]).sum()),
        score_without=without,
        difference=float(scores[row]) - without,
        rank_without=1 + int((others > without).sum()),
    )


def _with_median(matrix: StateMatrix, row: int, name: str) -> StateMatrix:
    values = matrix.values.copy()
    values[row, COLUMN[name]] = np.median(matrix.column(name))
    changed: dict[str, Any] = {}
    if name in _RAW:
        raw = getattr(matrix, _RAW[name]).copy()
        was, raw[row] = raw[row], np.median(raw)
        changed[_RAW[name]] = raw
        if name == "submit_time":
            changed["submit_s"] = matrix.submit_s.copy()
            changed["submit_s"][row] += was - raw[row]
    return replace(matrix, values=values, **changed)


def guards_on(decision: Decision, knobs: Knobs, row: int) -> tuple[Guard, ...]:
    """The guards that kept a job from where the policy wanted it, or put it where it is.

    Args:
        decision: the whole.
        knobs: by which it was made.
        row: of the job in the decision's matrix.
    """
    jobs, limits = decision.matrix.jobs, knobs.limits
    late = overdue(jobs, decision.snapshot, knobs.starvation)
    before = by_number(np.array([j.priority for j in jobs], dtype=np.int64))
    wanted = places(order(decision.scores, before, limits.hysteresis))
    by_score = places(order(decision.scores, before, 0.0))
    number = int(current_values(jobs, limits.write_mode)[row])
    acting = {
        guard
        for guard, (earliest, latest) in windows(jobs, limits.guards, late).by.items()
        if not earliest[row] <= wanted[row] <= latest[row]
    }
    if wanted[row] != by_score[row]:
        acting.add(Guard.HYSTERESIS)
    if row in late:
        acting.add(Guard.STARVATION)
    if limits.band is not None and not limits.band[0] <= number <= limits.band[1]:
        acting.add(Guard.BAND)
    return tuple(guard for guard in Guard if guard in acting)


class Foretold(StrEnum):
    """How sure a forecast is."""

    NOW = "now"
    """It fits, and keeps nobody with a reservation waiting."""
    AT_LATEST = "at_latest"
    """It is the first of its partition that does not fit: by the time limits of what runs."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a job may start by time limits alone. in_s: None = unknown. ahead: jobs before it."""

    how: Foretold
    in_s: float | None
    ahead: int


def may_start(decision: Decision, job: PendingJob) -> Forecast:
    """When a job may start if the queue stood as this cycle's plan would put it, and stayed so.

    Slurm's own walk (core/timeline): in order, best fit, backfill that puts off no reservation.
    Only the first job of a partition that does not fit has a time; of those behind it nothing is
    known. Knows nothing of limits on users and accounts, and of jobs that come later.
    """
    snapshot = decision.snapshot
    line = _in_line(decision)
    place = next((i for i, j in enumerate(line) if j.job_id == job.job_id), None)
    if place is None or _beyond_us(job):
        return Forecast(Foretold.UNKNOWN, None, place or 0)
    capacity = Capacity.of(snapshot)
    candidates = [
        Candidate(j, j.request, capacity.members_of(j.partitions))
        for j in line[: place + 1]
        if not _beyond_us(j)
    ]
    walked = reference(candidates, capacity, lambda: releases(snapshot, capacity))
    own = len(candidates) - 1
    if own in walked.starts:
        return Forecast(Foretold.NOW, 0.0, place)
    at_s = next((r.at_s for r in walked.reserved if r.candidate == own), np.inf)
    if not np.isfinite(at_s):
        return Forecast(Foretold.UNKNOWN, None, place)
    return Forecast(Foretold.AT_LATEST, at_s, place)


def _beyond_us(job: PendingJob) -> bool:
    return bool(job.request.outside or job.required_nodes or job.own_excluded_nodes)


def _in_line(decision: Decision) -> Sequence[PendingJob]:
    """The jobs that could start, in the order of the numbers after this cycle's plan."""
    left = {job_id for job_id, reason in decision.refused if reason in _CANNOT_START}
    settled = {e.job.job_id: e.settled for e in decision.entries}
    line = [j for j in decision.snapshot.pending if j.priority and j.job_id not in left]
    return sorted(line, key=lambda j: -settled.get(j.job_id, j.priority))
