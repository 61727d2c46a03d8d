"""The daemon's own decision beside a world of objects, decision by decision.

The kernel knows no joint placement and no policy of another package, so these are played here,
slowly; the Gymnasium environment and `make demo` stop at each decision. `make demo` has no numba.
"""

import math
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from rltuned.core.decide import Decision, Knobs, Policy, decide
from rltuned.core.limits import LimitMemory
from rltuned.core.pools import Sizes
from rltuned.domain.jobs import Ownership
from rltuned.domain.plan import RELEASE, Action
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import NO_CONTEXT, Context, Remembered, RunTimes, Snapshot
from rltuned.domain.units import JobId, JobKey
from rltuned.errors import TraceError
from rltuned.lab.replay.protocol import Protocol
from rltuned.sim.backend import SimBackend
from rltuned.sim.trace import EmptyCluster, in_partition
from rltuned.sim.world import World

HOUR_S: Final = 3_600.0
HELD: Final = 64
"""Earlier values that are kept of a job."""


@dataclass(slots=True)
class _Entry:
    owned: Ownership
    written: deque[float] = field(default_factory=deque)


class SimulatedJournal:
    """Makes a simulated decision see what it would see in production: what rltuned wrote, and what
    ended jobs used of their limits. writes: by job, so far.
    """

    def __init__(self, world: World) -> None:
        self._world, self._sizes = world, Sizes(EmptyCluster(world.cluster).capacity)
        self._partitions = {p.name: p for p in world.cluster.partitions}
        self._limits, self._ended = LimitMemory(), 0
        self._entries: dict[JobKey, _Entry] = {}
        self._neutral: NeutralDelay | None = None
        self.writes: dict[JobId, int] = {}

    def note(self, decision: Decision, now: float) -> None:
        self._neutral = decision.neutral
        for action in decision.plan.actions:
            if action.field is RELEASE:
                self._entries.pop(action.target.key, None)
            elif action.field.orders:
                self._write(action, now)

    def remembered(self, _cluster: str, now: float) -> Remembered:
        """What rltuned owns."""
        # a running job comes back if its node fails
        there = self._world.pending.keys() | self._world.running.keys()
        self._entries = {key: one for key, one in self._entries.items() if key[0] in there}
        recent: dict[JobKey, int] = {}
        for key, entry in self._entries.items():
            while entry.written and entry.written[0] <= now - HOUR_S:
                entry.written.popleft()
            recent[key] = len(entry.written)
        return Remembered({key: one.owned for key, one in self._entries.items()}, recent)

    def context(self) -> Context:
        """The rest of what the daemon would know."""
        return Context(neutral=self._neutral, limit_use=self._limit_use())

    def _limit_use(self) -> float | None:
        ended = islice(self._world.finished.values(), self._ended, None)
        for done in ended:
            job, name = done.job, done.job.partition or self._world.cluster.default_partition
            request = in_partition(job.request(), self._partitions[name])
            user = hash(job.user) if job.user else None
            ran_s, size = done.ended_at - done.started_at, self._sizes.of(request, (name,))
            self._limits.note(user, ran_s, request.time_limit_s, size)
        self._ended = len(self._world.finished)
        return self._limits.use

    def _write(self, action: Action, now: float) -> None:
        name, job_id, key = action.field.name, action.target.job_id, action.target.key
        self.writes[job_id] = self.writes.get(job_id, 0) + 1
        known = self._entries.get(key)
        if known is None or known.owned.field != name:
            owned = Ownership(
                name, action.new, action.nice, action.old, rest=action.rest, written_at=now
            )
            known = self._entries[key] = _Entry(owned)
        else:
            owned = known.owned
            earlier = (*owned.earlier, owned.value)[-HELD:]
            known.owned = replace(owned, value=action.new, earlier=earlier, written_at=now)
        known.written.append(now)


class DecidedWorld:
    """A world in which priorities are written once per interval or (event mode) at every event.

    first_s: of the first cycle; None = when the first job comes. looks_at_s: a moment at which
    Slurm looks at its queue although nothing happens. decisions: how often the queue was ranked.
    context: of what is due.
    """

    def __init__(
        self,
        world: World,
        protocol: Protocol,
        first_s: float | None = None,
        looks_at_s: float = -math.inf,
    ) -> None:
        self.world, self.decisions, self._looks_at_s = world, 0, looks_at_s
        self._first_s = world.first_s if first_s is None else first_s
        self._backend, self._journal = SimBackend(self.world), SimulatedJournal(self.world)
        self._solver = protocol.solver
        self._interval_s = protocol.interval_s if protocol.mode == "cycle" else 0.0
        self.knobs = protocol.knobs if self._interval_s else at_once(protocol.knobs)
        self._is_due, self.context = False, NO_CONTEXT

    @property
    def written(self) -> dict[JobId, int]:
        """Numbers so far, by job."""
        return self._journal.writes

    @property
    def writes(self) -> int:
        """Of all jobs."""
        return sum(self.written.values())

    def due(self) -> Snapshot | None:
        """Let time pass until a queue waits for a decision; None = done. Raises TraceError."""
        if self._is_due:
            self.world.schedule()
        while (now := next_time(self.world, self._first_s, self._interval_s)) is not None:
            if self.world.now < self._looks_at_s < now:
                now = self._looks_at_s
            if self.world.next_time() == now:
                self.world.happen()
            self.world.now = now
            self._is_due = bool(self.world.pending) and self._is_tick(now)
            if self._is_due:
                self.context = self._journal.context()
                return self._backend.observe(self._journal.remembered)
            self.world.schedule()
        self._is_due = False
        _check_all_started(self.world)
        return None

    def decide(
        self, snapshot: Snapshot, policy: Policy, run_times: RunTimes = NO_CONTEXT.run_times
    ) -> Decision:
        """Carry out what the daemon decides on what is due."""
        context = replace(self.context, run_times=run_times)
        decision = decide(snapshot, policy, self.knobs, self._solver, context)
        self._backend.apply(decision.plan)
        self._journal.note(decision, self.world.now)
        self.decisions += 1
        return decision

    def _is_tick(self, now: float) -> bool:
        if now < self._first_s:
            return False
        return not self._interval_s or tick_at(now, self._first_s, self._interval_s) == now


def _check_all_started(world: World) -> None:
    if world.pending:
        number, job = min(world.pending.items())
        raise TraceError(
            f"{len(world.pending)} jobs can never start, the first is {job.job.job_id} "
            f"(row {number}): the nodes they need are down or drained to the end"
        )


def at_once(knobs: Knobs) -> Knobs:
    """The same, but every delay is written exactly, however young its job is."""
    return replace(
        knobs,
        rules=replace(knobs.rules, min_age_s=0.0),
        writing=replace(knobs.writing, max_changes=10**9, hysteresis=0.0, min_step_s=0.0),
    )


def next_time(world: World, first_s: float, interval_s: float) -> float | None:
    """The next event or, while a queue waits, the next cycle; None when all is done."""
    event = world.next_time()
    if event is None or not world.pending or not interval_s:
        return event
    tick = tick_at(world.now, first_s, interval_s)
    if tick <= world.now:
        tick = first_s + (round((world.now - first_s) / interval_s) + 1) * interval_s
    return min(event, tick)


def tick_at(now: float, first_s: float, interval_s: float) -> float:
    """The first cycle at or after a time."""
    tick = first_s + math.ceil((now - first_s) / interval_s) * interval_s
    return tick if tick >= now else tick + interval_s
