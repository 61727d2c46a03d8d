"""The starts that a real sched/backfill plans beside those of the replay that the kernel equals."""

import re
import time
from collections.abc import Iterator

import numpy as np
import pytest

from rltuned.core.slurm_plan import read_parameters
from rltuned.slurm.site import release_of
from tests.lab import NodeSpec, SlurmLab
from tests.sim.slurm_referee import Asked, Referee

pytestmark = pytest.mark.slurm

NODES = 8
QUEUES = 30
LEAST = 0.9
NEAR_S = 5
SCHEDULER = "bf_continue,bf_interval=3,sched_interval=5"


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    names = tuple(f"n{i}" for i in range(1, NODES + 1))
    with SlurmLab(
        nodes=(NodeSpec(names, cpus=2, mem_mib=4_000, gpu_type="g", gpus=1),),
        partitions=("PartitionName=all Nodes=ALL Default=YES MaxTime=UNLIMITED",),
        scheduler=SCHEDULER,
        priority_type="priority/basic",
    ) as made:
        yield made


def last_pass(lab: SlurmLab) -> int:
    """When the last pass of the backfill was, in whole seconds."""
    found = re.search(r"Backfilling stats.*?Last cycle when:[^(]*\((\d+)\)", lab.run("sdiag"), re.S)
    return int(found[1]) if found else 0


def shown(lab: SlurmLab) -> list[dict[str, str]]:
    """All jobs, by field."""
    lines = lab.scontrol("-o", "show", "jobs").splitlines()
    return [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines if "JobId=" in line]


def seconds(text: str) -> int | None:
    """Of a moment, in the zone of this machine."""
    if text in {"Unknown", ""}:
        return None
    return int(time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))


def minutes_of(limit: str) -> int:
    """Of [days-]hours:minutes:seconds."""
    days, _, clock = limit.rpartition("-")
    hours, minutes, _ = clock.split(":")
    return int(days or 0) * 1_440 + int(hours) * 60 + int(minutes)


def fill(lab: SlurmLab, rng: np.random.Generator) -> None:
    """Some jobs that run, then a queue."""
    running = int(rng.integers(2, 6))
    for _ in range(running):
        lab.sbatch(f"-N{rng.integers(1, 4)}", "--exclusive", f"-t{rng.integers(2, 90)}")
    for _ in range(int(rng.integers(4, 12))):
        lab.sbatch(f"-N{rng.integers(1, 9)}", "--exclusive", f"-t{rng.integers(2, 120)}")


def settled(lab: SlurmLab) -> tuple[int, list[dict[str, str]]]:
    """A pass that began when nothing had changed, and the jobs as it left them."""
    lab.wait_for(lambda: not any(j["JobState"] == "CONFIGURING" for j in shown(lab)), "starts")
    first = last_pass(lab)
    lab.wait_for(lambda: last_pass(lab) > first, "a pass")
    while True:
        before = last_pass(lab)
        jobs = shown(lab)
        started = max(seconds(j["StartTime"]) or 0 for j in jobs if j["JobState"] == "RUNNING")
        if before == last_pass(lab) and started < before:
            return before, jobs
        time.sleep(0.5)


def expected(now: int, jobs: list[dict[str, str]], scheduler: str, version: str) -> list[Asked]:
    """The waiting jobs with what the replay plans in a pass at that time."""
    rules, _ = read_parameters(scheduler, release_of(version))
    asked = []
    for one in sorted(jobs, key=lambda j: int(j["JobId"])):
        if one["JobState"] not in {"RUNNING", "PENDING"}:
            continue
        limit_s = 60 * minutes_of(one["TimeLimit"])
        made = Asked(
            number=int(one["JobId"]), submit_s=0, runs_s=limit_s, limit_s=limit_s, partition=0,
            count=int(one["NumNodes"].partition("-")[0]), gpus=1, exclusive=True, user="",
            account="", key=0.0,
        )  # fmt: skip
        if one["JobState"] == "RUNNING":
            made.start_s = seconds(one["StartTime"])
            made.nodes = nodes_of(one["NodeList"])
        asked.append(made)
    waiting = [one for one in asked if one.start_s is None]
    referee = Referee([1] * NODES, [frozenset(range(NODES))], asked, rules, spread=False)
    referee.running = [one for one in asked if one.start_s is not None]
    referee.waiting = list(waiting)
    referee.backfill_pass(now)
    return waiting


def nodes_of(text: str) -> tuple[int, ...]:
    """Places of n1, n[1-3,5]."""
    found: list[int] = []
    for part in text.removeprefix("n").strip("[]").split(","):
        first, _, last = part.partition("-")
        found += range(int(first) - 1, int(last or first))
    return tuple(found)


def test_planned_starts_are_those_of_slurm(lab: SlurmLab) -> None:
    near = total = 0
    off = []
    version = lab.run("sinfo", "--version").split()[-1]
    for seed in range(QUEUES):
        lab.clear()
        fill(lab, np.random.default_rng(seed))
        now, jobs = settled(lab)
        told = {int(j["JobId"]): seconds(j["StartTime"]) for j in jobs}
        for job in expected(now, jobs, SCHEDULER, version):
            slurm_s = told[job.number]
            ours_s = job.start_s if job.expected_s is None else job.expected_s
            total += 1
            if slurm_s is None or ours_s is None:
                alike = slurm_s == ours_s  # neither has a plan
            else:
                alike = abs(slurm_s - ours_s) <= NEAR_S
            near += alike
            if not alike:
                off.append((seed, job.number, job.count, job.limit_s, slurm_s, ours_s, now))
    assert near >= LEAST * total, off
