"""A recorded queue as a trace, to be played again under another order.

What the record cannot tell is assumed, and counted: jobs that had not ended take the usual share of
their limit (the median of those that did). Jobs that were cancelled while they waited, and those
that started and ended between two looks, are not there. Nodes are whole and in service throughout.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Final

from rltuned.core.decide import Policy
from rltuned.domain.cluster import GpuCount, Node
from rltuned.domain.jobs import PendingJob, Request, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import TraceError
from rltuned.sim.cluster import Cluster
from rltuned.sim.metrics import Schedule
from rltuned.sim.protocol import Protocol, play_decided
from rltuned.sim.run import Window, possible, schedule_of, simulate
from rltuned.sim.trace import TraceJob

FEWEST: Final = 30
"""Jobs that must have come and ended within the record; of fewer nothing is said."""
STRETCHES: Final = 10
"""Parts of the record whose differences are compared for the interval."""
FEWEST_EACH: Final = 10
"""Jobs in each part below which no interval is given."""
WORTH_COMPILING: Final = 2_000
"""Up to so many jobs the plain world has played them before its compiled twin is even loaded."""
T95: Final = 2.262
"""Student's t for 95 % with STRETCHES - 1 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a record tells.

    Attributes:
        jobs: by submit time; those that ran or waited at the beginning come first.
        until: end of the record, in the trace's seconds.
        waits_s: real waits of the jobs that came within the record, until its end at most.
        ended, assumed: jobs whose run time was seen, and the others.
    """

    cluster: Cluster
    jobs: tuple[TraceJob, ...]
    until: float
    waits_s: Mapping[str, float]
    ended: int
    assumed: int


@dataclass(slots=True)
class _Run:
    job: RunningJob
    ended_at: float | None = None


def past_of(snapshots: Iterable[Snapshot]) -> Past:
    """Read a record.

    Raises:
        TraceError: too little happened in it.
    """
    runs: dict[tuple[int, float], _Run] = {}
    first = last = None
    for seen in snapshots:
        here = {(job.job_id, float(job.started_at)): job for job in seen.running}
        for key, run in runs.items():
            if key not in here and run.ended_at is None and last is not None:
                run.ended_at = (last.taken_at + seen.taken_at) / 2
        for key, job in here.items():
            runs.setdefault(key, _Run(job))
        first, last = first or seen, seen
    if first is None or last is None:
        raise TraceError("no cycle is kept")
    return _past(first, last, list(runs.values()))


def _past(first: Snapshot, last: Snapshot, runs: list[_Run]) -> Past:
    began, until = float(first.taken_at), float(last.taken_at)
    came = [r for r in runs if r.ended_at and (r.job.waits_since or 0.0) >= began]
    if len(came) < FEWEST:
        raise TraceError(f"{len(came)} jobs came and ended in the record; {FEWEST} are needed")
    usual = _usual(came)
    jobs, waits = [], {}
    for run in runs:
        submit_s = 0.0
        if run.job.started_at > began:  # not in line with what ran at the beginning
            submit_s = max(1.0, (run.job.waits_since or run.job.started_at) - began)
        held_s = max(0.0, began - run.job.started_at)
        name = f"{run.job.job_id}@{run.job.started_at:.0f}"
        total_s = _run_s(run, until, usual)
        jobs.append(_job(name, submit_s, total_s - held_s, run.job, run.job.partition))
        since = run.job.waits_since
        if since is not None and since >= began:
            waits[name] = max(0.0, run.job.started_at - since)
    for job in last.pending:
        for task in range(job.array.tasks if job.array else 1):
            name, submit_s = f"{job.job_id}.{task}", max(1.0, job.waits_since - began)
            duration_s = _guess(job.request, usual)
            jobs.append(_job(name, submit_s, duration_s, job, job.partitions[0]))
            if job.waits_since >= began:
                waits[name] = job.waited_s(until)
    jobs.sort(key=lambda j: j.submit_s)
    ended = sum(run.ended_at is not None for run in runs)
    cluster = Cluster(last.cluster, tuple(map(_whole, last.nodes)), last.partitions)
    kept, _ = possible(jobs, cluster, skip=True)
    return Past(cluster, kept, until - began, waits, ended, len(jobs) - ended)


def _usual(ended: list[_Run]) -> tuple[float, float]:
    """Median of the run times as a share of the limit, and in seconds."""
    lengths = [max(1.0, (r.ended_at or 0.0) - r.job.started_at) for r in ended]
    limits = [r.job.request.time_limit_s for r in ended]
    shares = [
        min(1.0, length / limit)
        for length, limit in zip(lengths, limits, strict=True)
        if limit is not None and math.isfinite(limit)
    ]
    return (median(shares) if shares else 1.0), median(lengths)


def _guess(request: Request, usual: tuple[float, float]) -> float:
    limit_s = request.time_limit_s
    known = limit_s is not None and math.isfinite(limit_s)
    return max(1.0, usual[0] * limit_s if known and limit_s is not None else usual[1])


def _run_s(run: _Run, until: float, usual: tuple[float, float]) -> float:
    if run.ended_at is not None:
        return max(1.0, run.ended_at - run.job.started_at)
    return max(_guess(run.job.request, usual), until - run.job.started_at + 1.0)


def _job(
    name: str, submit_s: float, duration_s: float, job: RunningJob | PendingJob, partition: str
) -> TraceJob:
    request = job.request
    limit_s = request.time_limit_s
    return TraceJob(
        job_id=name,
        submit_s=submit_s,
        duration_s=max(1.0, duration_s),
        gpus=request.total.gpus,
        time_limit_s=math.inf if limit_s is None else limit_s,
        gpu_types=tuple(request.gpu_types),
        cpus=request.total.cpus,
        mem_mib=request.total.mem_mib,
        nodes=request.nodes,
        partition=partition,
        user=job.user,
        account=job.account,
        exclusive=request.exclusive,
    )


def _whole(node: Node) -> Node:
    gpus = tuple(GpuCount(g.gpu_type, g.total, g.total) for g in node.gpus)
    return replace(node, gpus=gpus, free=node.total, schedulable=True, state="IDLE")


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two orders of one record, in seconds of mean wait; negative = the first waits less.

    low_s, high_s: 95 % interval; None = too few jobs for one.
    """

    mean_s: float
    low_s: float | None = None
    high_s: float | None = None


def difference(past: Past, ours: Mapping[str, float], theirs: Mapping[str, float]) -> Difference:
    """Compare the waits of the same jobs under two orders.

    Waits of neighbours in a queue hang together, so single jobs say too little of chance. The
    record is cut into STRETCHES parts of equally many jobs by submit time, and the interval is that
    of their mean differences (batch means). It covers chance of the moment within this record, not
    what the simulator gets wrong, and it is too narrow when one jam outlasts several parts.

    Raises:
        ValueError: not the same jobs.
    """
    if ours.keys() != theirs.keys():
        raise ValueError("two orders of different jobs cannot be compared")
    each = [ours[j.job_id] - theirs[j.job_id] for j in past.jobs if j.job_id in ours]
    mean_s = fmean(each)
    if len(each) < STRETCHES * FEWEST_EACH:
        return Difference(mean_s)
    cuts = [round(i * len(each) / STRETCHES) for i in range(STRETCHES + 1)]
    parts = [fmean(each[a:b]) for a, b in pairwise(cuts)]
    reach_s = T95 * stdev(parts) / math.sqrt(STRETCHES)
    return Difference(mean_s, mean_s - reach_s, mean_s + reach_s)


def waits_under(past: Past, policy: str, protocol: Protocol) -> dict[str, float]:
    """Waits of the jobs that came within the record, until its end at most, under a policy.

    Raises:
        TraceError, ModelError: there is no such policy, or it cannot be used.
    """
    engine = len(past.jobs) > WORTH_COMPILING
    window = Window(0, past.jobs)
    return _waits(past, simulate(window, past.cluster, policy, protocol, engine=engine))


def waits_decided(past: Past, policy: Policy, protocol: Protocol) -> dict[str, float]:
    """The same under a daemon with this policy: its cycles, its bounds, its caps.

    Args:
        past: the record.
        policy: who ranks.
        protocol: mode `cycle`, with the daemon's knobs.
    """
    window = Window(0, past.jobs)
    played = play_decided(past.cluster, past.jobs, policy, protocol)
    return _waits(past, schedule_of(played, window, past.cluster, 0.0))


def _waits(past: Past, played: Schedule) -> dict[str, float]:
    rows = zip(played.job_ids, played.submit_s.tolist(), played.start_s.tolist(), strict=True)
    return {
        name: max(0.0, min(start_s, past.until) - submit_s)
        for name, submit_s, start_s in rows
        if name in past.waits_s
    }
