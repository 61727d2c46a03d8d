"""What ranks, when, and what happens to nodes: the plain world played to its end.

`play_direct` orders the queue at every event. `play_decided` goes the whole way of the daemon:
observe, decide, apply, once per interval, with a journal's memory of what was written.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from rltuned.core.decide import Knobs, Policy, decide
from rltuned.core.features import FloatArray, StateMatrix, encode
from rltuned.core.milp.model import Solver
from rltuned.core.milp.solution import Tuning
from rltuned.core.order import Order, bounded, checked_scores
from rltuned.domain.plan import Plan
from rltuned.errors import TraceError
from rltuned.sim.backend import SimBackend, snapshot_of
from rltuned.sim.cluster import Cluster
from rltuned.sim.history import Ended, LearningPolicy
from rltuned.sim.ledger import SimulatedJournal
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Fault, Pending, Rules, World
from rltuned.sim.world import Order as Ranking

Mode = Literal["event", "cycle"]
Newcomers = Literal["cycle", "submit"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a comparison is run.

    Attributes:
        mode: `cycle` decides once per interval, as the daemon does; `event` ranks at every event.
        interval_s: seconds between cycles (cycle mode).
        rules: backfill, placement and natural priority of the simulated Slurm.
        faults: what befalls nodes, and when, in the trace's time.
        knobs: the daemon's own settings (cycle mode, and placement `milp`); by default no
            placements are worked out, for where jobs go is Slurm's business.
        bounded: delays within their bounds; False = the policy's pure order.
        newcomers: whether a job waits for a cycle, or has its delay from its submission.
        solver: for placement `milp`.
    """

    mode: Mode = "event"
    interval_s: float = 60.0
    rules: Rules = field(default_factory=Rules)
    faults: tuple[Fault, ...] = ()
    knobs: Knobs = field(default_factory=lambda: Knobs(top_k=0))
    bounded: bool = True
    newcomers: Newcomers = "cycle"
    solver: Solver | None = None

    @property
    def is_joint(self) -> bool:
        """Whether the first jobs are placed together."""
        return self.knobs.placement == "milp"

    @property
    def order(self) -> Order | None:
        """The bounds; None = there are none."""
        return self.knobs.order if self.bounded else None

    def __post_init__(self) -> None:
        if not (self.interval_s > 0 and math.isfinite(self.interval_s)):
            raise ValueError(f"an interval must be seconds > 0, not {self.interval_s}")


def jointly(protocol: Protocol, top_k: int, tuning: Tuning, solver: Solver | None) -> Protocol:
    """The same comparison with the first top_k jobs placed together at every ranking."""
    knobs = replace(protocol.knobs, top_k=top_k, placement="milp", tuning=tuning)
    return replace(protocol, knobs=knobs, solver=solver)


@dataclass(frozen=True, slots=True)
class PlayedWorld:
    """A world at its end, how often the queue was ranked, and how many numbers were written."""

    world: World
    decisions: int
    writes: int = 0


def play_direct(
    cluster: Cluster, jobs: Sequence[TraceJob], policy: Policy | Ranking, protocol: Protocol
) -> PlayedWorld:
    """Order the queue at every event, by a policy or by what no policy can know."""
    learner = None if callable(policy) else policy
    order = policy if callable(policy) else by_policy(policy, protocol.order)
    world = World(
        cluster,
        jobs,
        rules=protocol.rules,
        faults=protocol.faults,
        order=order,
        on_end=_listener(learner),
    )
    while (now := world.next_time()) is not None:
        world.happen()
        world.now = now
        world.schedule()
    _refuse_stuck(world)
    return PlayedWorld(world, world.passes)


def play_decided(
    cluster: Cluster, jobs: Sequence[TraceJob], policy: Policy, protocol: Protocol
) -> PlayedWorld:
    """Let the daemon's own decision write priorities, once per interval or at every event."""
    world = World(
        cluster, jobs, rules=protocol.rules, faults=protocol.faults, on_end=_listener(policy)
    )
    daemon = _Daemon(world, policy, protocol)
    interval_s = protocol.interval_s if protocol.mode == "cycle" else 0.0
    first = world.next_time() or 0.0
    decisions = 0
    while (now := _next(world, first, interval_s)) is not None:
        if world.next_time() == now:
            world.happen()
        world.now = now
        if world.pending and protocol.newcomers == "submit":
            daemon.meet()
        if world.pending and (not interval_s or _is_tick(now, first, interval_s)):
            daemon.cycle()
            decisions += 1
        world.schedule()
    _refuse_stuck(world)
    return PlayedWorld(world, decisions, daemon.writes)


class _Daemon:
    """The decision beside a simulated cluster, with what its journal would remember."""

    def __init__(self, world: World, policy: Policy, protocol: Protocol) -> None:
        self._world, self._policy, self._protocol = world, policy, protocol
        self._knobs = protocol.knobs if protocol.mode == "cycle" else _at_once(protocol.knobs)
        self._backend, self._ledger = SimBackend(world), SimulatedJournal()
        self._met: set[int] = set()
        self._at_submit = 0

    @property
    def writes(self) -> int:
        """Numbers written, but for those that were set at submission."""
        return sum(self._ledger.writes.values()) - self._at_submit

    def cycle(self) -> None:
        """Observe, decide, apply."""
        snapshot = self._ledger.dress(self._backend.observe())
        decision = decide(snapshot, self._policy, self._knobs, self._protocol.solver)
        self._backend.apply(decision.plan)
        self._ledger.note(decision, self._world.now)
        if self._protocol.is_joint and self._knobs.tuning.steered:
            self._world.wishes = {p.job_id: p.shares for p in decision.placements}

    def meet(self) -> None:
        """Give the jobs that have just come their delays, as job_submit.lua would."""
        new = self._world.pending.keys() - self._met
        self._met |= new
        if not new:
            return
        knobs = replace(_at_once(self._knobs), top_k=0, placement="pack")
        snapshot = self._ledger.dress(self._backend.observe())
        if snapshot.neutral is None:  # the very first job brings it
            first = decide(replace(snapshot, pending=snapshot.pending[:1]), self._policy, knobs)
            snapshot = replace(snapshot, neutral=first.neutral)
        decision = decide(snapshot, self._policy, knobs)
        actions = tuple(a for a in decision.plan.actions if a.target.job_id in new)
        self._backend.apply(Plan(actions))
        # only a cycle moves the neutral delay
        submitted = replace(decision, plan=Plan(actions), neutral=snapshot.neutral)
        self._ledger.note(submitted, self._world.now)
        self._at_submit += len(actions)


def _at_once(knobs: Knobs) -> Knobs:
    """The same, but every delay is written exactly, however young its job is."""
    return replace(
        knobs,
        rules=replace(knobs.rules, min_age_s=0.0),
        writing=replace(knobs.writing, max_changes=10**9, hysteresis=0.0, min_step_s=0.0),
    )


def _listener(policy: Policy | None) -> Callable[[Ended], None] | None:
    """What is called at every end of a job; only a policy that learns from them wants it."""
    return policy.ended if isinstance(policy, LearningPolicy) else None


def by_policy(policy: Policy, order: Order | None) -> Ranking:
    """The order that a policy puts the whole queue in; equal jobs by submit order.

    By virtual time within the bounds; without bounds, by the policy's scores.
    """

    def ranked(world: World) -> Sequence[Pending]:
        snapshot = snapshot_of(world)
        jobs = snapshot.pending
        keys = _keys(policy, encode(jobs, snapshot), order)
        # jobs stand in submit order, which a stable sort keeps among equals
        return [world.pending[jobs[i].job_id] for i in np.argsort(keys, kind="stable").tolist()]

    return ranked


def _keys(policy: Policy, matrix: StateMatrix, order: Order | None) -> FloatArray:
    """(n,) smaller first."""
    if order is None:
        return -checked_scores(policy, matrix)
    if policy.name == "multifactor":  # it delays nobody: Slurm's own order
        return -policy.score(matrix)
    return matrix.submit_s + bounded(policy, matrix, order).delay_s


def clairvoyant(world: World) -> Sequence[Pending]:
    """Shortest true run time first."""
    return sorted(world.pending.values(), key=lambda p: (p.job.duration_s, p.number))


def clairvoyant_area(world: World) -> Sequence[Pending]:
    """Smallest true area first."""
    return sorted(
        world.pending.values(), key=lambda p: (p.job.duration_s * max(p.job.gpus, 1), p.number)
    )


def tick_at(now: float, first: float, interval_s: float) -> float:
    """The first cycle at or after a time."""
    tick = first + math.ceil((now - first) / interval_s) * interval_s
    return tick if tick >= now else tick + interval_s


def _is_tick(now: float, first: float, interval_s: float) -> bool:
    return tick_at(now, first, interval_s) == now


def _next(world: World, first: float, interval_s: float) -> float | None:
    """The next event or, while a queue waits, the next cycle; None when all is done."""
    event = world.next_time()
    if event is None or not world.pending or not interval_s:
        return event
    tick = tick_at(world.now, first, interval_s)
    if tick <= world.now:
        tick = first + (round((world.now - first) / interval_s) + 1) * interval_s
    return min(event, tick)


def _refuse_stuck(world: World) -> None:
    if world.pending:
        number, job = min(world.pending.items())
        raise TraceError(
            f"{len(world.pending)} jobs can never start, the first is {job.job.job_id} "
            f"(row {number}): the nodes they need are down or drained to the end"
        )
