"""What a solution means for Slurm: in which order it starts those jobs, which flags it needs.

Slurm's own walk (core/timeline) over the new order is the judge: the order changes only where that
walk is then worth more than by the ranking alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rltuned.core.milp import Option, Weights
from rltuned.core.options import Frame, worth
from rltuned.core.placement import Placement
from rltuned.core.sharing import tell_to_share
from rltuned.core.timeline import Candidate, Timeline, reference
from rltuned.core.ways import PlacementKind
from rltuned.domain.plan import SetOverSubscribe
from rltuned.domain.units import JobId

_EQUAL: Final = 1e-9
"""Sums of the same numbers in another order may differ by so much."""


def beside_others(one: Candidate) -> Candidate:
    """An exclusive candidate as it is once it was told to share."""
    return replace(one, request=replace(one.request, exclusive=False))


@dataclass(frozen=True, slots=True)
class JobDecision:
    """What was decided for one job.

    Attributes:
        ways: how many it has now.
        kind: None = not started within the horizon.
        starts_in_s: by time limits; 0 = now.
        why: for people.
    """

    job_id: JobId
    ways: int
    kind: PlacementKind | None
    starts_in_s: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Solution:
    """A solution and what it means.

    Attributes:
        chosen: options by candidate.
        ways: how many each candidate has now.
        steered: jobs go where the solution says (a simulation).
    """

    frame: Frame
    chosen: Mapping[int, Option]
    times: Timeline
    ways: tuple[int, ...]
    weights: Weights
    steered: bool

    @property
    def now(self) -> list[int]:
        return sorted(at for at, option in self.chosen.items() if option.slot == 0)

    def placements(self) -> tuple[Placement, ...]:
        jobs = self.frame.candidates
        return tuple(Placement(jobs[at].job.job_id, self.chosen[at].way.shares) for at in self.now)

    def verdicts(self) -> tuple[JobDecision, ...]:
        return tuple(self._verdict(at) for at in range(len(self.frame.candidates)))

    def followed(self) -> tuple[tuple[int, ...], str]:
        """The candidates in the order in which Slurm starts what was found, and why."""
        given = tuple(range(len(self.frame.candidates)))
        if set(self.now) == set(self.frame.reference.starts):
            return given, "starts the same jobs as the ranking by itself"
        rest = [at for at in given if at not in self.now]
        ranked_first = (*self.now, *rest)
        if self.steered:
            return ranked_first, "starts the chosen jobs on the chosen nodes"
        large_first = (*sorted(self.now, key=self._size), *rest)
        best, most = given, self._worth(given)
        for order in (ranked_first, large_first):
            gained = self._worth(order)
            if gained > most + _EQUAL:
                best, most = order, gained
        if best == given and not self.flags():
            return given, "Slurm's own placement would not follow: the ranking stays"
        return best, "other jobs start now than by the ranking alone"

    def flags(self) -> tuple[SetOverSubscribe, ...]:
        """Exclusive jobs that are to share now; those of later are core/turns' business."""
        jobs = self.frame.candidates
        return tuple(tell_to_share(jobs[at].job) for at in self.now if self._shares(at))

    def _worth(self, order: Sequence[int]) -> float:
        """What Slurm's own walk over an order starts is worth, flags set as decided."""
        candidates, capacity = self.frame.candidates, self.frame.capacity
        jobs = [
            beside_others(candidates[at]) if self._shares(at) else candidates[at] for at in order
        ]
        walked = reference(jobs, capacity, lambda: self.frame.ends)
        gpus, starts = int(capacity.total_gpus.sum()), (order[i] for i in walked.starts)
        return math.fsum(worth(candidates[at], at, gpus, self.weights) for at in starts)

    def _shares(self, at: int) -> bool:
        option = self.chosen.get(at)
        return option is not None and option.slot == 0 and option.way.kind is PlacementKind.SHARE

    def _size(self, at: int) -> tuple[int, int, int]:
        total = self.frame.candidates[at].request.total
        return -total.gpus, -total.cpus, at

    def _verdict(self, at: int) -> JobDecision:
        option, job_id = self.chosen.get(at), self.frame.candidates[at].job.job_id
        if option is None:
            return JobDecision(job_id, self.ways[at], None, None, "not within the horizon")
        offset_s = self.times.offsets_s[option.slot]
        kind, place = option.way.kind, ", ".join(s.node for s in option.way.shares)
        by_itself = "" if at in self.frame.reference.starts or offset_s else "; not by itself"
        why = f"{kind} on {place}{by_itself}"
        if kind is PlacementKind.SHARE:
            why += "; its exclusive node would keep others waiting"
        return JobDecision(job_id, self.ways[at], kind, offset_s, why)
