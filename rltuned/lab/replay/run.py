"""Traces under policies: choose scenarios, play each, and keep what became of every job."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from rltuned.errors import TraceError
from rltuned.lab.replay.decided import DecidedWorld
from rltuned.lab.replay.metrics import FloatArray, Schedule
from rltuned.lab.replay.orders import play
from rltuned.lab.replay.play import Played, load, played_by
from rltuned.lab.replay.protocol import BY_DEFAULT, FUTURE, Protocol, by_default, policy_of
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.plugins import Plugin
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import EmptyCluster, TraceJob
from rltuned.sim.world import AGE_ONLY, Fault, Natural, Rules


def whole(
    jobs: Sequence[TraceJob],
    cluster: Cluster,
    rules: Rules | None = None,
    faults: Sequence[Fault] = (),
    *,
    first: int | None = None,
    warmup: int = 0,
) -> tuple[Scenario, ...]:
    """All jobs, or the first few, as one scenario."""
    if first is not None and not 1 <= first <= len(jobs):
        raise TraceError(f"--first {first}: the trace has {len(jobs)} jobs")
    chosen = jobs[:first]
    _check_warmup(warmup, len(chosen))
    return (Scenario.of(cluster, chosen, rules, faults, warmup=warmup),)


def windows(
    jobs: Sequence[TraceJob],
    cluster: Cluster,
    rules: Rules | None = None,
    faults: Sequence[Fault] = (),
    *,
    count: int,
    size: int,
    seed: int,
    warmup: int = 0,
) -> tuple[Scenario, ...]:
    """Windows of consecutive jobs at random places, disjoint if possible. Raises TraceError."""
    if count < 1 or not 1 <= size <= len(jobs):
        raise TraceError(
            f"{count} windows of {size} jobs cannot be cut from a trace of {len(jobs)} jobs"
        )
    _check_warmup(warmup, size)
    rng = np.random.default_rng(seed)
    spare = len(jobs) - count * size
    if spare >= 0:
        # gaps between windows are what is left over, dealt out at random
        starts = np.sort(rng.integers(0, spare + 1, size=count)) + size * np.arange(count)
    else:
        starts = np.sort(rng.integers(0, len(jobs) - size + 1, size=count))
    return tuple(
        Scenario.of(cluster, jobs[at : at + size], rules, faults, warmup=warmup)
        for at in starts.tolist()
    )


def _check_warmup(warmup: int, size: int) -> None:
    if not 0 <= warmup < size:
        raise TraceError(f"--warmup {warmup} leaves none of {size} jobs to score")


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


def simulate(scenario: Scenario, policy: str, protocol: Protocol, trust: float = 1.0) -> Schedule:
    """Play a scenario under one policy, in the kernel or jointly. trust: of a network; `default`
    has its own. Raises TraceError.
    """
    if policy == "multifactor":
        natural = scenario.rules.natural
        own = natural if natural != AGE_ONLY else Natural()
        scenario = scenario.ordered_by(replace(own, kind="multifactor"))
    if policy == BY_DEFAULT:
        protocol = by_default(protocol)
    chosen, cycles = policy_of(policy, trust), protocol.mode == "cycle"
    for wrong, why in (
        (protocol.is_joint and isinstance(chosen, str), "exists in placement pack or spread only"),
        (isinstance(chosen, Plugin) and not cycles, "plays with --mode cycle only"),
        (cycles and chosen in FUTURE, "exists in event mode only"),
    ):
        if wrong:
            raise TraceError(f"policy {policy!r} {why}")
    if isinstance(chosen, str) or not (protocol.is_joint or isinstance(chosen, Plugin)):
        if cycles and not protocol.bounded:
            raise TraceError(
                "--bounds off: the daemon has bounds; a pure order exists in event mode"
            )
        load()
        began = time.perf_counter()
        return schedule_of(play(chosen, scenario, protocol), scenario, began)
    began, learns = time.perf_counter(), isinstance(chosen, Plugin)
    decided = DecidedWorld(scenario.world(), protocol, learns=learns).play(chosen)
    played = played_by(decided.world, decided.decisions, decided.written)
    return schedule_of(played, scenario, began)


def schedule_of(played: Played, scenario: Scenario, began: float) -> Schedule:
    """What a play left behind; began: perf_counter at its start."""
    shares, names = played.shares, [node.name for node in scenario.cluster.nodes]
    by_name = np.argsort(np.argsort(np.array(names)))
    job = np.repeat(np.arange(len(scenario)), np.diff(played.offset))
    order = np.lexsort((by_name[shares.node], job))
    most = int(shares.gpus.max()) + 1
    kinds, kind = np.unique(shares.node[order] * most + shares.gpus[order], return_inverse=True)
    texts = [f"{names[at // most]}:{at % most}" for at in kinds.tolist()]
    parts = [texts[at] for at in kind.tolist()]
    nodes = [
        parts[first] if last == first + 1 else "|".join(parts[first:last])
        for first, last in pairwise(played.offset.tolist())
    ]
    return replace(
        scheduled(scenario, played.start_s, played.end_s),
        nodes=tuple(nodes),
        decisions=played.decisions,
        elapsed_s=time.perf_counter() - began,
        lost_gpu_s=played.lost_gpu_s,
        writes=int(played.writes.sum()),
    )


def scheduled(scenario: Scenario, start_s: FloatArray, end_s: FloatArray) -> Schedule:
    """What the metrics are computed from. start_s, end_s: (n,)."""
    return Schedule(
        job_ids=tuple(j.job_id for j in scenario.jobs),
        submit_s=scenario.submit_s,
        start_s=start_s,
        end_s=end_s,
        duration_s=scenario.duration_s,
        gpus=np.array([j.gpus for j in scenario.jobs], dtype=np.float64),
        warmup=scenario.warmup,
    )


def play_all(
    scenarios: Sequence[Scenario],
    policies: Sequence[str],
    protocol: Protocol,
    trust: float = 1.0,
    *,
    report: Callable[[str, float], None] = lambda _policy, _part: None,
) -> dict[str, list[Schedule]]:
    """Play all of them under every policy: the same jobs, the same placement and backfill. report:
    called with the policy and the part of its scenarios that are played.
    """
    found: dict[str, list[Schedule]] = {}
    for policy in policies:
        found[policy] = []
        for number, scenario in enumerate(scenarios):
            report(policy, number / len(scenarios))
            found[policy].append(simulate(scenario, policy, protocol, trust))
        report(policy, 1.0)
    return found
