"""Slurm's own backfill: equal to a replay second by second, and where it differs from EASY."""

from typing import Any

import numpy as np
import pytest

from rltuned.core.slurm_plan import Parameters
from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.natural import AGE_ONLY
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from tests.examples import examples
from tests.sim.slurm_referee import Asked, Referee

CASES = 1_000
LONG_S = 40_000


def case(seed: int) -> tuple[Cluster, list[TraceJob], Rules, str]:
    """A small cluster of one or two partitions, a queue, and parameters."""
    rng = np.random.default_rng(seed)

    def one_of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    sizes = [int(one_of(1, 2, 4, 4)) for _ in range(rng.integers(1, 7))]
    two = len(sizes) > 1 and rng.random() < 0.4
    member = [("a", "b") if two and rng.random() < 0.5 else ("a",) for _ in sizes]
    if two:
        member[-1] = ("b",)
        member[0] = ("a",)
    nodes = [
        idle_node(f"n{i}", GpuType("g"), Resources(size, 1_000, 1_000_000), parts)
        for i, (size, parts) in enumerate(zip(sizes, member, strict=True))
    ]
    parts = [
        Partition("a", default=True),
        *([Partition("b")] if two else []),
    ]
    where = Cluster("random", tuple(nodes), tuple(parts))
    jobs = []
    at = 0
    for i in range(rng.integers(3, 40)):
        at += int(one_of(0, 0, 7, 30, 45, 200))
        part = "b" if two and rng.random() < 0.5 else "a"
        inside = [size for size, names in zip(sizes, member, strict=True) if part in names]
        gpus = int(rng.integers(1, max(inside) + 1))
        wide = int(rng.integers(1, sum(size >= gpus for size in inside) + 1))
        limit_s = int(one_of(60, 90, 300, 300, 900, 1_790, 3_600))
        jobs.append(
            TraceJob(
                f"j{i}",
                float(at),
                float(max(1, int(limit_s * one_of(0.1, 0.5, 0.9, 1.0, 2.0)))),
                wide * gpus,
                time_limit_s=float(limit_s),
                nodes=wide,
                partition=part,
                user=one_of("u", "v", "w"),
                account=one_of("x", "y"),
                exclusive=bool(rng.random() < 0.4),
            )
        )
    rules = Parameters(
        bf_interval=one_of(30, 30, 10, 45, -1),
        bf_window=one_of(1_440, 1_440, 20, 5),
        bf_resolution=one_of(60, 60, 1, 20, 600),
        bf_max_job_test=one_of(500, 500, 20, 5, 2),
        bf_max_job_start=one_of(0, 0, 1, 2),
        bf_max_job_user=one_of(0, 0, 0, 1, 3),
        bf_max_job_part=one_of(0, 0, 0, 2),
        bf_max_job_user_part=one_of(0, 0, 0, 2),
        bf_max_job_assoc=one_of(0, 0, 0, 1),
        bf_job_part_count_reserve=one_of(0, 0, 1, 2),
        bf_min_age_reserve=one_of(0, 0, 60),
        bf_node_space_size=one_of(0, 0, 4),
        bf_window_linear=one_of(0, 0, 60),
        bf_busy_nodes=one_of(0, 0, 1),
        default_queue_depth=one_of(100, 100, 2),
        sched_interval=one_of(60, 60, 20, 7),
        ends_up=one_of(0, 1),
        looks_on=one_of(0, 1),
    )
    placement = one_of("pack", "spread")
    return where, jobs, Rules("slurm", placement, AGE_ONLY, rules), one_of("fcfs", "sjf")


def replayed(where: Cluster, jobs: list[TraceJob], rules: Rules, policy: str) -> list[Asked]:
    names = [part.name for part in where.partitions]
    asked = [
        Asked(
            number=i,
            submit_s=int(one.submit_s),
            runs_s=int(one.duration_s),
            limit_s=int(one.time_limit_s or 0),
            partition=names.index(one.partition),
            count=one.nodes or 1,
            gpus=one.gpus // (one.nodes or 1),
            exclusive=one.exclusive,
            user=one.user,
            account=one.account,
            key=one.submit_s if policy == "fcfs" else one.time_limit_s or 0.0,
        )
        for i, one in enumerate(jobs)
    ]
    members = [
        frozenset(i for i, node in enumerate(where.nodes) if name in node.partitions)
        for name in names
    ]
    gpus = [node.total.gpus for node in where.nodes]
    return Referee(gpus, members, asked, rules.parameters, rules.placement == "spread").play(LONG_S)


@pytest.mark.examples
def test_the_passes_are_those_of_a_replay_second_by_second() -> None:
    for seed in range(examples(CASES).max_examples):
        where, jobs, rules, policy = case(seed)
        found = simulate(Scenario.of(where, jobs, rules), policy, Protocol(bounded=False))
        naive = replayed(where, jobs, rules, policy)
        assert found.start_s.tolist() == [one.start_s for one in naive], f"seed {seed}"
        nodes = ["|".join(f"n{n}" for n in sorted(one.nodes)) for one in naive]
        named = ["|".join(part.split(":")[0] for part in text.split("|")) for text in found.nodes]
        assert named == nodes, f"seed {seed}"
