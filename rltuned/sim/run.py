"""Traces under policies: choose windows, play each, and keep what became of every job."""

import importlib.util
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from rltuned.core.select import Rules as Scope
from rltuned.domain.jobs import Share
from rltuned.errors import TraceError
from rltuned.sim import qssf
from rltuned.sim.cluster import Cluster
from rltuned.sim.fitting import impossible
from rltuned.sim.metrics import Schedule
from rltuned.sim.natural import AGE_ONLY, Natural
from rltuned.sim.policy import CLAIRVOYANT_AREA, FUTURE, policy_of
from rltuned.sim.protocol import (
    Outcome,
    Protocol,
    clairvoyant,
    clairvoyant_area,
    play_decided,
    play_direct,
    play_pure,
)
from rltuned.sim.trace import TraceJob

if TYPE_CHECKING:  # numba is optional
    from rltuned.sim.engine.cycles import Cycles
    from rltuned.sim.engine.loop import Ranking
    from rltuned.sim.engine.run import Played, Prepared


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive jobs of a trace; the first `warmup` of them run but are not scored."""

    number: int
    jobs: tuple[TraceJob, ...]
    warmup: int = 0


def whole(jobs: Sequence[TraceJob], *, first: int | None, warmup: int) -> tuple[Window, ...]:
    """All jobs, or the first few, as one window."""
    chosen = tuple(jobs if first is None else jobs[:first])
    if first is not None and (first < 1 or first > len(jobs)):
        raise TraceError(f"--first {first}: the trace has {len(jobs)} jobs")
    return (Window(0, chosen, _checked(warmup, len(chosen))),)


def windows(
    jobs: Sequence[TraceJob], *, count: int, size: int, seed: int, warmup: int
) -> tuple[Window, ...]:
    """Windows of consecutive jobs at random places, disjoint when the trace is long enough.

    Raises:
        TraceError: the trace is shorter than one window, or numbers make no sense.
    """
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
        Window(i, tuple(jobs[s : s + size]), _checked(warmup, size))
        for i, s in enumerate(starts.tolist())
    )


def _checked(warmup: int, size: int) -> int:
    if not 0 <= warmup < size:
        raise TraceError(f"--warmup {warmup} leaves none of {size} jobs to score")
    return warmup


def possible(
    jobs: Sequence[TraceJob], cluster: Cluster, *, skip: bool
) -> tuple[tuple[TraceJob, ...], int]:
    """The jobs that this cluster could ever run, and how many it could not.

    Raises:
        TraceError: there is such a job and skip is False (names it), or no job is left.
    """
    verdicts: dict[object, str | None] = {}
    kept = []
    for job in jobs:
        key = (job.request(), job.partition)
        if key not in verdicts:
            verdicts[key] = impossible(job, cluster)
        if verdicts[key] is None:
            kept.append(job)
        elif not skip:
            raise TraceError(
                f"job {job.job_id} can never run on {cluster.name}: {verdicts[key]} "
                "(--skip-impossible leaves such jobs out and counts them)"
            )
    if not kept:
        raise TraceError(f"none of the {len(jobs)} jobs can ever run on {cluster.name}")
    return tuple(kept), len(jobs) - len(kept)


def simulate(
    window: Window, cluster: Cluster, policy: str, protocol: Protocol, *, engine: bool = True
) -> Schedule:
    """Play one window under one policy.

    Args:
        window: the jobs.
        cluster: the hardware.
        policy: its name.
        protocol: who ranks when, backfill, placement, faults.
        engine: use the compiled twin where it knows the policy, the protocol and the nodes.

    Raises:
        TraceError: a job can never run, or there is no such policy.
    """
    rules = protocol.rules
    if policy == "multifactor":
        own = rules.natural if rules.natural != AGE_ONLY else Natural()
        rules = replace(rules, natural=replace(own, kind="multifactor"))
    protocol = replace(protocol, rules=rules)
    plain = bool(protocol.faults) or protocol.is_joint or rules.placement == "first"
    if engine and not plain and compiled_knows(policy, protocol):
        return _engine(window, cluster, policy, protocol)
    began = time.perf_counter()
    outcome = _plain(window, cluster, policy, protocol)
    return schedule_of(outcome, window, cluster, time.perf_counter() - began)


def _plain(window: Window, cluster: Cluster, policy: str, protocol: Protocol) -> Outcome:
    scorer = policy_of(policy)
    by_event = protocol.mode == "event" and not protocol.is_joint
    if scorer is None:
        if not by_event:
            where = "event mode" if protocol.mode == "cycle" else "placement pack or spread"
            raise TraceError(f"policy {policy!r} exists in {where} only")
        order = clairvoyant_area if policy == CLAIRVOYANT_AREA else clairvoyant
        return play_direct(cluster, window.jobs, order, protocol)
    if by_event:
        return play_direct(cluster, window.jobs, scorer, protocol)
    if not protocol.bounded and not protocol.is_joint:
        return play_pure(cluster, window.jobs, scorer, protocol)
    return play_decided(cluster, window.jobs, scorer, protocol)


def compiled_knows(policy: str, protocol: Protocol) -> bool:
    """Whether the compiled engine plays this policy so (it needs the training extra).

    Its cycles know one site, which orders by age alone, and delays that never change.
    """
    if importlib.util.find_spec("numba") is None:
        return False
    from rltuned.sim.engine import orders  # noqa: PLC0415 - numba is optional

    if protocol.mode == "cycle":
        scope = replace(protocol.knobs.rules, min_age_s=0.0)
        usual = protocol.rules.natural == AGE_ONLY and scope == Scope(min_age_s=0.0)
        usual = usual and protocol.knobs.writing.mode != "priority"
        return usual and protocol.bounded and policy in orders.STATIC and policy != "multifactor"
    if protocol.bounded:
        return policy in {*orders.STATIC, *FUTURE, qssf.NAME}
    return policy in {*orders.FIXED_ORDERS, *orders.FORMULAS, *FUTURE, qssf.NAME}


def schedule_of(outcome: Outcome, window: Window, cluster: Cluster, elapsed_s: float) -> Schedule:
    """What the plain world left behind."""
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


def _node_of(part: str) -> str:
    return part.rpartition(":")[0]


def _engine(window: Window, cluster: Cluster, policy: str, protocol: Protocol) -> Schedule:
    from rltuned.sim.engine import run as engine  # noqa: PLC0415 - numba is optional

    engine.load()
    began = time.perf_counter()
    prepared = engine.prepare(cluster, window.jobs)
    ranking, cycles = _ranking(policy, prepared, window, protocol)
    played = engine.run(prepared, ranking, protocol.rules, cycles)
    return schedule_of_engine(played, window, cluster, began, writes=int(cycles.writes.sum()))


def _ranking(
    policy: str, prepared: "Prepared", window: Window, protocol: Protocol
) -> "tuple[Ranking, Cycles]":
    from rltuned.sim.engine import orders  # noqa: PLC0415 - numba is optional
    from rltuned.sim.engine.cycles import NO_CYCLES  # noqa: PLC0415

    jobs, natural = window.jobs, protocol.rules.natural
    if protocol.mode == "cycle":
        at_submit = protocol.newcomers == "submit"
        knobs, interval_s = protocol.knobs, protocol.interval_s
        return orders.cycles_of(policy, prepared, jobs, knobs, interval_s, at_submit=at_submit)
    if policy == qssf.NAME:
        return orders.learning_ranking(prepared, jobs, natural, protocol.order), NO_CYCLES
    pure = protocol.order is None or policy in {*FUTURE, "multifactor"}
    if pure or protocol.order is None:
        return orders.ranking_of(policy, prepared, jobs, natural), NO_CYCLES
    return orders.delayed_ranking(policy, prepared, jobs, natural, protocol.order), NO_CYCLES


def schedule_of_engine(
    played: "Played", window: Window, cluster: Cluster, began: float, *, writes: int = 0
) -> Schedule:
    """What a compiled run left behind; began: perf_counter at its start."""
    names = [cluster.nodes[i].name for i in played.shares.node.tolist()]
    parts = [f"{n}:{g}" for n, g in zip(names, played.shares.gpus.tolist(), strict=True)]
    nodes = [
        parts[first] if last == first + 1 else "|".join(sorted(parts[first:last], key=_node_of))
        for first, last in pairwise(played.offset.tolist())
    ]
    return _schedule(
        window,
        cluster,
        start_s=played.start_s,
        end_s=played.end_s,
        nodes=tuple(nodes),
        decisions=played.passes,
        elapsed_s=time.perf_counter() - began,
        writes=writes,
    )


def _schedule(
    window: Window,
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
"""Told (policy, window number) after each window."""
Player = Callable[[Window, Cluster, Protocol], Schedule]
"""Plays one window under one policy: what `simulate` does, by other means."""


def compare(
    chosen: Sequence[Window],
    cluster: Cluster,
    policies: Sequence[str],
    protocol: Protocol,
    *,
    report: Report = lambda _policy, _window: None,
    players: Mapping[str, Player] | None = None,
) -> dict[str, list[Schedule]]:
    """Play every window under every policy: the same jobs, the same placement and backfill.

    Args:
        chosen: the windows.
        cluster: the hardware.
        policies: their names.
        protocol: who ranks when, backfill, placement, faults.
        report: told after each window.
        players: policies that somebody above this floor can play faster than `simulate`.
    """
    found: dict[str, list[Schedule]] = {}
    for policy in policies:
        player = (players or {}).get(policy)
        found[policy] = []
        for window in chosen:
            if player is None:
                found[policy].append(simulate(window, cluster, policy, protocol))
            else:
                found[policy].append(player(window, cluster, protocol))
            report(policy, window.number)
    return found
