"""The simulated Slurm in plain Python, which people read, for all that the kernel plays.

`play_direct` orders the queue at every event. `play_decided` goes the whole way of the daemon:
observe, decide, apply, once per interval, with a journal's memory of what was written.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from rltuned.core.decide import Policy
from rltuned.core.features import (
    FloatArray,
    StateMatrix,
    encode,
)
from rltuned.core.order import Order, bounded
from rltuned.lab.replay.decided import DecidedWorld
from rltuned.lab.replay.metrics import Schedule
from rltuned.lab.replay.play import Played, played_by
from rltuned.lab.replay.protocol import CLAIRVOYANT, CLAIRVOYANT_AREA, Protocol, policy_of
from rltuned.lab.replay.run import schedule_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.backend import snapshot_of
from rltuned.sim.world import AGE_ONLY, Natural, Pending, World

Ranking = Callable[[World], Sequence[Pending]]


def plainly(window: Scenario, policy: str, protocol: Protocol) -> Schedule:
    """As replay/run.simulate."""
    if policy == "multifactor":
        natural = window.rules.natural
        own = natural if natural != AGE_ONLY else Natural()
        window = window.ordered_by(replace(own, kind="multifactor"))
    chosen = scorer_of(policy)
    if protocol.mode == "event":
        return as_schedule(play_direct(window, chosen, protocol), window)
    assert not callable(chosen)
    return as_schedule(play_decided(window, chosen, protocol), window)


def as_schedule(played: Played, window: Scenario) -> Schedule:
    return schedule_of(played, window, 0.0)


def scorer_of(name: str) -> Policy | Ranking:
    """A policy, or an order that no policy can know."""
    if name in {CLAIRVOYANT, CLAIRVOYANT_AREA}:
        return clairvoyant if name == CLAIRVOYANT else clairvoyant_area
    found = policy_of(name)
    assert not isinstance(found, str)
    return found


def play_direct(window: Scenario, policy: Policy | Ranking, protocol: Protocol) -> Played:
    """Order the queue at every event, by a policy or by what no policy can know."""
    ranking = policy if callable(policy) else by_policy(policy, protocol.order)
    passes = 0

    def counted(world: World) -> Sequence[Pending]:
        nonlocal passes
        passes += 1
        return ranking(world)

    world = World(
        window.cluster, window.arriving, rules=window.rules, faults=window.faults, order=counted
    )
    while world.next_time() is not None:
        world.step()
    return played_by(world, passes, {})


def play_decided(window: Scenario, policy: Policy, protocol: Protocol) -> Played:
    """Let the daemon's own decision write priorities, once per interval or at every event."""
    decided = DecidedWorld(window.world(), replace(protocol, solver=None)).play(policy)
    return played_by(decided.world, decided.decisions, decided.written)


def by_policy(policy: Policy, order: Order | None) -> Ranking:
    """The order that a policy puts the whole queue in; equal jobs by submit order.

    By virtual time within the bounds; without bounds, by the policy's scores.
    """

    ledgers: dict[int, DecidedWorld] = {}

    def ranked(world: World) -> Sequence[Pending]:
        ledger, snapshot = (
            ledgers.setdefault(id(world), DecidedWorld(world, Protocol())),
            snapshot_of(world),
        )
        context = ledger.known(snapshot)
        jobs = tuple(sorted(snapshot.pending, key=lambda j: j.job_id))
        keys = _keys(policy, encode(jobs, snapshot, context), order)
        return [world.pending[jobs[i].job_id] for i in np.argsort(keys, kind="stable").tolist()]

    return ranked


def _keys(policy: Policy, matrix: StateMatrix, order: Order | None) -> FloatArray:
    """(n,) smaller first."""
    if order is None:
        return -policy.score(matrix)
    if policy.name == "multifactor":  # it delays no job: Slurm's own order
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
