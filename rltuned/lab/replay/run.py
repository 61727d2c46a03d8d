"""Traces under policies: choose windows, play each, and keep what became of every job."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rltuned.domain.jobs import Share
from rltuned.errors import TraceError
from rltuned.lab.replay.decided import PlayedWorld, play_decided
from rltuned.lab.replay.metrics import Schedule
from rltuned.lab.replay.orders import play
from rltuned.lab.replay.play import Played, load
from rltuned.lab.replay.plugged import play_plugged
from rltuned.lab.replay.policy import BY_DEFAULT, FUTURE, policy_of
from rltuned.lab.replay.prepared import prepare
from rltuned.lab.replay.protocol import Protocol, by_default
from rltuned.lab.replay.stage import Stage
from rltuned.policies.plugins import Plugin
from rltuned.sim.cluster import Cluster
from rltuned.sim.fitting import EmptyCluster
from rltuned.sim.natural import AGE_ONLY, Natural
from rltuned.sim.trace import TraceJob


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """Consecutive jobs of a trace; the first `warmup` of them run but are not scored."""

    number: int
    jobs: tuple[TraceJob, ...]
    warmup: int = 0


def whole(jobs: Sequence[TraceJob], *, first: int | None, warmup: int) -> tuple[TraceWindow, ...]:
    """All jobs, or the first few, as one window."""
    chosen = tuple(jobs if first is None else jobs[:first])
    if first is not None and (first < 1 or first > len(jobs)):
        raise TraceError(f"--first {first}: the trace has {len(jobs)} jobs")
    return (TraceWindow(0, chosen, _checked(warmup, len(chosen))),)


def windows(
    jobs: Sequence[TraceJob], *, count: int, size: int, seed: int, warmup: int
) -> tuple[TraceWindow, ...]:
    """Windows of consecutive jobs at random places, disjoint if possible. Raises TraceError."""
    if count < 1 or size < 1 or size > len(jobs):
        raise TraceError(
            f"{count} windows of {size} jobs cannot be cut from a trace of {len(jobs)} jobs"
        )
    rng = np.random.default_rng(seed)
    spare = len(jobs) - count * size
    if spare >= 0:
        # gaps between windows are what is left over, dealt out at random
        cuts = np.sort(rng.integers(0, spare + 1, size=count))
        starts = cuts + size * np.arange(count)
    else:
        starts = np.sort(rng.integers(0, len(jobs) - size + 1, size=count))
    return tuple(
        TraceWindow(i, tuple(jobs[s : s + size]), _checked(warmup, size))
        for i, s in enumerate(starts.tolist())
    )


def _checked(warmup: int, size: int) -> int:
    if not 0 <= warmup < size:
        raise TraceError(f"--warmup {warmup} leaves none of {size} jobs to score")
    return warmup


def possible(
    jobs: Sequence[TraceJob], cluster: Cluster, *, skip: bool
) -> tuple[tuple[TraceJob, ...], int]:
    """The jobs that could ever run here, and how many not. Raises TraceError: some, unless skip."""
    empty, kept = EmptyCluster(cluster), []
    for job in jobs:
        why = empty.why_not(job)
        if why is None:
            kept.append(job)
        elif not skip:
            raise TraceError(
                f"job {job.job_id} can never run on {cluster.name}: {why} "
                "(--skip-impossible leaves such jobs out and counts them)"
            )
    if not kept:
        raise TraceError(f"none of the {len(jobs)} jobs can ever run on {cluster.name}")
    return tuple(kept), len(jobs) - len(kept)


def simulate(window: TraceWindow, cluster: Cluster, policy: str, protocol: Protocol) -> Schedule:
    """Play one window under one policy, in the kernel or jointly. Raises TraceError."""
    rules = protocol.rules
    if policy == "multifactor":
        own = rules.natural if rules.natural != AGE_ONLY else Natural()
        rules = replace(rules, natural=replace(own, kind="multifactor"))
    protocol = replace(protocol, rules=rules)
    if policy == BY_DEFAULT:
        protocol = by_default(protocol)
    chosen = policy_of(policy)
    if protocol.is_joint and isinstance(chosen, str):
        raise TraceError(f"policy {policy!r} exists in placement pack or spread only")
    if isinstance(chosen, Plugin) and protocol.mode != "cycle":
        raise TraceError(f"policy {policy!r} plays with --mode cycle only")
    if isinstance(chosen, Plugin) or (protocol.is_joint and not isinstance(chosen, str)):
        began = time.perf_counter()
        play_it = play_plugged if isinstance(chosen, Plugin) else play_decided
        outcome = play_it(cluster, window.jobs, chosen, protocol)
        return schedule_of(outcome, window, cluster, time.perf_counter() - began)
    if protocol.mode == "cycle" and chosen in FUTURE:
        raise TraceError(f"policy {policy!r} exists in event mode only")
    if protocol.mode == "cycle" and not protocol.bounded:
        raise TraceError("--bounds off: the daemon has bounds; a pure order exists in event mode")
    load()
    began = time.perf_counter()
    stage = Stage(cluster, window.jobs, prepare(cluster, window.jobs), rules.natural)
    return schedule_of_run(play(chosen, stage, protocol), window, cluster, began)


def schedule_of(
    outcome: PlayedWorld, window: TraceWindow, cluster: Cluster, elapsed_s: float
) -> Schedule:
    """What a world of objects left behind."""
    world = outcome.world
    records = [world.finished[i + 1] for i in range(len(window.jobs))]
    return _schedule(
        window,
        cluster,
        start_s=np.array([r.started_at for r in records]),
        end_s=np.array([r.ended_at for r in records]),
        nodes=tuple(nodes_text(r.shares) for r in records),
        decisions=outcome.decisions,
        elapsed_s=elapsed_s,
        lost_gpu_s=world.lost_gpu_s,
        writes=outcome.writes,
    )


def nodes_text(shares: Sequence[Share]) -> str:
    """`p1:2|p2:2`: GPUs per node, by node name."""
    gpus = Counter[str]()
    for share in shares:
        gpus[share.node] += share.taken.gpus
    return "|".join(f"{node}:{gpus[node]}" for node in sorted(gpus))


def schedule_of_run(
    played: Played, window: TraceWindow, cluster: Cluster, began: float
) -> Schedule:
    """What the kernel left behind; began: perf_counter at its start."""
    shares, names = played.shares, [node.name for node in cluster.nodes]
    by_name = np.argsort(np.argsort(np.array(names)))
    job = np.repeat(np.arange(len(window.jobs)), np.diff(played.offset))
    order = np.lexsort((by_name[shares.node], job))
    most = int(shares.gpus.max()) + 1
    kinds, kind = np.unique(shares.node[order] * most + shares.gpus[order], return_inverse=True)
    texts = [f"{names[at // most]}:{at % most}" for at in kinds.tolist()]
    parts = [texts[at] for at in kind.tolist()]
    nodes = [
        parts[first] if last == first + 1 else "|".join(parts[first:last])
        for first, last in pairwise(played.offset.tolist())
    ]
    return _schedule(
        window,
        cluster,
        start_s=played.start_s,
        end_s=played.end_s,
        nodes=tuple(nodes),
        decisions=played.decisions,
        elapsed_s=time.perf_counter() - began,
        lost_gpu_s=played.lost_gpu_s,
        writes=int(played.writes.sum()),
    )


def _schedule(
    window: TraceWindow,
    cluster: Cluster,
    *,
    start_s: np.ndarray,
    end_s: np.ndarray,
    nodes: tuple[str, ...],
    decisions: int,
    elapsed_s: float,
    lost_gpu_s: float = 0.0,
    writes: int = 0,
) -> Schedule:
    jobs = window.jobs
    return Schedule(
        job_ids=tuple(j.job_id for j in jobs),
        submit_s=np.array([j.submit_s for j in jobs]),
        start_s=start_s,
        end_s=end_s,
        duration_s=np.array([j.duration_s for j in jobs]),
        gpus=np.array([j.gpus for j in jobs], dtype=np.float64),
        users=tuple(j.user for j in jobs),
        partitions=tuple(j.partition or cluster.default_partition for j in jobs),
        nodes=nodes,
        decisions=decisions,
        elapsed_s=elapsed_s,
        lost_gpu_s=lost_gpu_s,
        warmup=window.warmup,
        writes=writes,
    )


Report = Callable[[str, int], None]
"""Called with (policy, window number) after each window."""


def compare(
    chosen: Sequence[TraceWindow],
    cluster: Cluster,
    policies: Sequence[str],
    protocol: Protocol,
    *,
    report: Report = lambda _policy, _window: None,
) -> dict[str, list[Schedule]]:
    """Play every window under every policy: the same jobs, the same placement and backfill."""
    found: dict[str, list[Schedule]] = {}
    for policy in policies:
        found[policy] = []
        for window in chosen:
            found[policy].append(simulate(window, cluster, policy, protocol))
            report(policy, window.number)
    return found
