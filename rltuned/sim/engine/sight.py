"""What a network sees of a trace on a cluster, and the network itself, as arrays."""

from collections.abc import Sequence

import numpy as np

from rltuned.core.capacity import Capacity
from rltuned.core.features import encode
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.policies.actor import Actor
from rltuned.policies.network import ContextActor, PaperActor
from rltuned.sim.cluster import Cluster
from rltuned.sim.engine.arrays import FloatArray
from rltuned.sim.engine.look import Features, Float32Array, StaticFeatures
from rltuned.sim.engine.nets import CONTEXT, PAPER, Net
from rltuned.sim.engine.ranking import NO_EYES, Eyes
from rltuned.sim.engine.run import Prepared
from rltuned.sim.trace import TraceJob

SLOTS_OF_THE_MOMENT = (2, 5, 6, 7, 8, 10, 11, 12)
"""Columns of the features that change while a job waits; look fills them in."""
KINDS = {"paper": PAPER, "context": CONTEXT}
NO_CURVE = np.zeros((2, 1))


def eyes_on(
    sight: StaticFeatures, prepared: Prepared, net: Net | None = None, curve: FloatArray = NO_CURVE
) -> Eyes:
    """Eyes with work space; net None: they only see what fits."""
    return Eyes(
        sight=sight,
        features=room_for(sight, prepared),
        net=NO_EYES.net if net is None else net,
        curve=curve,
        flags=np.zeros(2, dtype=np.int64),
        scores=np.empty(len(sight.fixed)),
    )


def room_for(sight: StaticFeatures, prepared: Prepared) -> Features:
    """Room for the features of a queue of all jobs."""
    kinds, hardware = len(prepared.shapes.gpus), prepared.hardware
    return Features(
        survey=np.zeros((kinds, 5)),
        surveyed=np.full(kinds, -1),
        sums=np.zeros((len(hardware.near), sight.wanted.shape[1], 3)),
        back=np.zeros(hardware.of_type.shape),
        rows=np.empty(sight.fixed.shape, dtype=np.float32),
    )


def predictions(actor: Actor, jobs: Sequence[TraceJob], prepared: Prepared) -> Float32Array | None:
    """(n, 3) of all jobs; None where the network reads none."""
    if actor.predictor is None:
        return None
    users, accounts = [j.user for j in jobs], [j.account for j in jobs]
    return actor.predictor.columns(users, accounts, prepared.requests)


def net_of(network: PaperActor | ContextActor) -> Net:
    """A network's weights in the form that the compiled forward reads."""
    w = {k: v.detach().cpu().numpy().astype(np.float32) for k, v in network.state_dict().items()}
    pooled = np.zeros((0, 0), dtype=np.float32)
    if isinstance(network, PaperActor):
        names = [name.removesuffix(".weight") for name in w if name.endswith(".weight")]
        second = w[f"{names[1]}.weight"].T
    else:
        names = ["encoder", "mix", "head"]
        hidden = len(w["encoder.bias"])
        whole = w["mix.weight"].T  # own, mean, most: stacked
        second, pooled = whole[:hidden], np.ascontiguousarray(whole[hidden:])
    return Net(
        kind=KINDS[network.kind],
        w1=np.ascontiguousarray(w[f"{names[0]}.weight"].T),
        b1=w[f"{names[0]}.bias"],
        w2=np.ascontiguousarray(second),
        pooled=pooled,
        b2=w[f"{names[1]}.bias"],
        w3=np.ascontiguousarray(w[f"{names[-1]}.weight"][0]),
        b3=w[f"{names[-1]}.bias"],
    )


def sight_of(cluster: Cluster, jobs: Sequence[TraceJob], prepared: Prepared) -> StaticFeatures:
    """What never changes of a trace on a cluster."""
    nodes = cluster.nodes
    snapshot = Snapshot(UnixTime(0.0), cluster.name, (), (), nodes, cluster.partitions)
    capacity = Capacity.of(snapshot)
    rows = len(capacity.gpu_types) + 1
    partitions = [p.name for p in cluster.partitions]
    shapes = prepared.jobs.shape
    wanted = np.zeros((len(prepared.shapes.gpus), rows), dtype=bool)
    firsts = np.unique(shapes, return_index=True)[1]
    for job in firsts.tolist():
        wanted[shapes[job], list(capacity.accepted(prepared.requests[job]))] = True
    member = np.array([capacity.members_of((p,)) for p in partitions])
    has = np.vstack([capacity.total_gpus[:-1] > 0, np.ones(len(nodes), dtype=bool)])
    return StaticFeatures(
        wanted=wanted,
        all_gpus=member.astype(np.int64) @ capacity.total_gpus.T,
        nodes=member.astype(np.int64) @ has.T.astype(np.int64),
        fixed=_fixed(jobs, prepared, partitions, snapshot),
    )


def _fixed(
    jobs: Sequence[TraceJob], prepared: Prepared, partitions: Sequence[str], snapshot: Snapshot
) -> Float32Array:
    """What core/features makes of each job alone: its encoding, without the moment's columns."""
    pending = pending_jobs(jobs, prepared, partitions)
    values = np.concatenate(
        [encode(pending[at : at + 4096], snapshot).values for at in range(0, len(jobs), 4096)]
    )
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
