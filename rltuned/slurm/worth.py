"""What a site's priority weights are worth in hours of waiting, beside the longest delay. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from typing import Final

from rltuned.core.numbers import Shortage
from rltuned.core.slurm_plan import Parameters
from rltuned.domain.cluster import Partition
from rltuned.domain.priority import PrioritySystem
from rltuned.slurm.config_checks import Check, Status
from rltuned.slurm.site import Priorities
from rltuned.slurm.values import whole_numbers
from rltuned.text import hours

COARSE_S: Final = 600.0
"""A point that is worth more waiting than this orders too coarsely."""
MAX_WEIGHT: Final = 2**32 - 1
"""Slurm takes no higher PriorityWeight*."""
_NAME: Final = "order"
_HOUR_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Site:
    """What decides how far delays reach. own_slope: points per second where slurmctld counts no
    age. writes_priority: `Priority=` is written although multifactor runs. leaves_alone: some jobs
    are not rltuned's.

    qos: every QOS and its priority; empty = not known; used_qos: of the jobs that wait. shares: the
    different fair-share factors of the jobs that wait, in order. pending: how many wait.
    """

    system: PrioritySystem
    priorities: Priorities
    partitions: Sequence[Partition]
    own_slope: float
    max_delay_s: float
    writes_priority: bool = False
    leaves_alone: bool = False
    qos: Mapping[str, int] = field(default_factory=dict)
    used_qos: frozenset[str] = frozenset()
    shares: tuple[float, ...] = ()
    pending: int = 0

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
        return hours(points / self.slope)

    def unit(self, name: str, largest: int) -> int:
        """What Slurm divides such priorities by: the largest, unless flags forbid it (22.05 shows
        each NO_NORMAL_* as NO_NORMAL_ALL).
        """
        return 1 if f"NO_NORMAL_{name}" in self.priorities.flags else largest

    @property
    def least(self) -> str:
        return "at least " if "NO_NORMAL_ALL" in self.priorities.flags else ""

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
    for judge in (_coarse, _old, _partition_step, _qos_step, _depth, _tiers, _room):
        yield from judge(site)


def _warn(detail: str, remedy: str) -> Check:
    return Check(_NAME, Status.WARN, detail, remedy)


def worth(site: Site) -> str:
    """The weights in hours of waiting."""
    if site.system.kind == "basic":
        return (
            "priority/basic: a point is a minute of waiting, and a job that is not written stands "
            "behind every job that is"
        )
    if not site.slope:
        return "waiting is worth no points"
    listed = [
        f"{name} {site.hours(site.weight(name))}"
        for name in ("QOS", "FairShare", "Partition", "JobSize", "Assoc")
        if site.weight(name) and name not in site.priorities.dead
    ]
    weights = f"; full weights: {', '.join(listed)}" if listed else ""
    steps = "".join(f"; {step}" for step in (_qos_text(site), _fair_text(site)) if step)
    limit = f"; age grows for {hours(site.system.max_age_s)}" if site.system.ages else ""
    return (
        f"the longest delay is {hours(site.max_delay_s)} = {site.reach:.0f} points{_own_text(site)}"
        f"{weights}{steps}{limit}"
    )


def _own_text(site: Site) -> str:
    """Whose points they are, where PriorityWeightAge does not say."""
    if site.system.ages:
        return ""
    per_hour = f"{site.slope * _HOUR_S:g} an hour"
    return f", {per_hour}: slurmctld counts no age without slurmdbd"


def _basic(site: Site) -> Check:
    if not site.leaves_alone:
        return Check(_NAME, Status.OK, worth(site))
    return _warn(
        "under priority/basic a job that rltuned leaves alone stands behind every job that it "
        "writes, where they share nodes",
        "set PriorityType=priority/multifactor, or take SLA partitions and exclusions out of "
        "[scope]",
    )


def _flat(site: Site) -> Check:
    if site.system.ages:
        return _warn(
            "PriorityWeightAge = 0: waiting is worth no points, so that no delay can be written",
            f"set PriorityWeightAge to {ceil(site.system.max_age_s / COARSE_S)} or more",
        )
    return _warn(
        "slurmctld counts age only with slurmdbd, so that no delay can be written as a priority",
        "set write_mode = auto",
    )


def _coarse(site: Site) -> Iterator[Check]:
    point_s = 1.0 / site.slope
    if point_s <= COARSE_S or not site.system.ages:
        return
    yield _warn(
        f"a point is worth {point_s / 60:.0f} minutes of waiting: too coarse to order by",
        f"multiply all PriorityWeight* by {ceil(point_s / COARSE_S)} or more",
    )


def _old(site: Site) -> Iterator[Check]:
    if not site.system.ages or site.system.max_age_s >= 2 * site.max_delay_s:
        return
    yield _warn(
        f"age stops growing after {hours(site.system.max_age_s)} (PriorityMaxAge), and a "
        f"delay may last {hours(site.max_delay_s)}: old jobs lose their order",
        "set PriorityMaxAge to twice [order] max_delay_s or more, and scale PriorityWeightAge with "
        "it; or lower max_delay_s",
    )


def _partition_step(site: Site) -> Iterator[Check]:
    """The smallest difference that PriorityJobFactor makes between two partitions."""
    factors = sorted({p.priority_factor for p in site.partitions})
    weight = site.weight("Partition")
    if not weight or len(factors) < 2:  # noqa: PLR2004 - a difference needs two
        return
    unit = site.unit("PART", factors[-1])
    step = weight * min(b - a for a, b in pairwise(factors)) / unit
    if step > site.reach:
        return
    yield _warn(
        f"PriorityJobFactor parts two partitions by {step:.0f} points = {site.hours(step)} of "
        f"waiting: a delay of up to {hours(site.max_delay_s)} can cross that",
        f"raise PriorityWeightPartition above {ceil(weight * site.reach / step)}, or lower "
        "max_delay_s",
    )


def qos_step(site: Site) -> tuple[float, str, str] | None:
    """The smallest gap between two QOS in use (else of all), and the two; None = none."""
    weight, used = site.weight("QOS"), site.used_qos & site.qos.keys()
    chosen = used if len({site.qos[name] for name in used}) > 1 else site.qos.keys()
    by_points = {site.qos[name]: name for name in sorted(chosen)}
    points = sorted(by_points)
    if not weight or len(points) < 2:  # noqa: PLR2004 - a difference needs two
        return None
    unit = site.unit("QOS", max(site.qos.values()))
    low, high = min(pairwise(points), key=lambda two: two[1] - two[0])
    return weight * (high - low) / unit, by_points[low], by_points[high]


def _qos_text(site: Site) -> str:
    step = qos_step(site)
    return f"QOS {step[1]} to {step[2]} {site.least}{site.hours(step[0])}" if step else ""


def _fair_text(site: Site) -> str:
    """What fair share weighs between the jobs that wait now."""
    weight, shares = site.weight("FairShare"), site.shares
    if not weight or len(shares) < 2:  # noqa: PLR2004 - a difference needs two
        return ""
    spread = weight * (shares[-1] - shares[0])
    step = weight * min(b - a for a, b in pairwise(shares))
    text = f"fair share parts the users who wait by up to {site.hours(spread)}, at least "
    mostly = ", so that delays mostly order the jobs of one user" if step > site.reach else ""
    return f"{text}{site.hours(step)}{mostly}"


def _qos_step(site: Site) -> Iterator[Check]:
    """Without slurmdbd's answer the weight is known, which is the widest step that there can be."""
    weight, step = site.weight("QOS"), qos_step(site)
    points = step[0] if step else weight
    if not weight or points > site.reach or (site.qos and step is None):
        return
    which = f"QOS {step[1]} and {step[2]} lie {site.least}" if step else "the QOS lie at most "
    yield _warn(
        f"{which}{points:.0f} points = {site.hours(points)} of waiting apart: a delay of up to "
        f"{hours(site.max_delay_s)} can cross that",
        f"raise PriorityWeightQOS above {ceil(weight * site.reach / points)}, or lower max_delay_s "
        f"below {points / site.slope:.0f}",
    )


def _depth(site: Site) -> Iterator[Check]:
    """A wide job that is never looked at gets no reservation, whatever its number."""
    text = site.priorities.scheduler.get("bf_max_job_test", "")
    looks = int(text) if text.isdecimal() else Parameters().bf_max_job_test
    if site.pending > looks:
        yield _warn(
            f"{site.pending} jobs wait and bf_max_job_test={looks}: jobs that stand further back "
            "are not looked at, so that wide ones wait longer than their bound suggests",
            "raise bf_max_job_test in SchedulerParameters, as far as slurmctld has time for it",
        )


def _tiers(site: Site) -> Iterator[Check]:
    """What Slurm looks at before any number."""
    tiers = {p.name: p.priority_tier for p in site.partitions}
    if len(set(tiers.values())) > 1:
        text = ", ".join(f"{name} {tier}" for name, tier in sorted(tiers.items()))
        yield Check(
            _NAME, Status.OK, f"PriorityTier goes before every number, a delay's too: {text}"
        )


def _room(site: Site) -> Iterator[Check]:
    """Whether the least that slurm.conf gives a new job has room for the longest delay."""
    weight, factors = site.weight("Partition"), [p.priority_factor for p in site.partitions]
    share = min(factors, default=0) / max(1, site.unit("PART", max(factors, default=1)))
    least = weight * share
    if site.qos:
        unit = max(1, site.unit("QOS", max(site.qos.values())))
        least += site.weight("QOS") * min(site.qos.values()) / unit
    lacking = ceil(site.reach - least) + 1
    if lacking <= 0:
        return
    enough = ceil(weight + lacking / share) if share else ceil(weight + lacking)
    remedy = (
        f"set PriorityWeightPartition={enough} in slurm.conf, with PriorityJobFactor=1 or more in "
        "every partition; or lower [order] max_delay_s"
    )
    if enough > MAX_WEIGHT:
        remedy = "bring all PriorityJobFactor nearer to each other, or lower [order] max_delay_s"
    yield _warn(
        f"the longest delay takes {site.reach:.0f} points, and slurm.conf gives a new job as few "
        f"as {least:.0f}: in a long queue delays are cut and jobs tie at the lowest priority",
        remedy,
    )


def judge_room(short: Shortage, ranked: int) -> Iterator[Check]:
    """Whether the priorities of now have room for the delays of now."""
    if short.jobs:
        yield _warn(
            f"{short.jobs} of {ranked} pending jobs have priorities too low for their delays, "
            f"which are shortened to as little as {hours(short.least_s)}",
            short.remedy,
        )
