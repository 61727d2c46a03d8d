"""The keys of the guards and of the trust ladder."""

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from rltuned.core.evidence import MAX_MARGIN
from rltuned.core.guards import Guards
from rltuned.core.ladder import Ladder, Rung
from rltuned.core.select import Rules
from rltuned.core.starvation import BOUND_S, FACTOR, Bound
from rltuned.settings.key import Keys, Names, key


class GuardKeys(Keys):
    """How far rltuned may go from what Slurm would do."""

    max_displacement: int = key(
        500,
        "places",
        "A job is put at most so many places before or behind where Slurm had it, counted among "
        "the jobs that rltuned orders.",
        ge=0,
        le=1_000_000,
    )
    user_floor: float = key(
        0.25,
        "",
        "Of the jobs that a user has among the first user_head by Slurm's own order, the first "
        "share, rounded up, stay among them, so no user loses more than the rest. 0 = no floor.",
        ge=0.0,
        le=1.0,
    )
    user_head: int = key(
        32,
        "places",
        "The head of the queue that user_floor looks at.",
        ge=0,
        le=100_000,
    )
    max_changes_per_job_hour: int = key(
        30,
        "changes",
        "A job that was written to so often within an hour keeps the number that it has until the "
        "hour is over; giving back is always allowed. Counted in the journal, so a restart does "
        "not reset it.",
        ge=1,
        le=100_000,
    )

    starvation_bound_s: float = key(
        BOUND_S,
        "seconds",
        "A job that has waited longer than this, and longer than starvation_factor times what "
        "jobs submitted before it are seen to make it wait, stands before all that were "
        "submitted later until it starts, whatever the policy says.",
        ge=0.0,
        le=31_536_000.0,
    )
    starvation_factor: float = key(
        FACTOR,
        "",
        "See starvation_bound_s. 1 = put nobody before a job that has waited starvation_bound_s.",
        ge=1.0,
        le=1_000.0,
    )

    def rules(self, scope: Rules) -> Rules:
        return replace(scope, max_writes_per_hour=self.max_changes_per_job_hour)

    def starvation(self) -> Bound:
        return Bound(self.starvation_bound_s, self.starvation_factor)

    def guards(self) -> Guards:
        return Guards(self.max_displacement, self.user_head, self.user_floor)


class LadderKeys(Keys):
    """How far rltuned is trusted."""

    stage: Literal["observe", "shadow", "canary", "full"] = key(
        "observe",
        "",
        "observe: look, and publish how jobs fare. shadow: decide as well, log it, and compare it "
        "with what Slurm does. canary: write, for a fraction of the jobs. full: write, for all. "
        "Only a person goes up; docs/operations.md says when.",
    )
    canary_fraction: float = key(
        0.1,
        "",
        "Part of the jobs that a canary treats, drawn by a hash of job id and submit time, arrays "
        "whole. The others are its control and are never touched.",
        gt=0.0,
        le=0.9,
    )
    canary_partitions: Names = key(
        [],
        "",
        "A canary treats jobs of these partitions only; empty = of all that rltuned manages.",
    )
    canary_salt: str = key(
        "",
        "",
        "Any text; another one draws again who is treated. Empty = a secret that is drawn at the "
        "first canary and kept in state_dir (canary.salt), or in ha.lease_dir where there is "
        "one: no user can tell who is treated.",
    )
    canary_margin: float = key(
        Ladder().margin,
        "",
        "By how much the chance that a treated job fares worse than one of its control may be "
        "above one half; evidence of more opens the partition's circuit breaker.",
        ge=0.0,
        le=MAX_MARGIN,
    )
    max_errors: int = key(
        Ladder().max_errors,
        "cycles",
        "So many cycles in a row in which Slurm does not take most of the changes to a partition "
        "open its circuit breaker.",
        ge=1,
        le=1_000,
    )

    def ladder(self) -> Ladder:
        return Ladder(
            Rung(self.stage),
            self.canary_fraction,
            self.canary_salt,
            self.canary_margin,
            self.max_errors,
        )

    def rules(self, scope: Rules) -> Rules:
        """The scope, narrowed to a canary's while there is one."""
        canary = self.ladder().canary
        if canary is None:
            return scope
        only = frozenset(self.canary_partitions) or scope.partitions
        return replace(scope, partitions=only, canary=canary)


def check_canary(ladder: LadderKeys, managed: Collection[str], sla: Collection[str]) -> None:
    """Refuse a canary in partitions that are not ours.

    Raises:
        ValueError: names them.
    """
    outside = {p for p in ladder.canary_partitions if p in sla or (managed and p not in managed)}
    if outside:
        raise ValueError(
            f"ladder.canary_partitions: {', '.join(sorted(outside))} is not in scope.partitions, "
            "or is an SLA partition"
        )
