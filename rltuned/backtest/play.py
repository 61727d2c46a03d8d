"""The history played under Slurm's own order, and from a moment on under ours: one world for all.

Up to the switch there is one past, played once under the site's own weights. From there each order
goes on from a copy of that very world: same jobs, same placement, same backfill. The daemon's own
decision is played, at its own interval, within its bounds; between two cycles Slurm's order stands.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.backtest.past import Past
from rltuned.core.decide import Knobs, Policy, decide
from rltuned.sim.backend import SimBackend
from rltuned.sim.ledger import Ledger
from rltuned.sim.metrics import FloatArray
from rltuned.sim.world import Pending, Rules, World, by_priority

Report = Callable[[float], None]
"""Told how much of the record has been played, 0..1."""
ROUNDS: Final = 64
"""Between two reports."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle of the daemon: at_s since begin; pending jobs, changes; mean and longest shift of
    ranks over all pending jobs.
    """

    at_s: float
    pending: int
    changes: int
    shift: float
    furthest: int


@dataclass(frozen=True, slots=True)
class Played:
    """What became of every job, (n,): start and end in seconds since begin; nan = not started by
    the end of the play. touched: numbers of the jobs whose priority was changed.
    """

    start_s: FloatArray
    end_s: FloatArray
    cycles: tuple[Cycle, ...] = ()
    touched: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Terms:
    """How the daemon would run: its interval, and what steers it."""

    interval_s: float
    knobs: Knobs


def play_natural(past: Past, report: Report = lambda _part: None) -> tuple[Played, World]:
    """Slurm's own order throughout; and the world as it is right before rltuned is switched on."""
    world = _begun(past)
    while (now := world.next_time()) is not None and now < past.split_s:
        world.step()
        report(max(0.0, world.now) / _length(past))
    forked = _copy(world, past)
    counted = _Goal(past)
    while world.next_time() is not None and not counted.reached(world):
        world.step()
        report(world.now / _length(past))
    return _played(world, past), forked


def _begun(past: Past) -> World:
    """The world at the beginning of the record: who ran is on the cluster, who waited may go."""
    waiting = past.waiting

    def order(world: World) -> list[Pending]:
        queue = by_priority(world)
        return queue if world.now >= 0 else [p for p in queue if p.number not in waiting]

    rules = Rules(backfill=past.place.backfill, natural=past.place.natural)
    world = World(past.place.cluster, past.jobs, rules=rules, order=order)
    while (now := world.next_time()) is not None and now < 0:
        world.step()
    world.now = 0.0
    world.schedule()
    return world


def _copy(world: World, past: Past) -> World:
    """A world of its own; what never changes is shared."""
    fixed = (past.place.cluster, world.rules, world.grounds, *past.jobs)
    return copy.deepcopy(world, {id(one): one for one in fixed})


class _Goal:
    """All scored jobs have started."""

    def __init__(self, past: Past) -> None:
        self._scored = frozenset((np.flatnonzero(past.scored) + 1).tolist())
        self._last_s = max(j.submit_s for j, s in zip(past.jobs, past.scored, strict=True) if s)

    def reached(self, world: World) -> bool:
        """Whether nothing more can be learned from going on."""
        return world.now > self._last_s and self._scored.isdisjoint(world.pending)


def play_ours(
    forked: World,
    past: Past,
    policy: Policy,
    terms: Terms,
    report: Report = lambda _part: None,
) -> Played:
    """Our order from the split on.

    Args:
        forked: the world at the split; it is not changed.
        past: what it was made of.
        policy: who scores.
        terms: of the daemon.
        report: told how far it is.

    Raises:
        PolicyError: scores cannot be used.
    """
    world, goal = _copy(forked, past), _Goal(past)
    daemon = _Daemon(world, policy, terms.knobs)
    tick, rounds = past.split_s, 0
    while not goal.reached(world):
        event = world.next_time()
        if not world.pending:
            if event is None:
                break
            tick = max(tick, _tick_from(event, past.split_s, terms.interval_s))
        now = tick if event is None else min(event, tick)
        if event == now:
            world.happen()
        world.now = now
        changed = now == tick and daemon.cycle()
        if now == tick:
            tick += terms.interval_s
        if event == now or changed:
            world.schedule()
        rounds += 1
        if rounds % ROUNDS == 0:
            report(min(1.0, world.now / _length(past)))
    return _played(world, past, tuple(daemon.cycles), frozenset(daemon.touched))


def _tick_from(now: float, first: float, interval_s: float) -> float:
    """The first cycle at or after a time."""
    return first + math.ceil(max(0.0, now - first) / interval_s) * interval_s


class _Daemon:
    """The daemon beside a simulated cluster: decision, bounds and what its journal knows."""

    def __init__(self, world: World, policy: Policy, knobs: Knobs) -> None:
        self._world, self._policy, self._knobs = world, policy, knobs
        self._backend, self._ledger = SimBackend(world), Ledger()
        self.cycles: list[Cycle] = []
        self.touched: set[int] = set()

    def cycle(self) -> bool:
        """Observe, decide, apply; whether anything was changed."""
        world = self._world
        if not world.pending:
            return False
        seen = self._ledger.dress(self._backend.observe())
        decision = decide(seen, self._policy, self._knobs)
        plan = decision.plan
        self._ledger.note(decision, world.now)
        if plan.is_empty:
            self.cycles.append(Cycle(world.now, len(world.pending), 0, 0.0, 0))
            return False
        before = {p.number: rank for rank, p in enumerate(by_priority(world))}
        self._backend.apply(plan)
        shifts = [abs(before[p.number] - rank) for rank, p in enumerate(by_priority(world))]
        self.touched.update(int(a.target.job_id) for a in plan.actions)
        self.cycles.append(
            Cycle(
                at_s=world.now,
                pending=len(before),
                changes=len(plan.actions),
                shift=float(np.mean(shifts)),
                furthest=max(shifts),
            )
        )
        return True


def _length(past: Past) -> float:
    return max(1.0, past.until - past.begin)


def _played(
    world: World,
    past: Past,
    cycles: tuple[Cycle, ...] = (),
    touched: frozenset[int] = frozenset(),
) -> Played:
    start_s: NDArray[np.float64] = np.full(len(past.jobs), np.nan)
    for number, run in world.running.items():
        start_s[number - 1] = run.started_at
    for number, record in world.finished.items():
        start_s[number - 1] = record.started_at
    runs_s = np.array([min(j.duration_s, j.time_limit_s) for j in past.jobs])
    return Played(start_s, start_s + runs_s, cycles, touched)
