"""Stand-ins for the three ports (world, clock, policy), and for nothing else."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rltuned.core.order import DEFAULT, Wish
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    OVERSUBSCRIBE,
    PRIORITY,
    RELEASE,
    SITE_FACTOR,
    Action,
    Outcome,
    Plan,
    Result,
)
from rltuned.domain.priority import PrioritySystem
from rltuned.domain.snapshot import RememberedBy, Snapshot, nothing
from rltuned.domain.units import UnixTime
from tests.builders import NOW, basic

STEP_S = 120.0
"""Between two places of a ConstantOrder."""


class HasJobs(Protocol):
    """The part of a state matrix that the fake policies look at."""

    @property
    def jobs(self) -> tuple[PendingJob, ...]: ...


class FakeClock:
    """Time that moves only when somebody waits, or when a test says so.

    Attributes:
        waits: the seconds of every wait, in order.
        on_wait: called with the number of waits so far; returning True asks the loop to stop.
    """

    def __init__(self, on_wait: Callable[[int], bool] | None = None) -> None:
        self.elapsed_s = 0.0
        self.waits: list[float] = []
        self.on_wait = on_wait

    def now(self) -> float:
        return NOW + self.elapsed_s

    def monotonic(self) -> float:
        return 1_000.0 + self.elapsed_s

    def advance(self, seconds: float) -> None:
        self.elapsed_s += seconds

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.advance(seconds)
        return self.on_wait(len(self.waits)) if self.on_wait is not None else False


@dataclass
class FakeBackend:
    """A world in memory: shows what it was given, and keeps what is applied to it.

    Attributes:
        world: what the next observe shows; a list plays one entry per observe (an exception in it
            is raised) and then stays at the last one.
        results: the result to give for a job id; APPLIED when not named.
        plans: every plan that was applied, in order.
        on_observe: called before each observe, with the number of observes so far.
    """

    world: Snapshot
    script: list[Snapshot | Exception] = field(default_factory=list)
    results: dict[int, Result] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
    observed: int = 0
    on_observe: Callable[[int], None] | None = None
    clock: FakeClock | None = None
    observe_s: float = 0.0

    def observe(self, remembered: RememberedBy = nothing) -> Snapshot:
        self.observed += 1
        if self.on_observe is not None:
            self.on_observe(self.observed)
        if self.clock is not None:
            self.clock.advance(self.observe_s)
            self.world = replace(self.world, taken_at=UnixTime(self.clock.now()))
        if self.script:
            item = self.script.pop(0)
            if isinstance(item, Exception):
                raise item
            self.world = item
        return self.world.marked(remembered(self.world.cluster, self.world.taken_at))

    def look(self) -> Snapshot:
        """The same world, as a restore sees it under multifactor."""
        return replace(self.observe(), priorities=PrioritySystem("multifactor"))

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        self.plans.append(plan)
        return tuple(self._carry_out(action) for action in plan.actions)

    def job(self, job_id: int) -> PendingJob:
        return next(j for j in self.world.pending if j.job_id == job_id)

    def put(self, *jobs: PendingJob) -> None:
        """Replace the jobs of these ids in the world (somebody else changed them)."""
        ids = {j.job_id for j in jobs}
        others = tuple(j for j in self.world.pending if j.job_id not in ids)
        self.world = replace(self.world, pending=others + jobs)

    def drop(self, *job_ids: int) -> None:
        """These jobs have started or ended."""
        left = tuple(j for j in self.world.pending if j.job_id not in job_ids)
        self.world = replace(self.world, pending=left)

    def _carry_out(self, action: Action) -> Outcome:
        held = {j.job_id: j for j in self.world.pending}
        now = held.get(action.target.job_id)
        if now is None or now.submitted_at != action.target.submitted_at:
            return Outcome(action, Result.GONE, "no such pending job")
        result = self.results.get(action.target.job_id, Result.APPLIED)
        if result is Result.APPLIED:
            self.put(changed(now, action))
        return Outcome(action, result, "" if result is Result.APPLIED else "the test asked for it")


def changed(was: PendingJob, action: Action) -> PendingJob:
    """What Slurm would show of a job after the action."""
    field, new = action.field, action.new
    if field is PRIORITY:
        return replace(was, priority=new, nice=0)
    if field is SITE_FACTOR:
        delta = new - (was.site_factor or 0)
        return replace(was, site_factor=new, priority=max(1, was.priority + delta))
    if field is RELEASE:
        return replace(was, priority=NATURAL, nice=action.nice or 0)
    if field is OVERSUBSCRIBE:
        asks = replace(was.request, exclusive=new != "YES" and was.request.exclusive)
        return replace(was, oversubscribe=new, request=asks)
    return replace(was, **{field.name: new})


NATURAL = 5_000
"""The priority that a released job gets in the fake world."""


def alone(own_s: npt.NDArray[np.float64]) -> Wish:
    """Own seconds, whatever the backlog."""
    return Wish(own_s, np.zeros(len(own_s)))


@dataclass(frozen=True)
class ConstantOrder:
    """A policy that knows its order beforehand: the ids named first go first, in that order.

    Jobs that are not named follow, by submit time.
    """

    order: tuple[int, ...] = ()
    name: str = "constant"
    static: bool = True
    trust: float | None = None

    def score(self, matrix: HasJobs) -> npt.NDArray[np.float64]:
        place = {job_id: i for i, job_id in enumerate(self.order)}
        last = len(self.order)
        return np.array(
            [float(-place.get(j.job_id, last + i)) for i, j in enumerate(matrix.jobs)],
            dtype=np.float64,
        )

    def wish(self, matrix: HasJobs) -> Wish:
        return alone(self.delay_s(matrix))

    def delay_s(self, matrix: HasJobs) -> npt.NDArray[np.float64]:
        """With the default own part, two points of priority/basic lie between two places."""
        since = np.array([j.ages_since for j in matrix.jobs], dtype=np.float64)
        behind_s = since.max(initial=0.0) - since - STEP_S * self.score(matrix)
        found: npt.NDArray[np.float64] = behind_s / DEFAULT.own
        return found


def dealt(*order: int) -> dict[int, int]:
    """The priorities under priority/basic that a ConstantOrder of these jobs leads to."""
    return {job_id: basic(STEP_S * place) for place, job_id in enumerate(order)}


@dataclass(frozen=True)
class BrokenPolicy:
    """A policy whose scores cannot be used."""

    name: str = "broken"
    static: bool = False
    trust: float | None = None

    def score(self, matrix: HasJobs) -> npt.NDArray[np.float64]:
        return np.full(len(matrix.jobs), np.nan)

    def wish(self, matrix: HasJobs) -> Wish:
        return alone(self.delay_s(matrix))

    def delay_s(self, matrix: HasJobs) -> npt.NDArray[np.float64]:
        return self.score(matrix)


@dataclass
class RaisingPolicy:
    """A policy with a bug: raises what it was given, one per call, then goes on as FCFS."""

    errors: Sequence[Exception] | Iterable[Exception]
    name: str = "raising"
    static: bool = True
    trust: float | None = None

    def __post_init__(self) -> None:
        self.errors = list(self.errors)

    def wish(self, matrix: HasJobs) -> Wish:
        return alone(self.delay_s(matrix))

    def delay_s(self, matrix: HasJobs) -> npt.NDArray[np.float64]:
        return np.maximum(self.score(matrix) * 0.0, 0.0)

    def score(self, matrix: HasJobs) -> npt.NDArray[np.float64]:
        if isinstance(self.errors, list) and self.errors:
            raise self.errors.pop(0)
        return -np.arange(len(matrix.jobs), dtype=np.float64)
