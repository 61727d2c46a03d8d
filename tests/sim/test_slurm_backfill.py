"""Slurm's own backfill: equal to a replay second by second, and where it differs from EASY."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from rltuned.cli import app
from rltuned.core.slurm_plan import Parameters
from rltuned.domain.cluster import Partition, Resources
from rltuned.domain.units import GpuType
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import write_trace
from rltuned.sim.cluster import Cluster, idle_node
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import AGE_ONLY, Rules
from tests.backtest.worlds import jobs, site
from tests.examples import examples
from tests.sim.slurm_referee import Asked, Referee
from tests.sim.worlds import cluster, job

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
        bf_min_prio_reserve=AGE_ONLY.base + 120 if seed % 7 == 0 else 0,
        bf_node_space_size=one_of(0, 0, 4),
        bf_window_linear=one_of(0, 0, 60),
        bf_busy_nodes=one_of(0, 0, 1),
        default_queue_depth=one_of(100, 100, 2),
        sched_interval=one_of(60, 60, 20, 7),
        ends_up=one_of(0, 1),
        looks_on=one_of(0, 1),
        own_ends=one_of(0, 1),
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


def wide(name: str, at: float, runs: float, nodes: int, user: str = "") -> TraceJob:
    """A job of whole nodes of one GPU, whose limit is its run time."""
    return job(name, at, runs, nodes, nodes=nodes, user=user)


APART: list[tuple[str, int, dict[str, int], list[TraceJob], list[float], list[float]]] = [
    (
        "a job passes the first one in a pass of the backfill alone, every 30 s",
        2, {}, [wide("a", 0, 1000, 1), wide("h", 5, 600, 2), wide("b", 10, 60, 1)],
        [0, 1000, 10], [0, 1000, 30],
    ),
    (
        "every tested job gets its nodes reserved, not the first one alone",
        4, {},
        [wide("a", 0, 600, 2), wide("h", 1, 600, 3), wide("i", 2, 1200, 4), wide("b", 3, 1800, 1)],
        [0, 600, 1803, 3], [0, 600, 1200, 2400],
    ),
    (
        "bf_job_part_count_reserve=1: the first one's alone",
        4, {"bf_job_part_count_reserve": 1},
        [wide("a", 0, 600, 2), wide("h", 1, 600, 3), wide("i", 2, 1200, 4), wide("b", 3, 1800, 1)],
        [0, 600, 1803, 3], [0, 600, 1830, 30],
    ),
    (
        "a reservation begins at the minute before",
        2, {}, [wide("a", 50, 600, 1), wide("h", 51, 600, 2), wide("b", 55, 540, 1)],
        [50, 650, 55], [50, 650, 1250],
    ),
    (
        "ends of running jobs within a minute are one: what is in the way of the first one is not",
        3, {},
        [wide("a", 0, 600, 1), wide("c", 0, 660, 1), wide("h", 5, 600, 2), wide("b", 30, 600, 1)],
        [0, 0, 600, 660], [0, 0, 630, 30],
    ),
    (
        "limits are whole minutes: one of 70 s is planned with 120",
        2, {}, [wide("a", 0, 120, 1), wide("h", 5, 600, 2), wide("b", 10, 70, 1)],
        [0, 120, 10], [0, 120, 720],
    ),
    (
        "bf_max_job_test=2: a third job is not looked at",
        3, {"bf_max_job_test": 2},
        [wide("a", 0, 1200, 2), wide("h", 1, 600, 3), wide("i", 2, 900, 3), wide("b", 3, 60, 1)],
        [0, 1200, 1800, 3], [0, 1200, 1800, 2700],
    ),
    (
        "bf_max_job_user=1: one job of each user in a pass",
        4, {"bf_max_job_user": 1},
        [
            wide("a", 0, 1200, 2, user="u"), wide("h", 1, 600, 4, user="u"),
            wide("b", 3, 60, 1, user="v"), wide("c", 4, 60, 1, user="v"),
        ],
        [0, 1200, 3, 4], [0, 1200, 30, 60],
    ),
    (
        "bf_max_job_start=1: one start in a pass",
        3, {"bf_max_job_start": 1},
        [wide("a", 0, 1000, 1), wide("h", 5, 600, 3), wide("b", 10, 60, 1), wide("c", 11, 60, 1)],
        [0, 1000, 10, 11], [0, 1000, 30, 60],
    ),
    (
        "bf_min_prio_reserve: nothing is reserved for a job below it",
        2, {"bf_min_prio_reserve": AGE_ONLY.base + 10_000},
        [wide("a", 0, 1000, 1), wide("h", 5, 600, 2), wide("b", 10, 1800, 1)],
        [0, 1000, 1600], [0, 1830, 30],
    ),
    (
        "bf_window=5: nothing is reserved for a start that is 5 minutes off",
        2, {"bf_window": 5}, [wide("a", 0, 1000, 1), wide("h", 5, 600, 2), wide("b", 10, 1800, 1)],
        [0, 1000, 1600], [0, 1830, 30],
    ),
    (
        "bf_interval=-1: no backfill",
        2, {"bf_interval": -1}, [wide("a", 0, 1000, 1), wide("h", 5, 600, 2), wide("b", 10, 60, 1)],
        [0, 1000, 10], [0, 1000, 1600],
    ),
]  # fmt: skip
"""A rule, nodes, parameters, jobs, and their starts under EASY and under Slurm."""


@pytest.mark.parametrize(
    ("nodes", "parameters", "jobs", "easy", "slurm"), [one[1:] for one in APART],
    ids=[one[0] for one in APART],
)  # fmt: skip
def test_where_easy_and_slurm_part(
    nodes: int,
    parameters: dict[str, int],
    jobs: list[TraceJob],
    easy: list[float],
    slurm: list[float],
) -> None:
    where = cluster(*((f"n{i}", 1) for i in range(nodes)))
    theirs = Rules("slurm", "pack", AGE_ONLY, Parameters(**parameters))
    for rules, starts in ((Rules(natural=AGE_ONLY), easy), (theirs, slurm)):
        found = simulate(Scenario.of(where, jobs, rules), "fcfs", Protocol(bounded=False))
        assert found.start_s.tolist() == starts
    named = [replace(one, partition="p") for one in jobs]
    assert [one.start_s for one in replayed(where, named, theirs, "fcfs")] == slurm


def invoked(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--backfill", "slurm", "--backfill-param", "bf_max_time=3"), "bf_max_time' is not"),
        (("--backfill", "slurm", "--backfill-param", "bf_window=0"), "bf_window must be a whole"),
        (("--backfill-param", "bf_window=60"), "only --backfill slurm has parameters"),
    ],
)  # fmt: skip
def test_what_is_not_played_is_refused_by_name(words: tuple[str, ...], why: str) -> None:
    for command in ("simulate", "evaluate"):
        asked = ("-p", "fcfs") if command == "simulate" else ("-m", "model:rltune")
        reply = invoked(command, "--trace", "/no", "--cluster", "testbed", *asked, *words)
        assert reply.exit_code == 2
        assert why in " ".join(reply.output.replace("│", " ").split())


def test_parameters_of_the_command_line_are_played(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_trace(synthesize("testbed-1024", jobs=200, seed=4), path)

    def waits(*words: str) -> float:
        asked = ("--trace", path, "--cluster", "testbed", "-p", "fcfs", "--bounds", "off", "--json")
        reply = invoked("simulate", *asked, *words)
        assert reply.exit_code == 0, reply.output
        return float(json.loads(reply.stdout)["policies"]["fcfs"]["wait_s"])

    slurm = ("--backfill", "slurm")
    assert waits() == waits("--backfill", "easy") != waits(*slurm)
    assert waits(*slurm, "--backfill-param", "bf_interval=-1") > waits(*slurm)


def test_a_backtest_plays_the_sites_own_and_what_another_setting_would_do(tmp_path: Path) -> None:
    folder = site(tmp_path / "site", jobs(110))
    asked = ("backtest", "--site", folder, "-p", "saf", "--train", "none", "--no-choose")
    words = invoked(*asked).stdout.splitlines()
    assert "backfill played: sched/backfill with the defaults of Slurm" in words[:5]
    easy = invoked(*asked, "--backfill", "easy").stdout.splitlines()
    assert any(line.startswith("backfill played: EASY, and not") for line in easy[:5])
    reply = invoked(*asked, "--what-if", "bf_interval=-1", "--what-if", "bf_window=60")
    assert reply.exit_code == 0, reply.output
    assert "with bf_interval=-1: mean wait under multifactor +" in reply.stdout
    assert "  SchedulerParameters=bf_continue,bf_window=60\n" in reply.stdout
    for more in (("--backfill", "easy", "--what-if", "bf_window=60"), ("--what-if", "bf_x=1")):
        assert invoked(*asked, *more).exit_code == 2
