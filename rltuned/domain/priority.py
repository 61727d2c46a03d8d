"""How Slurm turns the waiting of a job into its priority, as far as a delay depends on it."""

from dataclasses import dataclass, replace
from math import isclose
from typing import Final, Literal

PriorityKind = Literal["multifactor", "basic"]
HIGHEST_BASIC: Final = 4_294_901_759
"""The highest number that priority/basic gives a job, before its nice is taken off."""


@dataclass(frozen=True, slots=True)
class PrioritySystem:
    """The part of slurm.conf(5) that says what a second of waiting is worth: weights in points,
    times in seconds.

    ages: slurmctld counts age itself. priority/multifactor does so only with slurmdbd: without it
    PriorityWeightAge is ignored, although `scontrol show config` still prints it. max_age_s: an
    older job gains no more. fair_weight: 0 where fair share does not count. calc_period_s: how
    often age is counted again. site_factor_plugin: empty = no plugin sets site factors.
    """

    kind: PriorityKind = "basic"
    ages: bool = False
    age_weight: int = 0
    max_age_s: float = 7 * 86_400.0
    calc_period_s: float = 300.0
    fair_weight: int = 0
    site_factor_plugin: str = ""

    def __post_init__(self) -> None:
        least_s = min(self.max_age_s, self.calc_period_s)
        if min(self.age_weight, self.fair_weight) < 0 or not least_s > 0:
            raise ValueError(f"a priority system with impossible numbers: {self}")

    @property
    def slope(self) -> float:
        """Points that one second of waiting adds; 0 where age adds none."""
        return self.age_weight / self.max_age_s if self.ages else 0.0

    def age_s(self, waited_s: float) -> float:
        """Seconds of waiting that count."""
        return min(max(waited_s, 0.0), self.max_age_s)


@dataclass(frozen=True, slots=True)
class NeutralDelay:
    """The delay that a job without a site factor of rltuned stands for; Unix times. delay_s: in
    force, set at `since`. running_s: a running median of the delays since, until seen_at. slope: of
    the priority system, 0 = not known; sloped_at: when it last changed, 0 = it never did.
    """

    delay_s: float
    since: float
    running_s: float
    seen_at: float
    slope: float = 0.0
    sloped_at: float = 0.0

    def at_slope(self, slope: float, now: float, before: "NeutralDelay | None") -> "NeutralDelay":
        """The same, found where a second of waiting is worth `slope` points."""
        known = self if before is None else before
        if not slope or isclose(slope, known.slope):
            return replace(self, slope=known.slope, sloped_at=known.sloped_at)
        return replace(self, slope=slope, sloped_at=now if known.slope else known.sloped_at)
