"""When the next cycle starts: on the grid of the interval, rarer when Slurm is silent or busy."""

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rltuned.daemon.load import Throttle, Weighed
from rltuned.daemon.report import CycleReport, Skip
from rltuned.daemon.wiring import Rig
from rltuned.domain.plan import Clock

MOST_INTERVALS: Final = 10.0
"""The longest pause, while Slurm does not answer or is busy."""


class Pace:
    """Keeps the time of the next cycle, and what makes it later."""

    def __init__(self, clock: Clock) -> None:
        self.due = clock.monotonic()
        self._clock = clock
        self._throttle = Throttle()
        self._silences = 0  # how often in a row Slurm did not answer

    def weigh(self, rig: Rig) -> Weighed | None:
        """Ask how busy slurmctld is; None = it is not asked."""
        if rig.gauge is None:
            return None
        return self._throttle.weigh(rig.gauge, rig.bounds, MOST_INTERVALS)

    def backoff_s(self, rig: Rig, skip: Skip | None) -> float | None:
        """The pause after a cycle that ended so: one interval, doubling up to the cap; None = the
        ordinary schedule. Once per cycle: it counts the silences.
        """
        self._silences = self._silences + 1 if skip is Skip.BACKEND else 0
        if not self._silences:
            return None
        # an exponent beyond 32 only overflows; the cap is far below
        return rig.interval_s * min(MOST_INTERVALS, 2.0 ** min(self._silences - 1, 32))

    def after(self, report: CycleReport) -> None:
        """Set when the next cycle starts; late ones are left out."""
        now = self._clock.monotonic()
        if report.backoff_s is not None:
            self.due = now + report.backoff_s
            return
        step_s = report.interval_s * self._throttle.stretch
        self.due += step_s * max(1, math.ceil((now - self.due) / step_s))

    def at_most(self, interval_s: float) -> None:
        """Start within one interval from now: settings were loaded that may have shortened it."""
        self.due = min(self.due, self._clock.monotonic() + interval_s)

    @property
    def left_s(self) -> float:
        """Seconds until the next cycle; not positive = now."""
        return self.due - self._clock.monotonic()


# -- When Python's search for reference cycles rests ----------------------------------------------


@contextmanager
def uncollected() -> Iterator[None]:
    """Python's search for reference cycles rests meanwhile; afterwards it is as before.

    A cycle of a large queue makes millions of small objects that refer to each other in one
    direction only, so counting references frees them all. The search walks through them again and
    again while they are made: with 50,000 jobs it took two thirds of a decision.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
