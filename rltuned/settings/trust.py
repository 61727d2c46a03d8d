"""The keys of the trust ladder."""

from collections.abc import Collection
from dataclasses import replace
from typing import Literal, Self

from pydantic import model_validator

from rltuned.core.evidence import MAX_MARGIN
from rltuned.core.ladder import Ladder, Rung
from rltuned.core.select import Scope
from rltuned.core.switchback import MOST_APART_S, Switchback
from rltuned.settings.key import Keys, Names, key


class LadderKeys(Keys):
    """How far rltuned is trusted."""

    stage: Literal["observe", "shadow", "canary", "full"] = key(
        "observe",
        "",
        "observe: read and publish waits. shadow: also decide, log it, and compare it "
        "with what Slurm does. canary: write, in blocks of time that alternate with blocks without "
        "delays. full: write. Only a person goes up; docs/rollout.md says when.",
    )
    canary_block_s: float = key(
        Switchback().block_s,
        "seconds",
        "Length of a block. Each partition has pairs of an on block (delays are written) and an "
        "off block (they are withdrawn); a coin decides which comes first.",
        ge=600.0,
        le=604_800.0,
    )
    canary_washout_s: float = key(
        Switchback().washout_s,
        "seconds",
        "The first part of each block, which is no evidence, because the queue still shows the "
        "effect of the block before; less than canary_block_s.",
        ge=0.0,
        le=604_800.0,
    )
    canary_partitions: Names = key(
        [],
        "",
        "A canary writes in these partitions only; empty = in all that rltuned manages.",
    )
    canary_salt: str = key(
        "",
        "",
        "Any text: the secret of the coin; another one draws the blocks again. Empty = a random "
        "secret in the journal, so that no user can predict a pair of blocks.",
    )
    canary_margin: float = key(
        Ladder().margin,
        "",
        "Tolerated excess: waits may be longer in on blocks than in off blocks by this share. "
        "Strong evidence of a larger excess opens the partition's circuit breaker.",
        ge=0.0,
        le=MAX_MARGIN,
    )
    full_off_share: float = key(
        0.0,
        "",
        "At stage full, the share of the time for off blocks, so that the effect of delays is "
        "still measured and the breaker keeps watching. 0 = none.",
        ge=0.0,
        le=0.5,
    )
    max_errors: int = key(
        Ladder().max_errors,
        "cycles",
        "Number of cycles in a row in which Slurm refuses most of the changes to a partition "
        "before its circuit breaker opens.",
        ge=1,
        le=1_000,
    )

    def ladder(self) -> Ladder:
        return Ladder(Rung(self.stage), self.canary_margin, self.max_errors)

    def switchback(self) -> Switchback | None:
        """When delays are on; None = always, or never."""
        share = {"canary": 0.5, "full": self.full_off_share}.get(self.stage, 0.0)
        if not share:
            return None
        return Switchback(self.canary_salt, self.canary_block_s, self.canary_washout_s, share)

    def rules(self, scope: Scope) -> Scope:
        """The scope with the switchback, narrowed to a canary's partitions while there is one."""
        rules = replace(scope, switchback=self.switchback())
        if self.stage != "canary":
            return rules
        return replace(rules, partitions=frozenset(self.canary_partitions) or scope.partitions)

    @model_validator(mode="after")
    def _blocks_outlast_the_washout(self) -> Self:
        if self.canary_washout_s >= self.canary_block_s:
            raise ValueError("canary_washout_s must be less than canary_block_s")
        return self


def check_canary(
    ladder: LadderKeys, managed: Collection[str], sla: Collection[str], interval_s: float
) -> None:
    """Refuse a canary in partitions that are not ours, and cycles too far apart for its blocks.

    Raises:
        ValueError: names them.
    """
    if ladder.switchback() is not None and interval_s > MOST_APART_S:
        raise ValueError(
            f"daemon.interval_s: {interval_s:g} s is too long for a switchback, "
            f"at most {MOST_APART_S:g} s"
        )
    outside = {p for p in ladder.canary_partitions if p in sla or (managed and p not in managed)}
    if outside:
        raise ValueError(
            f"ladder.canary_partitions: {', '.join(sorted(outside))} is not in scope.partitions, "
            "or is an SLA partition"
        )
