"""Who ranks, when, and what happens to nodes: the plain world played to its end.

`play_direct` lets a scoring rule order the queue at every event. `play_decided` goes the whole way
of the daemon: observe, decide, apply, at every event or once per interval. For the same order both
give the same schedule, job by job.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from rltuned.core.decide import Knobs, Policy, checked_scores, decide
from rltuned.core.features import encode
from rltuned.core.joint import Tuning
from rltuned.core.milp import Solver
from rltuned.core.planning import Limits
from rltuned.core.select import Rules as Scope
from rltuned.core.starvation import Bound, lift, overdue
from rltuned.errors import TraceError
from rltuned.sim.backend import SimBackend, snapshot_of
from rltuned.sim.cluster import Cluster
from rltuned.sim.history import Ended, Learner
from rltuned.sim.rivals import Inspected
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Fault, Order, Pending, Rules, World

Mode = Literal["event", "cycle"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a comparison is run.

    Attributes:
        mode: `event` ranks at every event; `cycle` once per interval, as the daemon does.
        interval_s: seconds between cycles (cycle mode).
        rules: backfill, placement and natural priority of the simulated Slurm.
        faults: what befalls nodes, and when, in the trace's time.
        knobs: the daemon's own settings; None = a whole re-ranking at every event (event mode) or
            the daemon's defaults (cycle mode). With placement `milp` the daemon's own brain decides
            in event mode too; steered, its placements are followed.
        solver: for placement `milp`.
        starvation: the guard on jobs that wait too long, for learned policies; None = none.
    """

    mode: Mode = "event"
    interval_s: float = 60.0
    rules: Rules = field(default_factory=Rules)
    faults: tuple[Fault, ...] = ()
    knobs: Knobs | None = None
    solver: Solver | None = None
    starvation: Bound | None = None

    @property
    def is_joint(self) -> bool:
        """Whether the first jobs are placed together."""
        return self.knobs is not None and self.knobs.placement == "milp"

    def __post_init__(self) -> None:
        if not (self.interval_s > 0 and math.isfinite(self.interval_s)):
            raise ValueError(f"an interval must be seconds > 0, not {self.interval_s}")


EVENT_KNOBS = Knobs(
    rules=Scope(min_age_s=0.0),
    limits=Limits(max_changes=1_000_000_000, hysteresis=0.0),
    top_k=0,
)
"""Ranking at every event means all jobs, at once, exactly."""
CYCLE_KNOBS = Knobs(top_k=0)
"""The daemon's defaults; where the placements of a decision go to is Slurm's business."""


def jointly(protocol: Protocol, top_k: int, tuning: Tuning, solver: Solver | None) -> Protocol:
    """The same comparison with the first top_k jobs placed together at every ranking."""
    own = protocol.knobs or (CYCLE_KNOBS if protocol.mode == "cycle" else EVENT_KNOBS)
    knobs = replace(own, top_k=top_k, placement="milp", tuning=tuning)
    return replace(protocol, knobs=knobs, solver=solver)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A world at its end, and how often the queue was ranked."""

    world: World
    decisions: int


def play_direct(
    cluster: Cluster, jobs: Sequence[TraceJob], policy: Policy | None, protocol: Protocol
) -> Outcome:
    """Order the queue by scores at every event; policy None = by true run time."""
    order = clairvoyant if policy is None else _order_of(policy, protocol.starvation)
    world = World(
        cluster,
        jobs,
        rules=protocol.rules,
        faults=protocol.faults,
        order=order,
        on_end=_listener(policy),
    )
    while (now := _soonest(world, policy)) is not None:
        if world.next_time() == now:
            world.happen()
        world.now = now
        world.schedule()
    _refuse_stuck(world)
    return Outcome(world, world.passes)


def _soonest(world: World, policy: Policy | None) -> float | None:
    """The next event, or the second try that an inspector waits for; None when all is done."""
    event = world.next_time()
    wake_s = policy.wake_s if isinstance(policy, Inspected) else math.inf
    return event if wake_s == math.inf else min(wake_s, math.inf if event is None else event)


def play_decided(
    cluster: Cluster, jobs: Sequence[TraceJob], policy: Policy, protocol: Protocol
) -> Outcome:
    """Let the daemon's own brain write priorities, at every event or once per interval."""
    world = World(
        cluster, jobs, rules=protocol.rules, faults=protocol.faults, on_end=_listener(policy)
    )
    backend = SimBackend(world)
    cycle = protocol.mode == "cycle"
    own = protocol.knobs or (CYCLE_KNOBS if cycle else EVENT_KNOBS)
    knobs = replace(own, starvation=protocol.starvation)
    first = world.next_time() or 0.0
    decisions = 0
    while (now := _next(world, first, protocol.interval_s if cycle else 0.0)) is not None:
        if world.next_time() == now:
            world.happen()
        world.now = now
        if world.pending and (not cycle or _is_tick(now, first, protocol.interval_s)):
            decision = decide(backend.observe(), policy, knobs, protocol.solver)
            backend.apply(decision.plan)
            if protocol.is_joint and knobs.tuning.steered:
                world.wishes = {p.job_id: p.shares for p in decision.placements}
            decisions += 1
        world.schedule()
    _refuse_stuck(world)
    return Outcome(world, decisions)


def _listener(policy: Policy | None) -> Callable[[Ended], None] | None:
    """Who wants to know of jobs that end; only a policy that learns from them does."""
    return policy.ended if isinstance(policy, Learner) else None


def _order_of(policy: Policy, starvation: Bound | None) -> Order:
    """What a policy makes of the queue at an event; an inspector may let only some of it start."""
    if isinstance(policy, Inspected):
        return policy.order  # as published: its rejections have a bound of their own
    return by_score(policy, starvation)


def by_score(policy: Policy, starvation: Bound | None = None) -> Order:
    """The order that a policy's scores put the whole queue in; equal scores by submit order.

    Overdue jobs come before all that were submitted later.
    """

    def order(world: World) -> Sequence[Pending]:
        snapshot = snapshot_of(world)
        jobs = snapshot.pending
        scores = checked_scores(policy, encode(jobs, snapshot))
        # jobs stand in submit order, which a stable sort keeps among equals
        ranked = np.argsort(-scores, kind="stable")
        ranked = lift(ranked, overdue(jobs, snapshot, starvation))
        return [world.pending[jobs[i].job_id] for i in ranked.tolist()]

    return order


def clairvoyant(world: World) -> Sequence[Pending]:
    """Shortest true run time first."""
    return sorted(world.pending.values(), key=lambda p: (p.job.duration_s, p.number))


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
