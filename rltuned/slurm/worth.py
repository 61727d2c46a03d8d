"""What a site's priority weights are worth in hours of waiting, beside the longest delay. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rltuned.domain.cluster import Partition
from rltuned.domain.priority import PrioritySystem
from rltuned.slurm.judgement import Check, Status
from rltuned.slurm.priorities import Priorities
from rltuned.slurm.values import whole_numbers

_HOUR_S: Final = 3_600.0
COARSE_S: Final = 600.0
"""A point that is worth more waiting than this orders too coarsely."""
_NAME: Final = "order"


@dataclass(frozen=True, slots=True)
class Site:
    """What decides how far delays reach.

    Attributes:
        system: how slurmctld turns waiting into priority.
        priorities: its weights.
        partitions: with their priority factors.
        own_slope: points per second where slurmctld counts no age.
        max_delay_s: the longest delay that the settings allow.
        writes_priority: `Priority=` is written although multifactor runs.
        leaves_alone: jobs of some partitions, users, accounts or QOS are not ours.
    """

    system: PrioritySystem
    priorities: Priorities
    partitions: Sequence[Partition]
    own_slope: float
    max_delay_s: float
    writes_priority: bool = False
    leaves_alone: bool = False

    @property
    def slope(self) -> float:
        """Points that a second of delay takes; 0 = no delay can be written."""
        if self.system.ages:
            return self.system.slope
        return 0.0 if self.writes_priority else self.own_slope

    @property
    def reach(self) -> float:
        """Points that the longest delay takes."""
        return self.slope * self.max_delay_s

    def hours(self, points: float) -> str:
        """What so many points are worth."""
        return f"{points / self.slope / _HOUR_S:.3g} h"

    def weight(self, name: str) -> int:
        return sum(whole_numbers(self.priorities.weights.get(name, "0")))


def judge_order(site: Site) -> Iterator[Check]:
    """Whether delays can order this queue, and what they can cross."""
    if site.system.kind == "basic":
        yield _basic(site)
        return
    if site.system.site_factor_plugin and not site.writes_priority:
        yield Check(
            _NAME,
            Status.FAIL,
            f"{site.system.site_factor_plugin} sets site factors, so that no delay is written",
            "unset PrioritySiteFactorPlugin, or set write_mode = priority",
        )
        return
    if not site.slope:
        yield _flat(site)
        return
    yield Check(_NAME, Status.OK, worth(site))
    yield from _coarse(site)
    yield from _old(site)
    yield from _partition_step(site)
    yield from _qos_step(site)


def worth(site: Site) -> str:
    """The weights in hours of waiting."""
    if site.system.kind == "basic":
        return "priority/basic: a point is a minute of waiting"
    if not site.slope:
        return "waiting is worth no points"
    told = [
        f"{name} {site.hours(site.weight(name))}"
        for name in ("QOS", "FairShare", "Partition", "JobSize", "Assoc")
        if site.weight(name)
    ]
    weights = f"; full weights: {', '.join(told)}" if told else ""
    limit = f"; age grows for {site.system.max_age_s / _HOUR_S:.3g} h" if site.system.ages else ""
    return (
        f"the longest delay is {site.max_delay_s / _HOUR_S:.3g} h = {site.reach:.0f} points"
        f"{weights}{limit}"
    )


def _basic(site: Site) -> Check:
    if not site.leaves_alone:
        return Check(_NAME, Status.OK, worth(site))
    return Check(
        _NAME,
        Status.WARN,
        "under priority/basic a job that rltuned leaves alone stands behind every job that it "
        "writes, where they share nodes",
        "set PriorityType=priority/multifactor, or take SLA partitions and exclusions out of "
        "[scope]",
    )


def _flat(site: Site) -> Check:
    if site.system.ages:
        return Check(
            _NAME,
            Status.WARN,
            "PriorityWeightAge = 0: waiting is worth no points, so that no delay can be written",
            f"set PriorityWeightAge to {_fine_weight(site):.0f} or more",
        )
    return Check(
        _NAME,
        Status.WARN,
        "slurmctld counts age only with slurmdbd, so that no delay can be written as a priority",
        "set write_mode = auto",
    )


def _fine_weight(site: Site) -> float:
    """A PriorityWeightAge at which a point is worth COARSE_S."""
    return site.system.max_age_s / COARSE_S


def _coarse(site: Site) -> Iterator[Check]:
    point_s = 1.0 / site.slope
    if point_s <= COARSE_S:
        return
    yield Check(
        _NAME,
        Status.WARN,
        f"a point is worth {point_s / 60:.0f} minutes of waiting: too coarse to order by",
        f"multiply all PriorityWeight* by {point_s / COARSE_S:.0f} or more"
        if site.system.ages
        else "raise [order] points_per_hour to 6 or more",
    )


def _old(site: Site) -> Iterator[Check]:
    if not site.system.ages or site.system.max_age_s >= 2 * site.max_delay_s:
        return
    yield Check(
        _NAME,
        Status.WARN,
        f"age stops growing after {site.system.max_age_s / _HOUR_S:.3g} h (PriorityMaxAge), and a "
        f"delay may last {site.max_delay_s / _HOUR_S:.3g} h: old jobs lose their order",
        "set PriorityMaxAge to twice [order] max_delay_s or more, and scale PriorityWeightAge with "
        "it; or lower max_delay_s",
    )


def _partition_step(site: Site) -> Iterator[Check]:
    """The smallest difference that PriorityJobFactor makes between two partitions."""
    factors = sorted({p.priority_factor for p in site.partitions})
    weight = site.weight("Partition")
    if not weight or len(factors) < 2:  # noqa: PLR2004 - a difference needs two
        return
    step = weight * min(b - a for a, b in pairwise(factors)) / factors[-1]
    if step > site.reach:
        return
    yield Check(
        _NAME,
        Status.WARN,
        f"PriorityJobFactor parts two partitions by {step:.0f} points = {site.hours(step)} of "
        f"waiting: a delay of up to {site.max_delay_s / _HOUR_S:.3g} h can cross that",
        f"raise PriorityWeightPartition to {weight * site.reach / step:.0f}, or lower max_delay_s",
    )


def _qos_step(site: Site) -> Iterator[Check]:
    """The weight is the widest step that there can be; slurmdbd alone knows the others."""
    weight = site.weight("QOS")
    if not weight or weight > site.reach:
        return
    yield Check(
        _NAME,
        Status.WARN,
        f"PriorityWeightQOS is worth {site.hours(weight)} of waiting: a delay of up to "
        f"{site.max_delay_s / _HOUR_S:.3g} h can cross every QOS",
        f"raise PriorityWeightQOS above {site.reach:.0f}, or lower max_delay_s",
    )
