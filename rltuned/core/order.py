"""How much later others may become eligible and still overtake a job: its delay, within bounds.

The order is by virtual time: when a job became eligible, plus its delay D, less everything else
that Slurm weighs. A policy asks for a delay of two parts, one in the unit of the job and one in
that of the queue (core/backlog has the words):

    D = own x (own seconds) + share x B x (place)

Two bounds hold for every policy, rule, network or plug-in:

- the clip: D <= clip x L x sqrt(m) + share x B, so that a short job in a short queue is never asked
  for long;
- max_delay: D <= max_delay_s, whatever its limit and the queue.

Three kinds of job are measured against one without a number, see `by_neutral`. docs/adr/0011 says
what follows from the bounds, and what does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rltuned.core.backlog import median_of_users
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.pools import Pools
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import NeutralDelay
from rltuned.errors import PolicyError

BoolArray = NDArray[np.bool_]

NEUTRAL_FOR_S: Final = 86_400.0
"""A neutral delay stays at least so long."""
NEUTRAL_OVER_S: Final = 7 * 86_400.0
"""Time constant of the queue's running median: nights and bursts move no numbers."""
NEUTRAL_OFF: Final = 0.25
"""And until the running median is off by this share of it."""
NEUTRAL_LOOK_S: Final = 3_600.0
"""How often the running median is brought up to date."""


class Wish(NamedTuple):
    """(n,) each, finite and from 0 on. own_s: seconds, of which `own` is asked. place: times the
    share of the backlog; that of a rule is a place in the queue, from 0 to 1.
    """

    own_s: FloatArray
    place: FloatArray


class Policy(Protocol):
    """What orders the queue."""

    @property
    def name(self) -> str:
        """As it is given on the command line and shown in logs and metrics."""
        ...

    @property
    def trust(self) -> float | None:
        """How much of its corrections of the rule counts, 0 to 1; None = it corrects no rule."""
        ...

    def score(self, matrix: StateMatrix) -> FloatArray:
        """(n,) one finite number per row, higher = sooner: the order without bounds. Pure."""
        ...

    def wish(self, matrix: StateMatrix) -> "Wish":
        """What it asks of each job. Pure."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """What turns a wish into a delay. own: part of a job's own seconds; share: of the backlog;
    clip, max_delay_s: the bounds.
    """

    own: float = 0.1
    share: float = 0.75
    clip: float = 1.0
    max_delay_s: float = 7 * 86_400.0

    def __post_init__(self) -> None:
        for name in ("own", "share", "clip", "max_delay_s"):
            value = getattr(self, name)
            if not 0 <= value < np.inf:
                raise ValueError(f"{name} {value} is not a number from 0 on")


DEFAULT: Final = Order()
"""What the daemon runs with unless its settings say otherwise."""


class Bound(StrEnum):
    """What keeps a delay from what the policy wishes."""

    CLIP = "clip"
    MAX_DELAY = "max_delay"
    DEADLINE = "deadline"
    HETEROGENEOUS = "heterogeneous"
    SCOPE = "scope"
    ROOM = "room"


@dataclass(frozen=True, slots=True)
class Delays:
    """(n,) seconds each. own, queue: the two parts that the policy wishes; upper: the bound; delay:
    within it. bounds: which bound that is, an array for each kind that is ever the tightest.
    """

    own_s: FloatArray
    queue_s: FloatArray
    upper_s: FloatArray
    delay_s: FloatArray
    bounds: Mapping[Bound, BoolArray] = field(default_factory=dict)

    @property
    def wished_s(self) -> FloatArray:
        return self.own_s + self.queue_s

    def within(self, room_s: FloatArray | None) -> "Delays":
        """None longer than Slurm's numbers have room for: (n,) seconds, None = any."""
        if room_s is None:
            return self
        room_s = np.maximum(room_s, 0.0)
        bounds = {**self.bounds, Bound.ROOM: room_s < self.delay_s}
        return replace(self, delay_s=np.minimum(self.delay_s, room_s), bounds=bounds)

    def bound_on(self, row: int) -> Bound | None:
        """What keeps one job's delay from the wish; None = nothing does."""
        held = [bound for bound, rows in self.bounds.items() if rows[row]]
        return held[-1] if held else None

    def where(self, kept: BoolArray) -> "Delays":
        """Without the wishes and delays of the other jobs; their bounds stay."""
        own_s, queue_s, delay_s = (
            np.where(kept, s, 0.0) for s in (self.own_s, self.queue_s, self.delay_s)
        )
        bounds = {bound: rows & kept for bound, rows in self.bounds.items()}
        return replace(self, own_s=own_s, queue_s=queue_s, delay_s=delay_s, bounds=bounds)

    @property
    def clipped(self) -> int:
        """How many jobs a bound keeps from what the policy wished."""
        return int((self.wished_s > self.upper_s).sum())


# Promises: classes of jobs that never step back. docs/adr/0022 argues why.


ClassKey = Literal["partition", "qos", "account"]


@dataclass(frozen=True, slots=True)
class SlaClass:
    """A class of jobs by key and value, and what it is promised. A job of several partitions is in
    none that is named by one. max_wait_s: from when a job is eligible.
    """

    key: ClassKey
    value: str
    max_wait_s: float

    def __post_init__(self) -> None:
        if not self.max_wait_s > 0:
            raise ValueError(f"a class with impossible numbers: {self}")

    @property
    def name(self) -> str:
        """As metrics and sentences have it."""
        return f"{self.key}={self.value}"

    def covers(self, partitions: Sequence[str], qos: str, account: str) -> bool:
        if self.key == "partition":
            return list(partitions) == [self.value]
        return self.value == (qos if self.key == "qos" else account)


def class_of(job: PendingJob, classes: Sequence[SlaClass]) -> SlaClass | None:
    """The first class that a job is of; None = none."""
    return next((c for c in classes if c.covers(job.partitions, job.qos, job.account)), None)


def clip_s(length_s: FloatArray, size: FloatArray, order: Order) -> FloatArray:
    """(n,) the part of the bound that is in the unit of the job. size: (n,) at least 1."""
    found: FloatArray = order.clip * length_s * np.sqrt(size)
    return found


def upper_bounds_s(matrix: StateMatrix, order: Order) -> FloatArray:
    """(n,) the longest delay that any policy may ask of each job."""
    bound_s = clip_s(matrix.length_s, matrix.size, order) + order.share * matrix.backlog_s
    bounds: FloatArray = np.minimum(bound_s, order.max_delay_s)
    return bounds


def bounded(
    policy: Policy, matrix: StateMatrix, order: Order, classes: Sequence[SlaClass | None] = ()
) -> Delays:
    """The delays that a policy wishes, within the bounds; 0, and so is the bound, of jobs of a
    class. classes: of each job; empty = none has one. Raises PolicyError.
    """
    wish = _checked(policy, matrix)
    own_s, queue_s = order.own * wish.own_s, order.share * matrix.backlog_s * wish.place
    upper_s = upper_bounds_s(matrix, order)
    wished_s, is_long = own_s + queue_s, upper_s == order.max_delay_s
    bounds = {Bound.CLIP: (wished_s > upper_s) & ~is_long, Bound.MAX_DELAY: wished_s > upper_s}
    bounds[Bound.MAX_DELAY] &= is_long
    delays = Delays(own_s, queue_s, upper_s, np.minimum(wished_s, upper_s), bounds)
    if not any(classes):
        return delays
    plain = np.array([one is None for one in classes], dtype=bool)
    return replace(delays.where(plain), upper_s=np.where(plain, upper_s, 0.0))


def by_neutral(
    delays: Delays,
    matrix: StateMatrix,
    neutral_s: float,
    astride: Sequence[bool] = (),
    promised: Sequence[bool] = (),
) -> Delays:
    """The delays, with those measured against neutral_s, that of a job without a number. promised:
    jobs of a class, whose delay stays 0; empty = none.

    A job that has waited as long as its deadline still lets it wait stands no later than that:
    rltuned makes no job miss its deadline that Slurm's own order would start in time. A deadline
    gains nothing before half of the time that it leaves has passed, and then it gives Slurm's own
    place and no better one. One that can no longer be met gains nothing.

    A part of a heterogeneous job stands no earlier than that: its parts start together, so what
    would bring one forward is not known, and none may pay to be one.
    """
    is_near = (matrix.slack_s >= 0.0) & (matrix.slack_s <= matrix.wait_s)
    is_part = np.array([job.het_job_id is not None for job in matrix.jobs], dtype=bool)
    late = is_near & (neutral_s < delays.delay_s)
    is_astride = ~is_part & (np.array(astride, dtype=bool) if len(astride) else False)
    sooner = neutral_s > delays.delay_s
    if len(promised):
        sooner &= ~np.array(promised, dtype=bool)
    part, across = is_part & sooner, is_astride & sooner
    at_neutral = late | part | across
    if not at_neutral.any():
        return delays
    bounds = {
        **delays.bounds, Bound.DEADLINE: late, Bound.HETEROGENEOUS: part, Bound.SCOPE: across,
    }  # fmt: skip
    upper_s = np.where(at_neutral, neutral_s, delays.upper_s)
    delay_s = np.where(at_neutral, neutral_s, delays.delay_s)
    return replace(delays, upper_s=upper_s, delay_s=delay_s, bounds=bounds)


def _checked(policy: Policy, matrix: StateMatrix) -> Wish:
    """The policy's wish as float64 of the right shape, finite and from 0 on. Raises PolicyError."""
    parts = []
    for name, part in zip(Wish._fields, policy.wish(matrix), strict=True):
        found = np.asarray(part, dtype=np.float64)
        if found.shape != (len(matrix),):
            raise PolicyError(
                f"policy {policy.name} gave {name} of shape {found.shape} for {len(matrix)} jobs"
            )
        wrong = ~(np.isfinite(found) & (found >= 0))
        if wrong.any():
            bad = matrix.jobs[int(np.flatnonzero(wrong)[0])]
            raise PolicyError(
                f"policy {policy.name} gave job {bad.job_id} no finite {name} from 0 on"
            )
        parts.append(found)
    return Wish(*parts)


def next_neutral(
    before: NeutralDelay | None, delay_s: FloatArray, pools: Pools, now: float
) -> NeutralDelay | None:
    """The neutral delay after one more cycle.

    It is the median of the first queue that is seen, over users: it is the same however many jobs
    one of them submits. From then on a running median follows the queue with a time constant of a
    week, and takes its place when it is off by a quarter, at most once a day: a change moves every
    number that rltuned has written. It stays where no task may start. before: None = this is the
    first cycle. delay_s: (n,) as asked for, since the neutral delay is room itself.
    """
    if not pools.tasks.any():
        return before
    if before is None:
        median_s = _median_s(delay_s, pools)
        return NeutralDelay(median_s, now, median_s, now)
    passed_s = now - before.seen_at
    if 0 <= passed_s < NEUTRAL_LOOK_S:
        return before
    share = min(max(passed_s, 0.0) / NEUTRAL_OVER_S, 1.0)
    running_s = before.running_s + share * (_median_s(delay_s, pools) - before.running_s)
    off = abs(running_s - before.delay_s) > NEUTRAL_OFF * before.delay_s
    since = min(before.since, now)  # the clock was ahead then
    if off and now - since >= NEUTRAL_FOR_S:
        return NeutralDelay(running_s, now, running_s, now)
    return replace(before, since=since, running_s=running_s, seen_at=now)


def _median_s(delay_s: FloatArray, pools: Pools) -> float:
    rows = np.flatnonzero(pools.tasks)  # of an array at its bound no task may start
    waits_s, tasks = delay_s[rows], pools.tasks[rows]
    order = np.argsort(waits_s, kind="stable")
    return median_of_users(waits_s, order, tasks, pools.user[rows], pools.users)
