"""A trace on a cluster as the orders see it: its jobs, their columns, what they may ask for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rltuned.core.backlog import USE_GUESS, length_s
from rltuned.core.features import (
    EXPECTED,
    PLAN,
    RUN_COLUMNS,
    StateMatrix,
    expected,
    planning_limit_s,
)
from rltuned.core.limits import USE_SUMS
from rltuned.core.order import Order, clip_s
from rltuned.core.pools import Pools, numbered, shared
from rltuned.lab.kernel.compiler import FloatArray, IntArray
from rltuned.lab.kernel.demand import ORDERS, Demand
from rltuned.lab.kernel.features import StaticFeatures
from rltuned.lab.kernel.run_times import Layers
from rltuned.lab.kernel.sorting import nothing_sorted
from rltuned.lab.replay.prepared import Prepared
from rltuned.policies.baselines import Baseline
from rltuned.sim.cluster import Cluster
from rltuned.sim.natural import Natural
from rltuned.sim.trace import TraceJob


@dataclass(frozen=True, slots=True)
class Stage:
    """A trace on a cluster, ready to be ordered.

    natural: what Slurm's own priorities are made of. sight: what a network may know of it, where
    that has been worked out. predictor: of run times; None = policies go by foreseen_s (n, 2),
    plans and expected run times, or where that is None too by the limits.
    """

    cluster: Cluster
    jobs: Sequence[TraceJob]
    prepared: Prepared
    natural: Natural
    sight: StaticFeatures | None = None
    predictor: Layers | None = None
    foreseen_s: FloatArray | None = None

    @property
    def limit_s(self) -> FloatArray:
        """(n,) finite time limits."""
        return np.array(
            [planning_limit_s(r.time_limit_s) for r in self.prepared.requests], dtype=np.float64
        )

    @property
    def gpus(self) -> FloatArray:
        """(n,) asked for."""
        return np.array([r.total.gpus for r in self.prepared.requests], dtype=np.float64)

    @property
    def run_s(self) -> FloatArray:
        """(n, RUN_COLUMNS) as StateMatrix.run_s."""
        run_s = np.full((len(self.jobs), RUN_COLUMNS), np.nan)
        if self.foreseen_s is not None:
            run_s[:, [PLAN, EXPECTED]] = self.foreseen_s
        return run_s

    def matrix(self) -> StateMatrix:
        """The columns that the static rules read; who competes is not among them."""
        nothing, nobody = np.zeros(len(self.jobs)), np.zeros(0, dtype=np.int64)
        length, run_s = length_s(self.limit_s), self.run_s
        return StateMatrix(
            jobs=(),
            values=np.zeros((0, 0), dtype=np.float32),
            submit_s=self.prepared.jobs.submit_s,
            wait_s=nothing,
            limit_s=self.limit_s,
            gpus=self.gpus,
            cpus=nothing,
            mem_mib=nothing,
            priority=nothing,
            size=self.prepared.size,
            slack_s=np.full(len(self.jobs), np.inf),
            run_s=run_s,
            length_s=length,
            expected_s=expected(run_s, length, USE_GUESS),
            backlog_s=nothing,
            pools=Pools(nobody, nobody, 0, np.zeros((0, 0)), np.zeros(0)),
            cff=0.0,
        )

    def demand(self, order: Order, rule: Baseline | None = None) -> Demand:
        """What policies may ask for within the bounds. rule: one that needs no prediction."""
        prepared, matrix, count = self.prepared, self.matrix(), len(self.jobs)
        user, users = numbered([job.user for job in self.jobs])
        overlap, gpus = shared(prepared.units)
        own_s = np.zeros(count) if rule is None else rule.own(matrix)
        return Demand(
            own=order.own,
            share=order.share if rule is None or rule.key is not None else 0.0,
            own_s=own_s,
            key=np.zeros(count) if rule is None or rule.key is None else rule.key(matrix),
            length_s=matrix.length_s,
            size=matrix.size,
            expected_s=np.ascontiguousarray(matrix.run_s[:, EXPECTED]),
            clip_s=clip_s(matrix.length_s, matrix.size, order),
            most_s=np.full(count, order.max_delay_s),
            pool=prepared.pool,
            user=user,
            users=users,
            units=prepared.units,
            overlap=overlap,
            gpus=gpus,
            used=np.zeros((1 + len({job.user for job in self.jobs if job.user}), USE_SUMS)),
            group=self._equal_requests(),
            seen=np.zeros((count, 4)),
            orders=nothing_sorted(count, ORDERS),
        )

    def _equal_requests(self) -> IntArray:
        """(n,) a number for each user's requests that are equal but for their limits; -1 = of no
        known user.
        """
        numbers: dict[tuple[object, ...], int] = {}
        found = [
            numbers.setdefault((job.user, job.account, job.qos, job.name, shape), len(numbers))
            if job.user
            else -1
            for job, shape in zip(self.jobs, self.prepared.jobs.shape.tolist(), strict=True)
        ]
        return np.array(found, dtype=np.int64)
