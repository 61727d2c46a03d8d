"""A history played by the plain world and the daemon's own `decide`."""

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rltuned.backtest.past import Past
from rltuned.core.decide import Knobs, Policy, decide
from rltuned.sim.backend import SimBackend
from rltuned.sim.decided import SimulatedJournal
from rltuned.sim.dispatch import Pending
from rltuned.sim.world import Rules, World, by_priority


class Decided(NamedTuple):
    """As sim/play has it: start_s, writes: (n,). cycles: time, queue, changes, shifts."""

    start_s: NDArray[np.float64]
    cycles: list[tuple[float, int, int, float, int]]
    writes: NDArray[np.int64]


def decided(past: Past, policy: Policy, interval_s: float, knobs: Knobs) -> Decided:
    """Slurm's own order up to the split, and from there the daemon's."""
    world = _begun(past)
    daemon = _Daemon(world, policy, knobs)
    scored = frozenset((np.flatnonzero(past.scored) + 1).tolist())
    last_s = max(j.submit_s for j, s in zip(past.jobs, past.scored, strict=True) if s)
    tick = _tick_from(0.0, past, interval_s)
    while world.now <= last_s or not scored.isdisjoint(world.pending):
        event = world.next_time()
        if not world.pending:
            assert event is not None
            tick = max(tick, _tick_from(event, past, interval_s))
        now = tick if event is None else min(event, tick)
        if event == now:
            world.happen()
        world.now = now
        if now == tick:
            if now >= past.split_s:
                daemon.cycle()
            tick += interval_s
        world.schedule()
    return daemon.played(past)


def _tick_from(now: float, past: Past, interval_s: float) -> float:
    """When Slurm looks at its queue without an event; the daemon's cycles are among them."""
    return past.split_s + math.ceil((now - past.split_s) / interval_s) * interval_s


def _begun(past: Past) -> World:
    """What ran is on the cluster, what waited may go from the beginning of the record on."""

    def order(world: World) -> list[Pending]:
        queue = by_priority(world)
        return queue if world.now >= 0 else [p for p in queue if p.number not in past.waiting]

    rules = Rules(backfill=past.site.backfill, natural=past.site.natural)
    world = World(past.site.cluster, past.jobs, rules=rules, order=order)
    while (event := world.next_time()) is not None and event < 0:
        world.step()
    world.now = 0.0
    world.schedule()
    return world


class _Daemon:
    def __init__(self, world: World, policy: Policy, knobs: Knobs) -> None:
        self._world, self._policy, self._knobs = world, policy, knobs
        self._backend, self._ledger = SimBackend(world), SimulatedJournal(world)
        self._cycles: list[tuple[float, int, int, float, int]] = []
        self._writes: Counter[int] = Counter()

    def cycle(self) -> None:
        world = self._world
        if not world.pending:
            return
        decision = decide(self._ledger.dress(self._backend.observe()), self._policy, self._knobs)
        self._ledger.note(decision, world.now)
        before = {p.number: rank for rank, p in enumerate(by_priority(world))}
        self._backend.apply(decision.plan)
        shifts = [abs(before[p.number] - rank) for rank, p in enumerate(by_priority(world))]
        actions = decision.plan.actions
        self._writes.update(int(a.target.job_id) for a in actions)
        shift, furthest = float(np.mean(shifts)), max(shifts)
        self._cycles.append((world.now, len(before), len(actions), shift, furthest))

    def played(self, past: Past) -> Decided:
        start_s = np.full(len(past.jobs), np.nan)
        for number, run in self._world.running.items():
            start_s[number - 1] = run.started_at
        for number, record in self._world.finished.items():
            start_s[number - 1] = record.started_at
        writes = np.array([self._writes[number] for number in range(1, len(past.jobs) + 1)])
        return Decided(start_s, self._cycles, writes)
