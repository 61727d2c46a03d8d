"""The keys of the trust ladder."""

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from rltuned.core.evidence import MAX_MARGIN
from rltuned.core.ladder import Ladder, Rung
from rltuned.core.select import Rules
from rltuned.settings.key import Keys, Names, key


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
