"""What the policy may see of a job and of the cluster: the paper's 17 features, corrected.

Source: RLTune (SoCC 2025), Table 3 and equations 1 to 3. What is different here, and why:

- `submit_time` is the time since submission. The raw clock value ranks the same queue differently
  after a shift in time.
- `dsr` (eq. 1) is n / (n + free): same order as n / free, but finite when nothing is free.
- `future_avail` (eq. 2) subtracts the GPUs of running jobs from the free ones, where they are
  already missing. Here the GPUs that running jobs must return within an hour (by their time
  limits) are added instead: what would be free soon if this job started now.
- `cff` (eq. 3) leaves [0, 1]: an idle cluster of 20 nodes with 8 GPUs gives 1 - 8 = -7. Here each
  node's free share is squared instead of its free count: 0 when every free GPU stands on an
  otherwise free node, towards 1 when they are scraps.
- `requested_time` is the user's time limit, never the run time.

Every scale is a constant, so the same job gives the same numbers on every trace and every site.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.backlog import USE_GUESS, length_s
from rltuned.core.capacity import Capacity
from rltuned.core.cluster import BoolArray
from rltuned.core.pools import (
    FUTURE_HORIZON_S,
    WAYS_CAP,
    JobShapes,
    Pools,
    Sizes,
    Survey,
    pools_of,
    shapes_of,
    survey,
)
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import NO_CONTEXT, Context, RunTime, RunTimes, Snapshot
from rltuned.domain.units import JobId

FloatArray = NDArray[np.float64]
Float32Array = NDArray[np.float32]

GPUS_FULL: Final = 1024
CPUS_FULL: Final = 16_384
MEM_FULL_GIB: Final = 16_384
LIMIT_FULL_S: Final = 30 * 86_400.0
WAIT_FULL_S: Final = 7 * 86_400.0
URGENT_HALF_S: Final = 12 * 3_600.0
"""Wait at which urgency is one half; the authors' code lets waiting count up to 12 hours."""
RUN_COLUMNS: Final = 5
PLAN, EXPECTED = 0, 1
"""Places in StateMatrix.run_s."""
_NO_RUN: Final = RunTime(*(math.nan,) * RUN_COLUMNS, ends=0)
UNLIMITED_AS_S: Final = 365 * 86_400.0
"""Finite stand-in for an unlimited or unknown time limit where a formula needs a number."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One row of Table 3. column: index into StateMatrix.values, None = kept as metadata only."""

    name: str
    column: int | None
    formula: str
    unit: str
    scale: str
    source: str


FEATURES: Final = (
    Feature("job_id", None, "Slurm's record number", "-", "not encoded: says nothing", "T3"),
    Feature("user", None, "user, account, QOS", "-", "not encoded: for rules only", "T3"),
    Feature("virtual_cluster", None, "partitions", "-", "decides which nodes count", "T3"),
    Feature("gpu_type", None, "accepted GPU types", "-", "decides which GPUs count", "T3"),
    Feature("requested_gpus", 0, "n", "GPUs", "log2(1+n)/log2(1+1024)", "T3"),
    Feature("requested_time", 1, "r = time limit", "s", "ln(1+r)/ln(1+30 d)", "T3"),
    Feature("submit_time", 2, "w = now - submit", "s", "ln(1+w)/ln(1+7 d)", "T3, shifted"),
    Feature("req_cpu", 3, "CPUs", "CPUs", "log2(1+c)/log2(1+16384)", "T3"),
    Feature("req_mem", 4, "memory", "GiB", "log2(1+m)/log2(1+16384)", "T3"),
    Feature("free_nodes", 5, "wholly free nodes / nodes it may use", "-", "ratio", "T3"),
    Feature("can_schedule_now", 6, "1 if it fits now", "-", "0 or 1", "T3"),
    Feature("num_ways", 7, "disjoint placements now", "-", "min(k, 8)/8", "T3"),
    Feature("dsr", 8, "n / (n + F)", "-", "ratio", "eq. 1, bounded"),
    Feature("job_size", 9, "n * r", "GPU s", "ln(1+n r)/ln(1+1024*30 d)", "3.2"),
    Feature("urgency", 10, "w / (w + 12 h)", "-", "ratio", "3.2"),
    Feature("future_avail", 11, "(F - n + R) / C", "-", "(x+1)/2, clipped", "eq. 2, corrected"),
    Feature("cff", 12, "1 - sum f^2/G / sum f", "-", "ratio", "eq. 3, corrected"),
)  # fmt: skip
"""n: GPUs asked for. F, C: free and all GPUs of the accepted types in the job's partitions. R: of
those, the ones that running jobs must return within FUTURE_HORIZON_S. f, G: free and all GPUs of
one node."""

COLUMNS: Final = tuple(f.name for f in FEATURES if f.column is not None)
NUM_FEATURES: Final = len(COLUMNS)
COLUMN: Final = {name: i for i, name in enumerate(COLUMNS)}


def schema_id(features: Sequence[Feature]) -> str:
    """Of columns, formulas, scales and their constants; not of where a feature comes from."""
    rows = [(f.name, f.column, f.formula, f.unit, f.scale) for f in features]
    text = repr((rows, FUTURE_HORIZON_S, URGENT_HALF_S, UNLIMITED_AS_S))
    return f"rltuned-17-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


SCHEMA_ID: Final = schema_id(FEATURES)
"""A model trained on another schema is refused."""


@dataclass(frozen=True, slots=True)
class StateMatrix:
    """One row per eligible job, no padding. Shapes: (n, NUM_FEATURES) and (n,).

    The raw columns are what the classic rules use; limit_s is finite (see UNLIMITED_AS_S). size,
    length_s, expected_s, backlog_s: m, L, e and B of core/backlog; pools: who competes. slack_s:
    seconds that the job could still wait and end before its deadline; inf = it has none. run_s:
    (n, 5) what is predicted of the run time: plan, mean and quantiles of 10, 50 and 90%
    (domain/snapshot); NaN = nothing.
    """

    jobs: tuple[PendingJob, ...]
    values: Float32Array
    submit_s: FloatArray
    wait_s: FloatArray
    limit_s: FloatArray
    gpus: FloatArray
    cpus: FloatArray
    mem_mib: FloatArray
    priority: FloatArray
    size: FloatArray
    slack_s: FloatArray
    run_s: FloatArray
    length_s: FloatArray
    expected_s: FloatArray
    backlog_s: FloatArray
    pools: Pools
    cff: float

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def area(self) -> FloatArray:
        """(n,) expected areas of one task each, in GPU s."""
        return self.expected_s * self.size

    @property
    def work(self) -> FloatArray:
        """(n,) expected areas of all tasks that wait, in GPU s."""
        return self.pools.tasks * self.area

    def column(self, name: str) -> Float32Array:
        return self.values[:, COLUMN[name]]


def planning_limit_s(limit_s: float | None) -> float:
    """A time limit as a finite number; unlimited and unknown ones count as a year."""
    return UNLIMITED_AS_S if limit_s is None else min(limit_s, UNLIMITED_AS_S)


def encode(
    chosen: tuple[PendingJob, ...],
    snapshot: Snapshot,
    context: Context = NO_CONTEXT,
    where: Mapping[JobId, tuple[str, ...]] = MappingProxyType({}),
) -> StateMatrix:
    """Describe each chosen job by what a scheduler knows of it and of the nodes it could use: (n,
    NUM_FEATURES) float32, all in [0, 1]; row i is chosen[i]. where: the partitions of which its
    size, backlog and place are, if not all of its own (core/select).
    """
    capacity = Capacity.of(snapshot)
    shapes = shapes_of(chosen, capacity)
    gpus, cpus, mem_mib, limit_s = _requested(shapes)
    # PendingJob.waits_since of all at once
    came_s = np.array([job.submitted_at for job in chosen], dtype=np.float64)
    submit_s = np.maximum(came_s, [job.eligible_at or -math.inf for job in chosen])
    # a clock that lags behind slurmctld's must not make a wait negative
    wait_s = np.maximum(snapshot.taken_at - submit_s, 0.0)
    seen = survey(shapes, snapshot, capacity)
    size = _sizes(shapes, capacity, where)
    run_s = _run_s(chosen, context.run_times)
    length, run_s = length_s(limit_s), _never_cheaper(run_s, chosen, shapes, limit_s)
    use = USE_GUESS if context.limit_use is None else context.limit_use
    expected_s = expected(run_s, length, use)
    pools = pools_of(chosen, capacity, snapshot.room_in_arrays(), where)
    return StateMatrix(
        jobs=chosen,
        values=_scaled(gpus, cpus, mem_mib, wait_s, limit_s, seen=seen),
        submit_s=submit_s,
        wait_s=wait_s,
        limit_s=limit_s,
        gpus=gpus,
        cpus=cpus,
        mem_mib=mem_mib,
        priority=np.array([job.priority for job in chosen], dtype=np.float64),
        size=size,
        slack_s=_slack_s(chosen, limit_s, snapshot.taken_at),
        run_s=run_s,
        length_s=length,
        expected_s=expected_s,
        backlog_s=pools.backlogs_s(expected_s * size),
        pools=pools,
        cff=seen.cff,
    )


def _sizes(
    shapes: JobShapes, capacity: Capacity, where: Mapping[JobId, tuple[str, ...]]
) -> FloatArray:
    sizes = Sizes(capacity)
    found = [sizes.of(job.request, where.get(job.job_id, job.partitions)) for job in shapes.firsts]
    return np.array(found, dtype=np.float64)[shapes.rows]


def expected(run_s: FloatArray, length: FloatArray, use: float) -> FloatArray:
    """(n,) expected run times: the predicted mean, or what jobs here use of such a length."""
    mean_s = run_s[:, EXPECTED]
    found: FloatArray = np.where(np.isnan(mean_s), use * length, mean_s)
    return found


def _slack_s(jobs: Sequence[PendingJob], limit_s: FloatArray, now: float) -> FloatArray:
    at = np.array([job.deadline_at for job in jobs], dtype=np.float64)  # None becomes NaN
    found: FloatArray = np.where(np.isnan(at), np.inf, at - now - limit_s)
    return found


def _run_s(jobs: Sequence[PendingJob], known: RunTimes) -> FloatArray:
    if not known:
        return np.full((len(jobs), RUN_COLUMNS), np.nan)
    runs = [known.get(job.job_id, _NO_RUN) for job in jobs]
    numbers = np.fromiter(chain.from_iterable(runs), np.float64, len(_NO_RUN) * len(jobs))
    return numbers.reshape(-1, len(_NO_RUN))[:, :RUN_COLUMNS]


def _never_cheaper(
    run_s: FloatArray, jobs: Sequence[PendingJob], shapes: JobShapes, limit_s: FloatArray
) -> FloatArray:
    """The same, where of equal requests of one user a shorter limit has no longer plan and mean.

    A network's guess may grow a little when the limit shrinks; asking for less must never cost.
    """
    if np.isnan(run_s[:, PLAN]).all():
        return run_s
    numbers: dict[object, int] = {}
    asked = [
        (job.partitions, r.total, r.gpu_types, r.nodes, r.exclusive)
        for job, r in ((job, job.request) for job in shapes.firsts)
    ]
    kind = [numbers.setdefault(key, len(numbers)) for key in asked]
    known: dict[object, int] = {}
    group = np.array(
        [
            known.setdefault((*who, kind[row]), len(known))
            for who, row in zip(map(_kin, jobs), shapes.rows.tolist(), strict=True)
        ]
    )
    order = np.lexsort((limit_s, group))
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    last = np.append(first[1:], len(order)) - 1
    several = np.flatnonzero(limit_s[order[first]] < limit_s[order[last]])
    found = run_s.copy()
    for at in several.tolist():
        rows = order[first[at] : last[at] + 1]
        found[rows, : EXPECTED + 1] = np.fmax.accumulate(run_s[rows, : EXPECTED + 1])
    return found


def _kin(job: PendingJob) -> tuple[object, ...]:
    """What else is the same of equal requests; a job of no known user has no equal."""
    kinds = job.kinds
    who = job.user or job.job_id
    return who, job.account, job.qos, kinds.name, kinds.command, kinds.work_dir


def _requested(shapes: JobShapes) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """GPUs, CPUs, memory in MiB and finite time limit of every job, (n,) each."""
    asked = [
        (size.gpus, size.cpus, size.mem_mib, planning_limit_s(limit_s))
        for size, limit_s in ((j.request.size, j.request.time_limit_s) for j in shapes.firsts)
    ]
    table = np.array(asked, dtype=np.float64).reshape(-1, 4)[shapes.rows]
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def _scaled(
    gpus: FloatArray,
    cpus: FloatArray,
    mem_mib: FloatArray,
    wait_s: FloatArray,
    limit_s: FloatArray,
    *,
    seen: Survey,
) -> Float32Array:
    values = np.empty((len(gpus), NUM_FEATURES), dtype=np.float64)
    values[:, 0] = np.log2(1 + gpus) / math.log2(1 + GPUS_FULL)
    values[:, 1] = np.log1p(limit_s) / math.log1p(LIMIT_FULL_S)
    values[:, 2] = np.log1p(wait_s) / math.log1p(WAIT_FULL_S)
    values[:, 3] = np.log2(1 + cpus) / math.log2(1 + CPUS_FULL)
    values[:, 4] = np.log2(1 + mem_mib / 1024) / math.log2(1 + MEM_FULL_GIB)
    values[:, 5] = seen.idle_share
    values[:, 6] = seen.fits
    values[:, 7] = np.minimum(seen.ways, WAYS_CAP) / WAYS_CAP
    # gpus = 0 demands nothing: 0, also where nothing is free
    values[:, 8] = gpus / np.maximum(gpus + seen.free_gpus, 1.0)
    values[:, 9] = np.log1p(gpus * limit_s) / math.log1p(GPUS_FULL * LIMIT_FULL_S)
    values[:, 10] = wait_s / (wait_s + URGENT_HALF_S)
    ahead = (seen.free_gpus - gpus + seen.returning_gpus) / np.maximum(seen.all_gpus, 1.0)
    values[:, 11] = (ahead + 1) / 2
    values[:, 12] = seen.cff
    np.clip(values, 0.0, 1.0, out=values)
    return values.astype(np.float32)


# What the paper's actor reads: eight features of each of at most 256 jobs; here of any number.
#
# Source: RLTune section 3.2 (feature sampling, observation vector). The paper gives no
# thresholds: CFF_HIGH and SEVERAL_WAYS are chosen here. The two sampled slots keep one meaning
# ("speaks for running this job soon, 0 to 1") whichever feature fills them, since a network cannot
# see the switch.


MAX_QUEUE_SIZE: Final = 256
"""Jobs of a window, in the paper, in parity files and in imitation."""
OBSERVED: Final = 8
CFF_HIGH: Final = 0.5
"""From here on free GPUs are mostly scraps and small jobs are favoured over old ones."""
SEVERAL_WAYS: Final = 2
FIXED: Final = (
    "submit_time",
    "requested_gpus",
    "requested_time",
    "can_schedule_now",
    "dsr",
    "future_avail",
)
_FIXED_AT: Final = [COLUMN[name] for name in FIXED]
_SIZE, _URGENCY = COLUMN["job_size"], COLUMN["urgency"]
_WAYS, _FREE = COLUMN["num_ways"], COLUMN["free_nodes"]
_WAYS_FULL: Final = np.float32(WAYS_CAP)


def sample_features(matrix: StateMatrix) -> tuple[Float32Array, tuple[str, ...]]:
    """Choose eight features by the state of the cluster: (n, 8) of every job, and their names.

    - Much fragmentation: the sixth slot is 1 - job_size, so small short jobs that fill the scraps
      stand out. Otherwise it is the urgency of waiting.
    - Any job with several ways to be placed: the seventh slot is num_ways. Otherwise free_nodes.
    """
    fragmented = matrix.cff >= CFF_HIGH
    ways = matrix.column("num_ways")
    several = bool((ways * _WAYS_FULL >= SEVERAL_WAYS).any())
    sixth = "1-job_size" if fragmented else "urgency"
    names = (*FIXED, sixth, "num_ways" if several else "free_nodes")
    return sampled(matrix.values, fragmented, several), names


def sampled(
    rows: Float32Array, fragmented: BoolArray | bool, several: BoolArray | bool
) -> Float32Array:
    """(n, 8) of rows (n, features); fragmented, several: of all rows, or (n,) of each."""
    sixth = np.where(fragmented, 1 - rows[:, _SIZE], rows[:, _URGENCY])
    seventh = np.where(several, rows[:, _WAYS], rows[:, _FREE])
    return np.column_stack([rows[:, _FIXED_AT], sixth, seventh]).astype(np.float32)
