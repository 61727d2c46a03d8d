"""What is learned on each rung of the trust ladder: how jobs fare, and whether we do harm."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rltuned.core.decide import Decision
from rltuned.core.evidence import Evidence, block_jobs, worse_share
from rltuned.core.ladder import Ladder, Rung
from rltuned.core.select import Refusal, Rules, select
from rltuned.daemon import breaker
from rltuned.daemon.breaker import Breaker, Breakers, Cause, Memory
from rltuned.daemon.outcomes import Arm, Outcomes, Watcher
from rltuned.daemon.shadow import Agreement, look_back
from rltuned.domain.plan import Outcome
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId

_OURS_ALL_THE_SAME: Final = frozenset(
    {Refusal.JOB_BUDGET, Refusal.CHANGE_BUDGET, Refusal.HANDED_BACK}
)
"""Treated jobs that just are not written to in this cycle."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one cycle taught.

    Attributes:
        outcomes: who started and who ended since the last look.
        agreement: of our last order with what Slurm did; None = we wrote, or nothing started.
        breakers: by partition, as they are after this cycle.
        opened: the partitions whose breaker opened in this cycle.
    """

    outcomes: Outcomes = field(default_factory=Outcomes)
    agreement: Agreement | None = None
    breakers: Breakers = field(default_factory=dict)
    opened: tuple[str, ...] = ()


class Trial:
    """Follows the jobs from look to look, and opens breakers."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._watcher = Watcher()
        self._last: Decision | None = None
        self._ladder: Ladder | None = None
        self._blocks: dict[tuple[str, Cause], list[tuple[Arm, float]]] = defaultdict(list)

    def judge(
        self,
        ladder: Ladder,
        rules: Rules,
        seen: Snapshot,
        decision: Decision | None,
        outcomes: Iterable[Outcome],
        *,
        live: bool,
    ) -> Verdict:
        """Take in one cycle.

        Args:
            ladder: the knobs in force.
            rules: who is ours.
            seen: what the cycle saw.
            decision: what it decided; None = it only looked.
            outcomes: what came of the changes that it sent.
            live: whether it was allowed to write; while it is not, nothing is compared.

        Raises:
            JournalError: the breakers cannot be read or kept.
        """
        what = self._watcher.look(seen, arms(seen, decision, rules, ladder.rung))
        agreement = None
        if self._last is not None and not live:
            agreement = look_back(self._last, what.started)
        self._last = decision
        if ladder != self._ladder or not live:
            self._blocks.clear()  # what was gathered under other terms is not compared
            self._ladder = ladder
        failures = breaker.failing(seen.pending, outcomes)
        at = float(seen.taken_at)

        def alter(before: Breakers) -> Breakers:
            after: Breakers = breaker.count_errors(before, failures, ladder.max_errors, at)
            if live and ladder.rung is Rung.CANARY:
                after = self._compare(after, what, ladder, at)
            return after

        after = breaker.change(self._memory, seen.cluster, alter, at)
        opened = [n for n, b in after.items() if b.is_open and n not in seen.demoted]
        return Verdict(what, agreement, after, tuple(sorted(opened)))

    def _compare(self, before: Breakers, what: Outcomes, ladder: Ladder, at: float) -> Breakers:
        """Close the blocks that are full, and add what they say to the evidence."""
        after = before
        size = block_jobs(ladder.fraction)
        for partition, cause, arm, figure in _figures(what):
            block = self._blocks[partition, cause]
            block.append((arm, figure))
            if len(block) < size:
                continue
            share = worse_share(
                [f for a, f in block if a is Arm.TREATED], [f for a, f in block if a is Arm.CONTROL]
            )
            block.clear()
            if share is not None:
                old = after.get(partition, Breaker()).evidence.get(cause, Evidence())
                evidence = old.after(share, ladder.margin)
                after = breaker.weigh(after, partition, cause, evidence, at)
        return after


def arms(
    seen: Snapshot, decision: Decision | None, rules: Rules, rung: Rung
) -> Mapping[JobId, Arm]:
    """The side of every pending job. While we only watch, all that could be ours are control."""
    refused = decision.refused if decision is not None else select(seen, rules).refused
    ours = Arm.TREATED if rung.writes else Arm.CONTROL
    found = {job.job_id: ours for job in seen.pending}
    for job_id, reason in refused:
        if reason is Refusal.CONTROL:
            found[job_id] = Arm.CONTROL
        elif reason not in _OURS_ALL_THE_SAME:
            found[job_id] = Arm.OTHER
    return found


def _figures(what: Outcomes) -> Iterable[tuple[str, Cause, Arm, float]]:
    """What is compared: of each unit of the lot the first job, its wait and its slowdown."""
    for job in what.started:
        if job.first and job.arm is not Arm.OTHER and job.wait_s is not None:
            yield job.partition, Cause.WAIT, job.arm, job.wait_s
    for ended in what.ended:
        if ended.job.first and ended.job.arm is not Arm.OTHER and ended.slowdown is not None:
            yield ended.job.partition, Cause.SLOWDOWN, ended.job.arm, ended.slowdown
