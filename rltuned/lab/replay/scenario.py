"""Scenario: a trace on a cluster at a load, from an empty cluster on, ready for any order.

One is prepared once; a window is a slice of it, with submit times stretched to the load that was
asked for, so thousands of windows cost almost nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
from rltuned.errors import TraceError
from rltuned.lab.kernel.compiler import Float32Array, FloatArray, IntArray
from rltuned.lab.kernel.demand import Demand
from rltuned.lab.kernel.features import StaticFeatures
from rltuned.lab.kernel.run_times import Layers
from rltuned.lab.kernel.state import Jobs
from rltuned.lab.replay.prepared import Prepared, prepare, sight_of
from rltuned.lab.replay.trace_file import demand
from rltuned.policies.actor import FIRST_OF_QUEUE, FIRST_QUANTILE
from rltuned.policies.baselines import Baseline
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Fault, Natural, Rules, World


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What is predicted of n jobs at submission. quantiles: (n, 3). plan_s, mean_s: (n,)."""

    quantiles: Float32Array
    plan_s: FloatArray
    mean_s: FloatArray


@dataclass(frozen=True, slots=True)
class Scenario:
    """A trace on a cluster, all jobs or consecutive ones.

    Attributes:
        jobs: in order of submission, with the submit times of the trace; submit_s has those that
            count here.
        rules: how Slurm places and backfills here, and what its own priorities are made of.
        faults: what befalls nodes.
        first: place in the trace of the first job. warmup: so many first jobs run and are not
            scored.
        price: (n,) of a second that a job waits, see train/rollout.
        seen: what a network may know of it, where that has been worked out.
        predictor: of run times; None = policies go by foreseen_s (n, 2), plans and expected run
            times, or where that is None too by the limits.
    """

    name: str
    cluster: Cluster
    jobs: tuple[TraceJob, ...]
    prepared: Prepared
    price: FloatArray
    rules: Rules = field(default_factory=Rules)
    faults: tuple[Fault, ...] = ()
    first: int = 0
    warmup: int = 0
    seen: StaticFeatures | None = None
    predictor: Layers | None = None
    foreseen_s: FloatArray | None = None

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        jobs: Sequence[TraceJob],
        rules: Rules | None = None,
        faults: Sequence[Fault] = (),
        *,
        name: str = "",
        warmup: int = 0,
    ) -> "Scenario":
        """Prepare a trace, in submit order. Raises TraceError: a job can never run there."""
        if not jobs:
            raise TraceError(f"{name or cluster.name}: no jobs")
        return cls(
            name,
            cluster,
            tuple(jobs),
            prepare(cluster, jobs),
            np.ones(len(jobs)),
            rules or Rules(),
            tuple(faults),
            warmup=warmup,
        )

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def submit_s(self) -> FloatArray:
        """(n,)"""
        return self.prepared.jobs.submit_s

    @property
    def duration_s(self) -> FloatArray:
        """(n,) true run times, for rewards and figures alone."""
        return np.array([job.duration_s for job in self.jobs], dtype=np.float64)

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
        run_s = np.full((len(self), RUN_COLUMNS), np.nan)
        if self.foreseen_s is not None:
            run_s[:, [PLAN, EXPECTED]] = self.foreseen_s
        return run_s

    @property
    def sight(self) -> StaticFeatures:
        """What a network may know of it."""
        return self.seen or sight_of(self.cluster, self.jobs, self.prepared)

    # -- The same scenario otherwise --------------------------------------------------------------

    def ordered_by(self, natural: Natural) -> "Scenario":
        """Where Slurm's own priorities are made of something else."""
        return replace(self, rules=replace(self.rules, natural=natural))

    def for_networks(self) -> "Scenario":
        """With what a network may know, worked out once for all windows."""
        return replace(self, seen=self.sight)

    def foreseeing(self, found: Foreseen | None) -> "Scenario":
        """With what a run-time predictor says of its jobs; None: as it is."""
        if found is None:
            return self
        sight = self.sight
        fixed = sight.fixed.copy()
        fixed[:, FIRST_QUANTILE:FIRST_OF_QUEUE] = found.quantiles
        foreseen_s = np.column_stack([found.plan_s, found.mean_s])
        return replace(self, seen=sight._replace(fixed=fixed), foreseen_s=foreseen_s)

    def cut(
        self,
        first: int,
        size: int,
        *,
        load: float | None = None,
        jitter: np.random.Generator | None = None,
        jitter_s: float = 60.0,
    ) -> "Scenario":
        """Consecutive jobs, submitted from second 0 on. load: GPU demand as a part of the cluster's
        GPUs; None = as in the trace. jitter: each submit moves by up to jitter_s. Raises
        TraceError.
        """
        if size < 1 or first < 0 or first + size > len(self):
            raise TraceError(
                f"{self.name}: no window of {size} jobs from job {first + 1}: it has {len(self)}"
            )
        part, whole = slice(first, first + size), self.prepared
        old = whole.jobs
        wide = whole.shapes.width[old.shape[part]]
        jobs = Jobs(
            submit_s=self._submits(part, load, jitter, jitter_s),
            runs_s=old.runs_s[part].copy(),
            limit_s=old.limit_s[part].copy(),
            shape=old.shape[part].copy(),
            offset=np.cumsum(wide) - wide,
        )
        seen, foreseen_s = self.seen, self.foreseen_s
        return replace(
            self,
            jobs=self.jobs[part],
            prepared=replace(
                whole,
                jobs=jobs,
                requests=whole.requests[part],
                partition_factor=whole.partition_factor[part],
                size=whole.size[part],
                pool=whole.pool[part],
            ),
            price=self.price[part],
            first=first,
            seen=None if seen is None else seen._replace(fixed=seen.fixed[part]),
            foreseen_s=None if foreseen_s is None else foreseen_s[part],
        )

    def _submits(
        self, part: slice, load: float | None, jitter: np.random.Generator | None, jitter_s: float
    ) -> FloatArray:
        """(n,) submit times of some of the jobs, from 0; see cut."""
        old = self.prepared.jobs
        submit_s: FloatArray = old.submit_s[part] - old.submit_s[part][0]
        if jitter is not None:
            submit_s = np.sort(submit_s + jitter.uniform(0.0, jitter_s, len(submit_s)))
            submit_s -= submit_s[0]
        if load is None:
            return submit_s
        gpus = self.prepared.shapes.gpus[old.shape[part]].astype(np.float64)
        wanted = load * self.prepared.cluster_gpus
        submit_s *= stretch(submit_s, old.runs_s[part], gpus, wanted)
        return submit_s

    # -- What it is played in ---------------------------------------------------------------------

    @property
    def arriving(self) -> tuple[TraceJob, ...]:
        """Its jobs with the submit times that count here."""
        moved = zip(self.jobs, self.submit_s.tolist(), strict=True)
        return tuple(replace(job, submit_s=submit_s) for job, submit_s in moved)

    def world(self) -> World:
        """A world of objects before the first job, for what the kernel cannot play."""
        return World(self.cluster, self.arriving, rules=self.rules, faults=self.faults)

    def matrix(self) -> StateMatrix:
        """The columns that the static rules read; who competes is not among them."""
        nothing, nobody = np.zeros(len(self)), np.zeros(0, dtype=np.int64)
        length, run_s = length_s(self.limit_s), self.run_s
        return StateMatrix(
            jobs=(),
            values=np.zeros((0, 0), dtype=np.float32),
            submit_s=self.submit_s,
            wait_s=nothing,
            limit_s=self.limit_s,
            gpus=self.gpus,
            cpus=nothing,
            mem_mib=nothing,
            priority=nothing,
            size=self.prepared.size,
            slack_s=np.full(len(self), np.inf),
            run_s=run_s,
            length_s=length,
            expected_s=expected(run_s, length, USE_GUESS),
            backlog_s=nothing,
            pools=Pools(nobody, nobody, 0, np.zeros((0, 0)), np.zeros(0), np.zeros(0)),
            cff=0.0,
        )

    def demand(self, order: Order, rule: Baseline | None = None) -> Demand:
        """What policies may ask for within the bounds. rule: one that needs no prediction."""
        prepared, matrix, count = self.prepared, self.matrix(), len(self)
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


def stretch(submit_s: FloatArray, runs_s: FloatArray, gpus: FloatArray, wanted: float) -> float:
    """Factor on the submit times that makes the demand what is wanted; bisection on its log."""
    low, high = -12.0, 12.0
    for _ in range(50):
        middle = (low + high) / 2
        if demand(submit_s * math.exp(middle), runs_s, gpus) > wanted:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)
