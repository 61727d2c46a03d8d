"""Does it help? The waits of a canary's treated jobs beside those of its control, with an interval.

Who is treated was drawn by lot, so the lot itself says how far the two means may lie apart by
chance, however bursty the queue is (Neyman's variance, which is never too small for a lot). Every
job that came while we looked counts, also one that still waits: as long as it has waited so far.
One that was cancelled, or that anybody but us has changed or held, does not: a user could steer it.
Counting starts only, a policy that lets some wait for ever would look good. Treated jobs pass each
other only, but over time they may gain at the control's cost, so this is the direction of the
effect rather than its size with everybody treated (ADR 0010).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, variance
from typing import Final

from rltuned.daemon.claims import JobKey
from rltuned.daemon.outcomes import Arm, Watcher, unit_of
from rltuned.daemon.touched import Touched
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId

NORMAL: Final = 1.96
"""A 95 % interval lies so many standard errors around the mean."""
FEWEST: Final = 30
"""Jobs on each side below which no interval is given: means of waits are far from normal."""
MOST: Final = 100_000
"""Jobs that are kept in mind; the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What is known. Seconds; the interval and the difference are None while there is too little.

    Attributes:
        treated, control: jobs on each side.
        treated_s, control_s: their mean wait, so far for those that wait; None = there is none.
        difference_s: treated less control; negative = it helps.
        low_s, high_s: 95 % interval of the difference.
    """

    treated: int
    control: int
    treated_s: float | None = None
    control_s: float | None = None
    difference_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None

    @property
    def verdict(self) -> str:
        """In words, and never more than the figures say."""
        if self.low_s is None or self.high_s is None:
            return (
                f"too little to say: {self.treated} treated and {self.control} control jobs, "
                f"{FEWEST} of each are needed"
            )
        if self.high_s < 0:
            return "it helps: treated jobs wait less than their control"
        if self.low_s > 0:
            return "it harms: treated jobs wait longer than their control"
        return "not told apart from chance"


def estimate(treated: list[float], control: list[float]) -> Effect:
    """Compare two sides of a lot by their waits in seconds."""
    ours, theirs = (fmean(side) if side else None for side in (treated, control))
    found = Effect(len(treated), len(control), ours, theirs)
    if min(len(treated), len(control)) < FEWEST:
        return found
    difference = fmean(treated) - fmean(control)
    reach = NORMAL * sqrt(variance(treated) / len(treated) + variance(control) / len(control))
    return replace(
        found,
        difference_s=difference,
        low_s=difference - reach,
        high_s=difference + reach,
    )


class Waits:
    """Follows the jobs of a trial from look to look."""

    def __init__(self) -> None:
        self._watcher = Watcher()
        self._began: float | None = None
        self._waiting: dict[JobKey, tuple[Arm, float]] = {}
        self._done: dict[JobKey, tuple[Arm, float]] = {}
        self._now = 0.0
        self._touched = Touched()

    def look(self, seen: Snapshot, arms: Mapping[JobId, Arm], *, joining: bool = True) -> None:
        """Take in one look.

        Args:
            seen: the cluster now.
            arms: the side of every pending job.
            joining: whether new jobs join, because the treated are treated now.
        """
        started = self._watcher.look(seen, arms).started
        self._now = seen.taken_at
        self._touched.look(seen)
        for unit in self._waiting.keys() & self._touched.units:
            del self._waiting[unit]  # anybody but us has changed it: no evidence
        for start in started:
            if start.first and start.unit in self._waiting:
                arm, since = self._waiting.pop(start.unit)
                self._end(start.unit, arm, start.started_at - since)
        here = {unit_of(job) for job in seen.pending}
        for unit in self._waiting.keys() - here:
            del self._waiting[unit]  # cancelled, or ended between two looks: its wait is not known
        if self._began is None:
            self._began = seen.taken_at
        if joining:
            self._join(seen, arms, self._began)

    def _join(self, seen: Snapshot, arms: Mapping[JobId, Arm], began: float) -> None:
        known = self._waiting.keys() | self._done.keys() | self._touched.units
        for job in seen.pending:
            unit, arm = unit_of(job), arms.get(job.job_id, Arm.OTHER)
            if unit not in known and arm is not Arm.OTHER and job.waits_since >= began:
                self._waiting.setdefault(unit, (arm, job.waits_since))

    def _end(self, unit: JobKey, arm: Arm, wait_s: float) -> None:
        self._done[unit] = (arm, max(0.0, wait_s))
        if len(self._done) > MOST:
            del self._done[next(iter(self._done))]

    def effect(self) -> Effect:
        """What is known now."""
        so_far = [(arm, self._now - since) for arm, since in self._waiting.values()]
        waits = [*self._done.values(), *so_far]
        return estimate(
            [wait for arm, wait in waits if arm is Arm.TREATED],
            [wait for arm, wait in waits if arm is Arm.CONTROL],
        )
