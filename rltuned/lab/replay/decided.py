"""The daemon's own decision beside a world of objects, decision by decision.

The kernel knows no joint placement and no policy of another package, so these are played here,
slowly; the Gymnasium environment and `make demo` stop at each decision. `make demo` has no numba.
"""

import math
from dataclasses import replace
from itertools import islice
from typing import Final, TypeVar

from rltuned.core.decide import Decision, Knobs, Policy, decide
from rltuned.core.limits import LimitMemory
from rltuned.core.memory import Job, RunTimeMemory, key_of
from rltuned.core.pools import Sizes
from rltuned.domain.jobs import JobRun, Ownership, RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.plan import RELEASE, Action
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import NO_CONTEXT, Context, Remembered, Snapshot
from rltuned.domain.units import JobId, JobKey, UnixTime
from rltuned.errors import TraceError
from rltuned.lab.replay.protocol import Protocol
from rltuned.policies.predictor import feed
from rltuned.sim.backend import SimBackend
from rltuned.sim.trace import in_partition
from rltuned.sim.world import World

HOUR_S: Final = 3_600.0
HELD: Final = 64
"""Earlier values that are kept of a job."""
Seen = TypeVar("Seen", bound=Job)


class DecidedWorld:
    """A world in which priorities are written once per interval or (event mode) at every event, by
    what a daemon would remember: what it wrote, what ended jobs used of their limits and (learns,
    with the protocol's predictor) how long jobs run.

    first_s: of the first cycle; None = when the first job comes. looks_at_s: a moment at which
    Slurm looks at its queue although nothing happens. decisions: how often the queue was ranked.
    context: of what is due. written: numbers so far, by job.
    """

    def __init__(
        self,
        world: World,
        protocol: Protocol,
        first_s: float | None = None,
        looks_at_s: float = -math.inf,
        *,
        learns: bool = False,
    ) -> None:
        self.world, self.decisions, self._looks_at_s = world, 0, looks_at_s
        self._first_s = world.first_s if first_s is None else first_s
        self._backend, self._solver = SimBackend(world), protocol.solver
        self._interval_s = protocol.interval_s if protocol.mode == "cycle" else 0.0
        self.knobs = protocol.knobs if self._interval_s else at_once(protocol.knobs)
        self._is_due, self.context = False, NO_CONTEXT
        self.written: dict[JobId, int] = {}
        self._owned: dict[JobKey, Ownership] = {}
        self._recent: dict[JobKey, list[float]] = {}
        """When numbers were written within the last hour."""
        self._neutral: NeutralDelay | None = None
        self._ended, self._limits, self._sizes = 0, LimitMemory(), Sizes(world.empty.capacity)
        self._runs: RunTimeMemory | None = None
        if learns and protocol.predictor is not None:
            self._runs = RunTimeMemory(protocol.predictor.logits)
            self._runs.size_of = Sizes(world.capacity).of
        self._kinds = {"": Kinds(name=0)}

    def play(self, policy: Policy) -> "DecidedWorld":
        """To the end of the last job. Raises TraceError: a job can never start; PolicyError: the
        code of another package fails.
        """
        while (snapshot := self.due()) is not None:
            self.decide(snapshot, policy)
        return self

    def due(self) -> Snapshot | None:
        """Let time pass until a queue waits for a decision; None = done. Raises TraceError."""
        world = self.world
        if self._is_due:
            world.schedule()
        while (now := self._next_time()) is not None:
            if world.now < self._looks_at_s < now:
                now = self._looks_at_s
            if world.next_time() == now:
                world.happen()
            world.now = now
            self._is_due = bool(world.pending) and self._is_tick(now)
            if self._is_due:
                snapshot = self._backend.observe(self._remembered)
                self.context = self.known(snapshot)
                return snapshot
            world.schedule()
        self._is_due = False
        if world.pending:
            number, job = min(world.pending.items())
            raise TraceError(
                f"{len(world.pending)} jobs can never start, the first is {job.job.job_id} "
                f"(row {number}): the nodes they need are down or drained to the end"
            )
        return None

    def decide(self, snapshot: Snapshot, policy: Policy) -> Decision:
        """Carry out what the daemon decides on what is due."""
        decision = decide(snapshot, policy, self.knobs, self._solver, self.context)
        self._backend.apply(decision.plan)
        self._neutral = decision.neutral
        for action in decision.plan.actions:
            if action.field is RELEASE:
                self._owned.pop(action.target.key, None)
            elif action.field.orders:
                self._note(action)
        self.decisions += 1
        return decision

    def known(self, snapshot: Snapshot) -> Context:
        """What a daemon would know at a look beside what it wrote."""
        done = list(islice(self.world.finished.values(), self._ended, None))
        self._ended += len(done)
        ended = list[JobRun]()
        for one in done:
            job, name = one.job, one.pending.partition
            request = in_partition(job.request(), self.world.partitions[name])
            user, ran_s = hash(job.user) if job.user else None, one.ended_at - one.started_at
            size = self._sizes.of(request, (name,))
            self._limits.note(user, ran_s, request.time_limit_s, size)
            run = RunningJob(
                job_id=JobId(one.number),
                started_at=UnixTime(one.started_at),
                request=request,
                shares=(),
                partition=name,
                user=job.user,
                account=job.account,
                submitted_at=UnixTime(job.submit_s),
            )
            ended.append(JobRun(self._dressed(run), UnixTime(one.ended_at)))
        found = Context(neutral=self._neutral, limit_use=self._limits.use)
        if self._runs is None:
            return found
        here: list[Job] = [*snapshot.pending, *snapshot.running, *(run.job for run in ended)]
        came, started = self._runs.news({key_of(job): job for job in here})
        feed(self._runs, map(self._dressed, came), map(self._dressed, started), ended)
        return replace(found, run_times=self._runs.predicted(snapshot.pending))

    def _dressed(self, job: Seen) -> Seen:
        """With what the world does not show of it."""
        of = self.world.jobs[job.job_id - 1]
        kinds = self._kinds.setdefault(of.name, Kinds(name=len(self._kinds)))
        return replace(job, qos=of.qos, kinds=kinds)

    def _remembered(self, _cluster: str, now: float) -> Remembered:
        """What rltuned owns."""
        # a running job comes back if its node fails
        there = self.world.pending.keys() | self.world.running.keys()
        self._owned = {key: one for key, one in self._owned.items() if key[0] in there}
        self._recent = {
            key: [at for at in self._recent[key] if at > now - HOUR_S] for key in self._owned
        }
        return Remembered(dict(self._owned), {key: len(at) for key, at in self._recent.items()})

    def _note(self, action: Action) -> None:
        name, key, now = action.field.name, action.target.key, self.world.now
        self.written[action.target.job_id] = self.written.get(action.target.job_id, 0) + 1
        known = self._owned.get(key)
        if known is None or known.field != name:
            self._recent[key] = []
            self._owned[key] = Ownership(
                name, action.new, action.nice, action.old, rest=action.rest, written_at=now
            )
        else:
            earlier = (*known.earlier, known.value)[-HELD:]
            self._owned[key] = replace(known, value=action.new, earlier=earlier, written_at=now)
        self._recent[key].append(now)

    def _next_time(self) -> float | None:
        """The next event or, while a queue waits, the next cycle; None when all is done."""
        event, now, interval_s = self.world.next_time(), self.world.now, self._interval_s
        if event is None or not self.world.pending or not interval_s:
            return event
        tick = self._tick_at(now)
        if tick <= now:
            cycles = round((now - self._first_s) / interval_s)
            tick = self._first_s + (cycles + 1) * interval_s
        return min(event, tick)

    def _tick_at(self, now: float) -> float:
        """The first cycle at or after a time."""
        interval_s = self._interval_s
        tick = self._first_s + math.ceil((now - self._first_s) / interval_s) * interval_s
        return tick if tick >= now else tick + interval_s

    def _is_tick(self, now: float) -> bool:
        if now < self._first_s:
            return False
        return not self._interval_s or self._tick_at(now) == now


def at_once(knobs: Knobs) -> Knobs:
    """The same, but every delay is written exactly, however young its job is."""
    return replace(
        knobs,
        rules=replace(knobs.rules, min_age_s=0.0),
        writing=replace(knobs.writing, max_changes=10**9, hysteresis=0.0, min_step_s=0.0),
    )
