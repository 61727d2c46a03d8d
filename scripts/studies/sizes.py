"""What it is worth to choose the size of jobs that can run on several node counts.

    python -m scripts.studies.sizes [--seeds 10]

16 nodes, 400 jobs, EASY, pack. Run times are log-normal. A share of the jobs is moldable: from one
node to eight, by Amdahl's law with 1% to 20% that cannot be parted; the others want 1, 2 or 4
nodes. Load counts every job on its fewest nodes. Slurm gives a moldable job at its start as many
nodes as are free, up to the most that it accepts. The arms are compared with that, on the same
seeds.

fewest: the users ask for one node. knee: rltuned_knee of deploy/job_submit.lua ends their range.
Limits are 1 to 4 times the run time on one node.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from rltuned.core.order import Order
from rltuned.core.placement import place_request
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Request, Share
from rltuned.sim.cluster import Cluster, parse_cluster
from rltuned.sim.dispatch import Pending
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import World
from scripts.studies import plays

NODES, MOST, JOBS = 16, 8, 400
COUNTS = (1, 2, 4, 8)
EFFICIENCY = 0.7
ARMS = ("fewest", "knee")
ORDERS = {"fcfs": 0.0, "delay": 0.1, "delay, stretch 1": 1.0}
"""Stretch of the rule `delay`."""
CLUSTER = f"""
[[nodes]]
name = "n[1-{NODES}]"
gpu_type = "a100"
gpus = 1
cpus = 8
mem_mib = 1000
"""


@dataclass(frozen=True)
class Load:
    """jobs, each as it runs on one node; speeds: of moldable ones, by name."""

    jobs: tuple[TraceJob, ...]
    speeds: dict[str, dict[int, float]]


def load_of(seed: int, share: float, load: float) -> Load:
    rng = np.random.default_rng([seed, 4])
    run_s = np.clip(rng.lognormal(8.0, 1.3, JOBS), 60.0, 172_800.0)
    wide = rng.choice((1, 2, 4), size=JOBS)
    moldable = rng.random(JOBS) < share
    serial = rng.uniform(0.01, 0.2, JOBS)
    work_s = float((run_s * np.where(moldable, 1, wide)).sum())
    submit_s = np.sort(rng.uniform(0, work_s / (load * NODES), JOBS))
    limit_s = run_s * rng.uniform(1.0, 4.0, JOBS)
    jobs, speeds = [], {}
    for n in range(JOBS):
        nodes = 1 if moldable[n] else int(wide[n])
        name = f"j{n}"
        jobs.append(TraceJob(name, submit_s[n], run_s[n], nodes, limit_s[n], nodes=nodes))
        if moldable[n]:
            speeds[name] = {k: 1.0 / (serial[n] + (1 - serial[n]) / k) for k in COUNTS}
    return Load(tuple(jobs), speeds)


class Moldable(World):
    """A world whose moldable jobs get what is free at their start, within what they accept."""

    def __init__(self, load: Load, order: Order, arm: str, cluster: Cluster) -> None:
        self._speeds, self._bounds, self._arm = load.speeds, order, arm
        super().__init__(cluster, load.jobs, order=lambda _: self._sized())

    def _sized(self) -> Iterator[Pending]:
        """The queue in order, each moldable job with the most that it accepts and that is free."""
        for job in sorted(self.pending.values(), key=self._at):
            speeds = self._speeds.get(job.job.job_id)
            if speeds is not None:
                counts = sorted(self._asked(speeds))
                fits = [k for k in counts if self._fits(job, k)]
                job.request = _on(job.request, fits[-1] if fits else counts[0])
            yield job

    def _asked(self, speeds: dict[int, float]) -> tuple[int, ...]:
        if self._arm == "fewest":
            return (1,)
        if self._arm == "knee":
            return tuple(k for k in speeds if speeds[k] / k >= EFFICIENCY * speeds[1])
        return tuple(speeds)

    def _fits(self, job: Pending, count: int) -> bool:
        member = self.capacity.members_of((job.partition.name,))
        return place_request(_on(job.request, count), member, self.capacity, "pack") is not None

    def _at(self, job: Pending) -> tuple[float, int]:
        """Eligible + D. A range counts as its middle."""
        size = MOST // 2 if job.job.job_id in self._speeds else job.job.gpus
        delay_s = plays.step_back_s(job.job.time_limit_s, size, self._bounds)
        return job.job.submit_s + delay_s, job.number

    def _start(self, job: Pending, shares: tuple[Share, ...]) -> None:
        speeds = self._speeds.get(job.job.job_id)
        if speeds is not None:
            speed = speeds[job.request.total.gpus]
            job.job = replace(job.job, duration_s=job.job.duration_s / speed)
        super()._start(job, shares)


def _on(request: Request, nodes: int) -> Request:
    return replace(request, total=Resources(nodes, nodes, 0), nodes=nodes)


def play(load: Load, order: Order, arm: str, cluster: Cluster) -> tuple[float, float]:
    """Mean JCT and mean wait, in seconds."""
    done = plays.play_to_end(Moldable(load, order, arm, cluster), len(load.jobs))
    jct_s = [one.ended_at - one.job.submit_s for one in done]
    return float(np.mean(jct_s)), float(np.mean([o.started_at - o.job.submit_s for o in done]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(1, parser.parse_args().seeds + 1)
    cluster = parse_cluster(CLUSTER, "sizes", "sizes")
    plays.head("order", "moldable", "load", *ARMS)
    for (name, stretch), share, level in product(ORDERS.items(), (0.3, 1.0), (0.7, 0.9)):
        loads, order = [load_of(seed, share, level) for seed in seeds], Order(stretch=stretch)
        base = np.array([play(one, order, "greedy", cluster) for one in loads])
        cells = []
        for arm in ARMS:
            own = np.array([play(one, order, arm, cluster) for one in loads])
            cells.append(plays.compared(own[:, 0], base[:, 0], "jct_s"))
        print(plays.row_of([name, f"{share:.0%}", f"{level}", *cells]), flush=True)


if __name__ == "__main__":
    main()
