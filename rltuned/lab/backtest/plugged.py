"""A policy of another package on a site's history: what backtest/play does, with objects in place
of the kernel, which cannot call it. It takes a hundred times as long.
"""

from collections.abc import Callable, Iterable

import numpy as np

from rltuned.core.decide import Policy
from rltuned.domain.units import JobId
from rltuned.lab.backtest.past import Past
from rltuned.lab.kernel.state import Shares
from rltuned.lab.replay.decided import DecidedWorld, Learning
from rltuned.lab.replay.play import Played
from rltuned.lab.replay.protocol import Protocol
from rltuned.sim.dispatch import Pending
from rltuned.sim.world import Rules, World, by_priority


def play_plugged(past: Past, policy: Policy, protocol: Protocol) -> Played:
    """The policy's order from the split on, on nodes that are not known; cycles for which no scored
    job waits are left out. Raises PolicyError: it gives no usable delays.
    """
    rules = Rules(backfill=past.site.backfill, natural=past.site.natural)
    world = World(past.site.cluster, past.jobs, rules=rules, order=_order(past.waiting))
    # what waited at the beginning of the record may start at 0
    decided = DecidedWorld(world, protocol, past.split_s, looks_at_s=0.0)
    predictor, rows = protocol.predictor, []
    learning = None if predictor is None else Learning(world, past.jobs, predictor)
    while (seen := decided.due()) is not None:
        before = _ranks(world)
        decision = decided.decide(
            seen, policy, {} if learning is None else learning.predicted(seen)
        )
        changes, shifts = len(decision.plan.actions), _shifts(before, _ranks(world))
        furthest, mean = (max(shifts), sum(shifts) / len(shifts)) if changes else (0, 0.0)
        rows.append((world.now, len(shifts), changes, mean, furthest))
    ended = [world.finished[number] for number in range(1, len(past.jobs) + 1)]
    start_s = np.array([one.started_at for one in ended])
    last_s, nowhere = float(start_s[past.scored].max()), np.zeros(0, dtype=np.int64)
    return Played(
        start_s=start_s,
        end_s=np.array([one.ended_at for one in ended]),
        offset=np.zeros(len(ended) + 1, dtype=np.int64),
        shares=Shares(nowhere, nowhere, nowhere, nowhere, nowhere),
        decisions=decided.decisions,
        cycles=[row for row in rows if row[0] <= last_s],
        writes=np.array([decided.written.get(JobId(n + 1), 0) for n in range(len(ended))]),
        lost_gpu_s=0.0,
    )


def _order(waited: frozenset[int]) -> Callable[[World], Iterable[Pending]]:
    """Slurm's; waited: jobs that may not start before the record begins."""

    def ordered(world: World) -> Iterable[Pending]:
        jobs = by_priority(world)
        return jobs if world.now >= 0 else (job for job in jobs if job.number not in waited)

    return ordered


def _ranks(world: World) -> dict[int, int]:
    return {job.number: rank for rank, job in enumerate(by_priority(world))}


def _shifts(before: dict[int, int], after: dict[int, int]) -> list[int]:
    return [abs(rank - before[number]) for number, rank in after.items()]
