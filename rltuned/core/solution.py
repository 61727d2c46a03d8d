"""What a solution means for Slurm: in which order it starts those jobs, what it must be told.

Slurm's own walk (core/timeline) over the new order is the judge: the order changes, and nodes are
excluded, only where that walk is then worth more than by the ranking alone, or as much on better
nodes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rltuned.core.milp import Option, Weights
from rltuned.core.options import Frame, worth
from rltuned.core.placement import Placement
from rltuned.core.sharing import tell_to_share
from rltuned.core.steering import Exclusions, other_types, without
from rltuned.core.timeline import Candidate, Timeline, reference
from rltuned.core.ways import Kind
from rltuned.domain.jobs import Share
from rltuned.domain.plan import SetOverSubscribe
from rltuned.domain.units import JobId, NodeName

_EQUAL: Final = 1e-9
"""Sums of the same numbers in another order may differ by so much."""

_Columns = Mapping[int, tuple[NodeName, ...]]
"""Nodes to exclude, by candidate."""


def beside_others(one: Candidate) -> Candidate:
    """An exclusive candidate as it is once it was told to share."""
    return replace(one, request=replace(one.request, exclusive=False))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided for one job.

    Attributes:
        ways: how many it has now.
        kind: None = not started within the horizon.
        starts_in_s: by time limits; 0 = now.
        why: for people.
    """

    job_id: JobId
    ways: int
    kind: Kind | None
    starts_in_s: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Solution:
    """A solution and what it means.

    Attributes:
        chosen: options by candidate.
        ways: how many each candidate has now.
        steered: jobs go where the solution says (a simulation).
        steerable: candidates that may be kept off nodes.
    """

    frame: Frame
    chosen: Mapping[int, Option]
    times: Timeline
    ways: tuple[int, ...]
    weights: Weights
    steered: bool
    steerable: frozenset[int]

    @property
    def now(self) -> list[int]:
        return sorted(at for at, option in self.chosen.items() if option.slot == 0)

    def placements(self) -> tuple[Placement, ...]:
        jobs = self.frame.candidates
        return tuple(Placement(jobs[at].job.job_id, self.chosen[at].way.shares) for at in self.now)

    def verdicts(self, excluded: Exclusions) -> tuple[Verdict, ...]:
        return tuple(self._verdict(at, excluded) for at in range(len(self.frame.candidates)))

    def followed(self) -> tuple[tuple[int, ...], Exclusions, str]:
        """The candidates in the order in which Slurm starts what was found, off which nodes they
        must be kept for that, and why.
        """
        order, why = self._ordered()
        found = {} if self.steered else self._excluded(order)
        if found:
            why += f"; {len(found)} kept off the GPU types that others need"
        candidates = self.frame.candidates
        return order, {candidates[at].job.job_id: nodes for at, nodes in found.items()}, why

    def _ordered(self) -> tuple[tuple[int, ...], str]:
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

    def _excluded(self, order: Sequence[int]) -> _Columns:
        """Nodes to keep jobs off so that Slurm chooses the GPU type that the solution chose."""
        by_itself = self._walk(order, {})
        wanted = {
            at: nodes
            for at in self.now
            if at in self.steerable and not self._same_type(by_itself.get(at), at)
            if (nodes := self._other_types(at))
        }
        if not wanted:
            return {}
        steered = self._walk(order, wanted)
        while not wanted.keys() <= steered.keys():  # one that would wait for its type is let go
            wanted = {at: nodes for at, nodes in wanted.items() if at in steered}
            steered = self._walk(order, wanted)
        lost = self._worth_of(by_itself) - self._worth_of(steered)
        return wanted if lost <= _EQUAL else {}

    def _same_type(self, shares: tuple[Share, ...] | None, at: int) -> bool:
        wanted = self.chosen[at].way.shares
        return shares is not None and shares[0].gpu_type == wanted[0].gpu_type

    def _other_types(self, at: int) -> tuple[NodeName, ...]:
        if self._shares(at):
            return ()
        shares = self.chosen[at].way.shares
        return other_types(self.frame.candidates[at], shares, self.frame.capacity)

    def _walk(self, order: Sequence[int], excluded: _Columns) -> dict[int, tuple[Share, ...]]:
        """What Slurm's own walk over an order starts, flags set as decided."""
        jobs = [self._as_slurm_sees(at, excluded.get(at, ())) for at in order]
        walked = reference(jobs, self.frame.capacity, lambda: self.frame.ends)
        return {order[i]: shares for i, shares in walked.starts.items()}

    def _as_slurm_sees(self, at: int, excluded: tuple[NodeName, ...]) -> Candidate:
        one = self.frame.candidates[at]
        if excluded:
            one = without(one, excluded, self.frame.capacity)
        return beside_others(one) if self._shares(at) else one

    def _worth(self, order: Sequence[int]) -> float:
        return self._worth_of(self._walk(order, {}))

    def _worth_of(self, starts: Mapping[int, tuple[Share, ...]]) -> float:
        gpus, candidates = int(self.frame.capacity.total_gpus.sum()), self.frame.candidates
        return math.fsum(worth(candidates[at], at, gpus, self.weights) for at in starts)

    def _shares(self, at: int) -> bool:
        option = self.chosen.get(at)
        return option is not None and option.slot == 0 and option.way.kind is Kind.SHARE

    def _size(self, at: int) -> tuple[int, int, int]:
        total = self.frame.candidates[at].request.total
        return -total.gpus, -total.cpus, at

    def _verdict(self, at: int, excluded: Exclusions) -> Verdict:
        option, job_id = self.chosen.get(at), self.frame.candidates[at].job.job_id
        if option is None:
            return Verdict(job_id, self.ways[at], None, None, "not within the horizon")
        offset_s = self.times.offsets_s[option.slot]
        kind, place = option.way.kind, ", ".join(s.node for s in option.way.shares)
        by_itself = "" if at in self.frame.reference.starts or offset_s else "; not by itself"
        why = f"{kind} on {place}{by_itself}"
        if kind is Kind.SHARE:
            why += "; its exclusive node would keep others waiting"
        if job_id in excluded:
            why += f"; kept off {len(excluded[job_id])} nodes of other GPU types"
        return Verdict(job_id, self.ways[at], kind, offset_s, why)
