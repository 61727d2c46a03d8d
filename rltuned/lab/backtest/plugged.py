"""A policy of another package on a site's history: what backtest/play does, with objects in place
of the kernel, which cannot call it. It takes a hundred times as long.
"""

from collections.abc import Callable, Iterable

import numpy as np

from rltuned.core.decide import Knobs, Policy, decide
from rltuned.domain.units import JobId
from rltuned.lab.backtest.past import Past
from rltuned.lab.kernel.state import Shares
from rltuned.lab.replay.decided import SimulatedJournal, next_time, tick_at
from rltuned.lab.replay.play import Played
from rltuned.lab.replay.plugged import Learning
from rltuned.policies.predictor import Predictor
from rltuned.sim.backend import SimBackend
from rltuned.sim.dispatch import Pending
from rltuned.sim.world import Rules, World, by_priority

Row = tuple[float, int, int, float, int]
"""A cycle: its time, pending jobs, changes, the mean and the largest shift of ranks."""


def play_plugged(
    past: Past, policy: Policy, interval_s: float, knobs: Knobs, predictor: Predictor | None
) -> Played:
    """The policy's order from the split on, on nodes that are not known; cycles for which no scored
    job waits are left out. Raises PolicyError: it gives no usable delays.
    """
    rules = Rules(backfill=past.site.backfill, natural=past.site.natural)
    world = World(past.site.cluster, past.jobs, rules=rules, order=_order(past.waiting))
    daemon = _Daemon(world, past, policy, knobs, predictor)
    while (now := next_time(world, past.split_s, interval_s)) is not None:
        if world.now < 0 < now:
            now = 0.0  # what waited at the beginning of the record may start
        if world.next_time() == now:
            world.happen()
        world.now = now
        if world.pending and now >= past.split_s and tick_at(now, past.split_s, interval_s) == now:
            daemon.cycle()
        world.schedule()
    ended = [world.finished[number] for number in range(1, len(past.jobs) + 1)]
    start_s = np.array([one.started_at for one in ended])
    last_s, nowhere = float(start_s[past.scored].max()), np.zeros(0, dtype=np.int64)
    return Played(
        start_s=start_s,
        end_s=np.array([one.ended_at for one in ended]),
        offset=np.zeros(len(ended) + 1, dtype=np.int64),
        shares=Shares(nowhere, nowhere, nowhere, nowhere, nowhere),
        passes=0,
        cycles=[row for row in daemon.rows if row[0] <= last_s],
        writes=np.array([daemon.writes.get(JobId(n + 1), 0) for n in range(len(ended))]),
        by_cycles=True,
        lost_gpu_s=0.0,
    )


def _order(waited: frozenset[int]) -> Callable[[World], Iterable[Pending]]:
    """Slurm's; waited: jobs that may not start before the record begins."""

    def ordered(world: World) -> Iterable[Pending]:
        jobs = by_priority(world)
        return jobs if world.now >= 0 else (job for job in jobs if job.number not in waited)

    return ordered


class _Daemon:
    """Its cycles, and what its journal and its memory of run times would hold."""

    def __init__(
        self, world: World, past: Past, policy: Policy, knobs: Knobs, predictor: Predictor | None
    ) -> None:
        self._world, self._policy, self._knobs = world, policy, knobs
        self._backend, self._journal = SimBackend(world), SimulatedJournal(world)
        self._learning = None if predictor is None else Learning(world, past.jobs, predictor)
        self.rows: list[Row] = []
        self.writes = self._journal.writes

    def cycle(self) -> None:
        """Observe, decide, write."""
        seen = self._journal.dress(self._backend.observe())
        if self._learning is not None:
            seen = self._learning.shown(seen)
        decision = decide(seen, self._policy, self._knobs)
        changes, before = len(decision.plan.actions), self._ranks()
        self._backend.apply(decision.plan)
        self._journal.note(decision, self._world.now)
        shifts = [abs(rank - before[number]) for number, rank in self._ranks().items()]
        furthest, mean = (max(shifts), sum(shifts) / len(shifts)) if changes else (0, 0.0)
        self.rows.append((self._world.now, len(shifts), changes, mean, furthest))

    def _ranks(self) -> dict[int, int]:
        return {job.number: rank for rank, job in enumerate(by_priority(self._world))}
