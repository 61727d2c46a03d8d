"""What is learned on each rung of the trust ladder: how jobs fare, and whether we do harm."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rltuned.core.decide import Decision
from rltuned.core.evidence import block_jobs, worse_share
from rltuned.core.ladder import Ladder, Rung
from rltuned.core.select import Refusal, Rules, select
from rltuned.daemon import breaker
from rltuned.daemon.breaker import Breakers, Cause
from rltuned.daemon.cohorts import FEWEST_USERS, Cohorts
from rltuned.daemon.memory import Memory
from rltuned.daemon.outcomes import Arm, Outcomes, Started, Watcher
from rltuned.daemon.shadow import Agreement, look_back
from rltuned.daemon.touched import Touched
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
        agreement: of our last order with what Slurm did; None = nothing that we ranked started.
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
        self._touched = Touched()
        self._last: Decision | None = None
        self._terms: tuple[Ladder, str] | None = None
        self._cohorts: Cohorts | None = None
        self._size = 0
        self._slowdowns: dict[str, list[tuple[str, Arm, float]]] = defaultdict(list)

    def judge(
        self,
        ladder: Ladder,
        rules: Rules,
        seen: Snapshot,
        decision: Decision | None,
        outcomes: Iterable[Outcome],
        *,
        live: bool,
        model: str = "",
    ) -> Verdict:
        """Take in one cycle.

        Args:
            ladder: the knobs in force.
            rules: who is ours.
            seen: what the cycle saw.
            decision: what it decided; None = it only looked.
            outcomes: what came of the changes that it sent.
            live: whether it was allowed to write; while it is not, the canary gathers nothing.
            model: digest of the model, or name of the rule, that ranks.

        Raises:
            JournalError: the breakers cannot be read or kept.
        """
        sides = arms(seen, decision, rules, ladder.rung)
        what = self._watcher.look(seen, sides)
        self._touched.look(seen)
        agreement = None
        if self._last is not None:
            agreement = look_back(self._last, what.started)
        self._last = decision
        shares = self._compare((ladder, model), seen, sides, what, live=live)
        failures = breaker.failing(seen.pending, outcomes)
        at = float(seen.taken_at)

        def alter(before: Breakers) -> Breakers:
            after: Breakers = breaker.count_errors(before, failures, ladder.max_errors, at)
            for partition, cause, share in shares:
                after = breaker.weigh(
                    after, partition, cause, share, margin=ladder.margin, at=at, model=model
                )
            return after

        after = breaker.change(self._memory, seen.cluster, alter, at)
        opened = [n for n, b in after.items() if b.is_open and n not in seen.demoted]
        return Verdict(what, agreement, after, tuple(sorted(opened)))

    def _compare(
        self,
        terms: tuple[Ladder, str],
        seen: Snapshot,
        sides: Mapping[JobId, Arm],
        what: Outcomes,
        *,
        live: bool,
    ) -> list[tuple[str, Cause, float]]:
        """The canary's blocks that are decided now, each with the share that fared worse."""
        if terms != self._terms:
            # what was gathered under other terms, or by another model, is not compared
            ladder, _ = self._terms = terms
            self._slowdowns = defaultdict(list)
            size = block_jobs(ladder.fraction) if ladder.rung is Rung.CANARY else 0
            self._cohorts, self._size = Cohorts(size) if size else None, size
        if self._cohorts is None:
            return []
        for name in seen.demoted:
            self._slowdowns.pop(name, None)
        waits = self._cohorts.look(
            seen, sides, what.started, joining=live, touched=self._touched.units
        )
        found = [(partition, Cause.WAIT, share) for partition, share in waits]
        slower = [(s.partition, self._slower(s)) for s in what.started] if live else []
        return found + [(name, Cause.SLOWDOWN, s) for name, s in slower if s is not None]

    def _slower(self, job: Started) -> float | None:
        """The share of the block that this start completes, by bounded slowdown; None = none."""
        figure = job.planned_slowdown
        is_evidence = job.first and job.arm is not Arm.OTHER and job.unit not in self._touched.units
        if figure is None or not is_evidence:
            return None
        block = self._slowdowns[job.partition]
        block.append((job.user, job.arm, figure))
        if len(block) < self._size:
            return None
        del self._slowdowns[job.partition]
        if len({user for user, _, _ in block}) < FEWEST_USERS:
            return None
        return worse_share(
            [figure for _, arm, figure in block if arm is Arm.TREATED],
            [figure for _, arm, figure in block if arm is Arm.CONTROL],
        )


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
