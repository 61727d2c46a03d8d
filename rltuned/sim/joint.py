"""Joint placement, played: the daemon's own decision beside a world of objects.

The kernel knows no joint placement, so this is the one comparison that it does not play.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rltuned.core.decide import Knobs, Policy, decide
from rltuned.errors import TraceError
from rltuned.sim.backend import SimBackend
from rltuned.sim.cluster import Cluster
from rltuned.sim.ledger import SimulatedJournal
from rltuned.sim.protocol import Protocol
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import World


@dataclass(frozen=True, slots=True)
class PlayedWorld:
    """A world at its end, how often the queue was ranked, and how many numbers were written."""

    world: World
    decisions: int
    writes: int


def play_jointly(
    cluster: Cluster, jobs: Sequence[TraceJob], policy: Policy, protocol: Protocol
) -> PlayedWorld:
    """Let the decision write priorities, once per interval or (event mode) at every event.

    Raises:
        TraceError: a job can never start.
    """
    world = World(cluster, jobs, rules=protocol.rules, faults=protocol.faults)
    backend, journal, decisions = SimBackend(world), SimulatedJournal(), 0
    interval_s = protocol.interval_s if protocol.mode == "cycle" else 0.0
    knobs = protocol.knobs if interval_s else at_once(protocol.knobs)
    first_s = jobs[0].submit_s if jobs else 0.0
    while (now := next_time(world, first_s, interval_s)) is not None:
        if world.next_time() == now:
            world.happen()
        world.now = now
        if world.pending and (not interval_s or tick_at(now, first_s, interval_s) == now):
            decision = decide(journal.dress(backend.observe()), policy, knobs, protocol.solver)
            backend.apply(decision.plan)
            journal.note(decision, now)
            if knobs.tuning.steered:
                world.wishes = {p.job_id: p.shares for p in decision.placements}
            decisions += 1
        world.schedule()
    if world.pending:
        number, job = min(world.pending.items())
        raise TraceError(
            f"{len(world.pending)} jobs can never start, the first is {job.job.job_id} "
            f"(row {number}): the nodes they need are down or drained to the end"
        )
    return PlayedWorld(world, decisions, sum(journal.writes.values()))


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
