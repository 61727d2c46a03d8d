"""How long each job is asked to step back: the delay that a policy wishes, within two bounds.

The order is by virtual time: when a job became eligible, plus its delay D, less everything else
that Slurm weighs. Two bounds hold for every policy, rule or network:

- the clip: D <= clip x L x sqrt(size), L the time limit; a short job is never asked for long;
- max_delay: D <= max_delay_s, whatever its limit.

A job with a deadline has half of the slack that is left to it as a third bound. docs/adr/0011 says
what follows from the bounds, and what does not.
"""

from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from rltuned.core.features import UNLIMITED_AS_S, FloatArray, StateMatrix
from rltuned.domain.priority import NeutralDelay
from rltuned.errors import PolicyError

BoolArray = NDArray[np.bool_]

NO_LIMIT_S: Final = 2 * 86_400.0
"""The length that a job without a time limit counts as: about four times the run time that nine of
ten jobs of the public traces stay below."""
NEUTRAL_FOR_S: Final = 86_400.0
"""A neutral delay stays at least so long."""
NEUTRAL_OVER_S: Final = 7 * 86_400.0
"""Time constant of the queue's running median: nights and bursts move no numbers."""
NEUTRAL_OFF: Final = 0.25
"""And until the running median is off by this share of it."""
NEUTRAL_LOOK_S: Final = 3_600.0
"""How often the running median is brought up to date."""


class Policy(Protocol):
    """What orders the queue."""

    @property
    def name(self) -> str:
        """As it is given on the command line and shown in logs and metrics."""
        ...

    def score(self, matrix: StateMatrix) -> FloatArray:
        """(n,) one finite number per row, higher = sooner: the order without bounds. Pure."""
        ...

    def delay_s(self, matrix: StateMatrix) -> FloatArray:
        """(n,) seconds >= 0 that each job is asked to step back at stretch 1. Pure."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """What turns a wish into a delay: at most clip x limit x sqrt(size), and max_delay_s."""

    stretch: float = 0.1
    clip: float = 1.0
    max_delay_s: float = 7 * 86_400.0

    def __post_init__(self) -> None:
        for name in ("stretch", "clip", "max_delay_s"):
            value = getattr(self, name)
            if not 0 <= value < np.inf:
                raise ValueError(f"{name} {value} is not a number from 0 on")


DEFAULT: Final = Order()
"""What the daemon runs with unless its settings say otherwise."""


@dataclass(frozen=True, slots=True)
class Delays:
    """(n,) seconds each. wished: by the policy, stretched; upper: the bound; delay: within it."""

    wished_s: FloatArray
    upper_s: FloatArray
    delay_s: FloatArray

    def within(self, room_s: FloatArray | None) -> "Delays":
        """None longer than Slurm's numbers have room for: (n,) seconds, None = any."""
        if room_s is None:
            return self
        return replace(self, delay_s=np.minimum(self.delay_s, np.maximum(room_s, 0.0)))

    @property
    def clipped(self) -> int:
        """How many jobs a bound keeps from what the policy wished."""
        return int((self.wished_s > self.upper_s).sum())


def length_s(limit_s: FloatArray) -> FloatArray:
    """Finite time limits; a job without one counts as NO_LIMIT_S long."""
    return np.where(limit_s >= UNLIMITED_AS_S, NO_LIMIT_S, limit_s)


def upper_bounds_s(limit_s: FloatArray, size: FloatArray, order: Order) -> FloatArray:
    """(n,) the longest delay that any policy may ask of each job. limit_s: UNLIMITED_AS_S where
    there is none. size: (n,) GPUs, or what stands for them; at least 1.
    """
    clip_s = order.clip * length_s(limit_s) * np.sqrt(size)
    bounds: FloatArray = np.minimum(clip_s, order.max_delay_s)
    return bounds


def bounded(policy: Policy, matrix: StateMatrix, order: Order) -> Delays:
    """The delays that a policy wishes, within the bounds. Raises PolicyError."""
    wished_s = order.stretch * checked_delays(policy, matrix)
    upper_s = upper_bounds_s(matrix.limit_s, matrix.size, order)
    slack_s = np.maximum(matrix.slack_s, 0.0)
    # half of the bound is asked for, so that the delay is written again only when the slack halves
    delay_s = np.minimum(np.minimum(wished_s, upper_s), slack_s / 4)
    return Delays(wished_s, np.minimum(upper_s, slack_s / 2), delay_s)


def checked_delays(policy: Policy, matrix: StateMatrix) -> FloatArray:
    """The policy's delays: one finite number from 0 on per job. Raises PolicyError."""
    found = np.asarray(policy.delay_s(matrix), dtype=np.float64)
    if found.shape != (len(matrix),):
        raise PolicyError(
            f"policy {policy.name} gave delays of shape {found.shape} for {len(matrix)} jobs"
        )
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        bad = matrix.jobs[int(np.flatnonzero(wrong)[0])]
        raise PolicyError(f"policy {policy.name} gave job {bad.job_id} no finite delay from 0 on")
    return found


def next_neutral(
    before: NeutralDelay | None, delay_s: FloatArray, now: float
) -> NeutralDelay | None:
    """The neutral delay after one more cycle.

    It is the median of the first queue that is seen. From then on a running median follows the
    queue with a time constant of a week, and takes its place when it is off by a quarter, at most
    once a day: a change moves every number that rltuned has written. before: None = this is the
    first cycle. delay_s: (n,) as asked for, since the neutral delay is room itself.
    """
    if not len(delay_s):
        return before
    if before is None:
        median_s = float(np.median(delay_s))
        return NeutralDelay(median_s, now, median_s, now)
    passed_s = now - before.seen_at
    if 0 <= passed_s < NEUTRAL_LOOK_S:
        return before
    share = min(max(passed_s, 0.0) / NEUTRAL_OVER_S, 1.0)
    running_s = before.running_s + share * (float(np.median(delay_s)) - before.running_s)
    off = abs(running_s - before.delay_s) > NEUTRAL_OFF * before.delay_s
    since = min(before.since, now)  # the clock was ahead then
    if off and now - since >= NEUTRAL_FOR_S:
        return NeutralDelay(running_s, now, running_s, now)
    return replace(before, since=since, running_s=running_s, seen_at=now)
