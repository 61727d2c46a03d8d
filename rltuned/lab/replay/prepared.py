"""A trace on a cluster as the kernel's arrays: hardware, jobs, and what a network sees of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.features import encode
from rltuned.core.placement import ceil_div, width
from rltuned.core.pools import Sizes, units_of
from rltuned.core.run_times import QUANTILES
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import TraceError
from rltuned.lab.kernel.compiler import Float32Array, FloatArray, IntArray
from rltuned.lab.kernel.features import PAPER, QUEUE, Features, Net, StaticFeatures
from rltuned.lab.kernel.ranking import NO_EYES, Eyes
from rltuned.lab.kernel.state import Hardware, Jobs, Shapes
from rltuned.policies.actor import (
    FIRST_OF_QUEUE,
    FIRST_QUANTILE,
    LAYERS,
    QUEUE_FEATURES,
    Network,
    quantile_columns,
)
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import EmptyCluster, TraceJob, idle, in_partition

SLOTS_OF_THE_MOMENT = (2, 5, 6, 7, 8, 10, 11, 12)
"""Columns of the features that change while a job waits; kernel/features fills them in."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A trace on a cluster as arrays, ready to be played under any order. size: (n,) m of
    core/backlog. pool: (n,) and units: (P, N), the pools there and their GPUs on every node.
    """

    hardware: Hardware
    shapes: Shapes
    jobs: Jobs
    requests: tuple[Request, ...]
    partition_factor: FloatArray
    cluster_gpus: int
    size: FloatArray
    pool: IntArray
    units: FloatArray


def prepare(cluster: Cluster, jobs: Sequence[TraceJob]) -> Prepared:
    """Turn objects into arrays. Raises TraceError: a job can never run on this cluster."""
    empty, by_name = EmptyCluster(cluster), {p.name: p for p in cluster.partitions}
    names, capacity = list(by_name), empty.capacity
    row_of: dict[object, int] = {}
    known: dict[tuple[int, str], tuple[int, Request]] = {}
    found: list[tuple[Request, str]] = []
    shape, requests, kept = np.empty(len(jobs), dtype=np.int64), list[Request](), list[Request]()
    for i, job in enumerate(jobs):
        if why := empty.why_not(job):
            raise TraceError(f"job {job.job_id} can never run on {cluster.name}: {why}")
        partition = job.partition or cluster.default_partition
        request = job.request()
        kept.append(request)  # alive, so that its id stays its own
        if (id(request), partition) not in known:
            asked = in_partition(request, by_name[partition])
            key = (asked.total, asked.gpu_types, asked.nodes, asked.exclusive, partition)
            if key not in row_of:
                row_of[key] = len(found)
                found.append((asked, partition))
            known[id(request), partition] = (row_of[key], asked)
        shape[i], asked = known[id(request), partition]
        requests.append(asked)
    shapes, sizes = _shapes(found, names, capacity), Sizes(capacity)
    size = np.array([sizes.of(request, (name,)) for request, name in found], dtype=np.float64)
    pools = [((name,), capacity.accepted(request)) for request, name in found]
    units = [units_of(*pool, capacity) for pool in dict.fromkeys(pools)]
    factors = np.array([p.priority_factor for p in cluster.partitions], dtype=np.float64)
    return Prepared(
        _hardware(capacity, names),
        shapes,
        _jobs(jobs, requests, shape, shapes),
        tuple(requests),
        (factors / max(1.0, factors.max()))[shapes.partition[shape]],
        max(1, cluster.gpus),
        size[shape],
        _ints(_numbered(pools))[shape],
        np.array(units).reshape(len(units), -1),
    )


def _hardware(capacity: Capacity, names: Sequence[str]) -> Hardware:
    member = np.array([capacity.members_of((name,)) for name in names])
    near = (member.astype(np.int64) @ member.T.astype(np.int64)) > 0
    np.fill_diagonal(near, True)
    return Hardware(
        total=capacity.total,
        member=member,
        near=near,
    )


def _shapes(
    found: Sequence[tuple[Request, str]], names: Sequence[str], capacity: Capacity
) -> Shapes:
    need, accepts = [], np.zeros((len(found), len(capacity.gpu_types) + 1), dtype=bool)
    families: list[object] = []
    for at, (request, partition) in enumerate(found):
        total = request.total
        count, rows = width(request, capacity.members_of((partition,)), capacity)
        need.append((total, count))
        accepts[at, list(rows)] = True
        # shapes that ask the same of each node are one family, see kernel/state.Shapes
        family: object = at
        even = not (total.gpus % count or total.cpus % count or total.mem_mib % count)
        if even and len(rows) == 1:
            each = (total.gpus // count, total.cpus // count, total.mem_mib // count)
            family = (*each, *rows, request.exclusive, partition)
        families.append(family)
    return Shapes(
        gpus=_ints([t.gpus for t, _ in need]),
        cpus=_ints([t.cpus for t, _ in need]),
        mem_mib=_ints([t.mem_mib for t, _ in need]),
        width=_ints([w for _, w in need]),
        accepts=accepts,
        low=_ints([t.gpus // w for t, w in need]),
        larger=_ints([t.gpus % w for t, w in need]),
        cpus_each=_ints([ceil_div(t.cpus, w) for t, w in need]),
        mem_each=_ints([ceil_div(t.mem_mib, w) for t, w in need]),
        exclusive=np.array([r.exclusive for r, _ in found]),
        partition=_ints([names.index(p) for _, p in found]),
        family=_ints(_numbered(families)),
    )


def _numbered(keys: Sequence[object]) -> list[int]:
    """Equal keys one number, from 0 on."""
    known: dict[object, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


def _jobs(
    jobs: Sequence[TraceJob], requests: Sequence[Request], shape: IntArray, shapes: Shapes
) -> Jobs:
    limit_s = np.array(
        [math.inf if r.time_limit_s is None else r.time_limit_s for r in requests], dtype=np.float64
    )
    duration_s = np.array([j.duration_s for j in jobs], dtype=np.float64)
    wide = shapes.width[shape]
    return Jobs(
        submit_s=np.array([j.submit_s for j in jobs], dtype=np.float64),
        runs_s=np.minimum(duration_s, limit_s),
        limit_s=limit_s,
        shape=shape,
        offset=np.cumsum(wide) - wide,
    )


def _ints(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


def sight_of(cluster: Cluster, jobs: Sequence[TraceJob], prepared: Prepared) -> StaticFeatures:
    """What never changes of a trace on a cluster."""
    snapshot, hardware, shapes = idle(cluster), prepared.hardware, prepared.jobs.shape
    capacity = Capacity.of(snapshot)
    wanted = np.zeros((len(prepared.shapes.gpus), len(hardware.total.of_type)), dtype=bool)
    for job in np.unique(shapes, return_index=True)[1].tolist():
        wanted[shapes[job], list(capacity.accepted(prepared.requests[job]))] = True
    member = hardware.member.astype(np.int64)
    has = np.vstack([hardware.total.of_type[:-1] > 0, np.ones(len(cluster.nodes), dtype=bool)])
    return StaticFeatures(
        wanted=wanted,
        all_gpus=member @ hardware.total.of_type.T,
        nodes=member @ has.T.astype(np.int64),
        fixed=_fixed(jobs, prepared, [p.name for p in cluster.partitions], snapshot),
    )


def _fixed(
    jobs: Sequence[TraceJob], prepared: Prepared, partitions: Sequence[str], snapshot: Snapshot
) -> Float32Array:
    """What policies/actor makes of each job alone, unpredicted: without the columns of the
    moment and of the queue.
    """
    pending = pending_jobs(jobs, prepared, partitions)
    values = np.zeros((len(jobs), QUEUE_FEATURES), dtype=np.float32)
    for at in range(0, len(jobs), 4096):
        matrix = encode(pending[at : at + 4096], snapshot)
        rows = values[at : at + 4096]
        rows[:, :FIRST_QUANTILE] = matrix.values
        nothing = matrix.run_s[:, -len(QUANTILES) :]
        rows[:, FIRST_QUANTILE:FIRST_OF_QUEUE] = quantile_columns(matrix.limit_s, nothing)
    values[:, SLOTS_OF_THE_MOMENT] = 0.0
    return values


def pending_jobs(
    jobs: Sequence[TraceJob], prepared: Prepared, partitions: Sequence[str]
) -> tuple[PendingJob, ...]:
    """All jobs as if all waited, submitted at second 0."""
    shared: dict[Request, Request] = {}
    places = prepared.shapes.partition[prepared.jobs.shape].tolist()
    return tuple(
        PendingJob(
            job_id=JobId(number),
            address=str(number),
            submitted_at=UnixTime(0.0),
            eligible_at=UnixTime(0.0),
            request=shared.setdefault(request, request),
            priority=1,
            partitions=(partitions[place],),
            user=job.user,
            account=job.account,
            qos=job.qos,
        )
        for number, (job, request, place) in enumerate(
            zip(jobs, prepared.requests, places, strict=True), 1
        )
    )


# -- What a network sees of a prepared trace, and the network itself, as the kernel's arrays ------


KINDS = {"paper": PAPER, "queue": QUEUE}


def eyes_on(
    sight: StaticFeatures,
    prepared: Prepared,
    net: Net | None = None,
) -> Eyes:
    """Eyes with work space; net None: they only see what fits."""
    return Eyes(
        sight=sight,
        features=room_for(sight, prepared),
        net=NO_EYES.net if net is None else net,
        flags=np.zeros(2, dtype=np.int64),
        scores=np.empty((len(sight.fixed), 2)),
    )


def room_for(sight: StaticFeatures, prepared: Prepared) -> Features:
    """Room for the features of a queue of all jobs."""
    kinds, hardware = len(prepared.shapes.gpus), prepared.hardware
    return Features(
        survey=np.zeros((kinds, 5)),
        surveyed=np.full(kinds, -1),
        sums=np.zeros((len(hardware.near), sight.wanted.shape[1], 3)),
        back=np.zeros(hardware.total.of_type.shape),
        rows=np.empty(sight.fixed.shape, dtype=np.float32),
    )


def net_of(network: Network) -> Net:
    """A network's weights in the form that the compiled forward reads."""
    w = [np.ascontiguousarray(network.weights[f"{layer}.weight"].T) for layer in LAYERS]
    b = [network.weights[f"{layer}.bias"] for layer in LAYERS]
    kind, reach, trust = KINDS[network.kind], network.reach, network.trust
    return Net(kind, w[0], b[0], w[1], b[1], w[2], b[2], reach, trust)
