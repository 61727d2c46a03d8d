"""What a boost of critical jobs gives the groups, and what those beside them pay.

    python -m scripts.studies.groups [--seeds 12]

The testbed of 13 GPUs at load 0.9, EASY, pack. 5 groups (scripts/studies/workflows.py) and 250
single jobs (the generator testbed-1024). The rule is `delay`; every job has its delay from the
moment it becomes eligible, and a critical one, by the daemon's own forecast from time limits, a
shorter one. No clock is in it but the simulation's. sim/world knows no dependencies: a task is
submitted here when its last parent ends, which is when it becomes eligible.

Printed: mean makespan of the groups and mean wait of the single jobs against boost 0 on the same
seeds, with 95% intervals over seeds.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import isinf

import numpy as np

from rltuned.core.group_forecast import foresee
from rltuned.core.order import Order
from rltuned.domain.groups import GroupJob, JobPhase
from rltuned.sim.dispatch import Pending
from rltuned.sim.limits import Strength, draw_limits
from rltuned.sim.presets import preset
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Running, World
from scripts.studies import plays
from scripts.studies.workflows import SHAPES, workflow

LOAD = 0.9
GROUPS, SINGLES = 5, 250
LONGEST_S = 86_400.0
"""Limit of the testbed's partition."""
BOOSTS = (0.25, 0.5, 0.75, 0.9)
STRETCHES = (0.1, 1.0)
LIMITS: tuple[Strength, ...] = ("informative", "weak")


@dataclass(frozen=True)
class Load:
    """jobs: by name, `G/TASK` in a group. parents: of the tasks."""

    jobs: dict[str, TraceJob]
    parents: dict[str, list[str]]


class Linked(World):
    """A world in which a job is submitted when its last parent has ended."""

    def __init__(self, load: Load, order: Order, boost: float) -> None:
        self._load, self._bounds, self._boost = load, order, boost
        self._left = {name: set(those) for name, those in load.parents.items()}
        self._steps: dict[str, dict[int, GroupJob]] = {}
        self._virtual: dict[int, float] = {}
        for name in load.parents:
            group, task = name.split("/")
            limit_s = load.jobs[name].time_limit_s
            known = None if isinf(limit_s) else limit_s
            parents = {int(p.split("/")[1]): "afterok" for p in load.parents[name]}
            step = GroupJob(parents, run_s=known, most_s=known, source="limit")
            self._steps.setdefault(group, {})[int(task)] = step
        first = [job for name, job in load.jobs.items() if not self._left.get(name)]
        ordered = sorted(first, key=lambda job: job.submit_s)
        super().__init__(preset("testbed"), ordered, order=lambda _: self._ordered())

    def _ordered(self) -> Sequence[Pending]:
        return sorted(self.pending.values(), key=lambda job: (self._at(job), job.number))

    def _at(self, job: Pending) -> float:
        """Eligible + D, fixed when the job becomes eligible."""
        if job.number not in self._virtual:
            limit_s, size = min(job.job.time_limit_s, 1e9), max(1.0, job.job.gpus)
            delay_s = plays.step_back_s(limit_s, size, self._bounds)
            share = 1.0 - self._boost if self._is_critical(job.job.job_id) else 1.0
            self._virtual[job.number] = job.job.submit_s + share * delay_s
        return self._virtual[job.number]

    def _is_critical(self, name: str) -> bool:
        if not self._boost or "/" not in name:
            return False
        group, task = name.split("/")
        return int(task) in foresee(self._steps[group], self.now).critical

    def _start(self, job: Pending, shares: object) -> None:
        super()._start(job, shares)  # type: ignore[arg-type]
        self._note(job.job.job_id, phase=JobPhase.RUNNING, started_at=self.now)

    def _end(self, run: Running) -> None:
        super()._end(run)
        name = run.pending.job.job_id
        self._note(name, phase=JobPhase.ENDED, ended_at=self.now)
        for child, left in self._left.items():
            if name in left:
                left.discard(name)
                if not left:
                    self.submit([replace(self._load.jobs[child], submit_s=self.now)])

    def _note(self, name: str, **changes: object) -> None:
        if "/" in name:
            group, task = name.split("/")
            steps = self._steps[group]
            steps[int(task)] = replace(steps[int(task)], **changes)  # type: ignore[arg-type]


def load_of(seed: int, limits: Strength) -> Load:
    """Groups and single jobs over so long that the load is LOAD."""
    rng = np.random.default_rng([seed, 22])
    singles = synthesize("testbed-1024", jobs=SINGLES, seed=seed, limits=limits).jobs
    kinds = rng.choice(sorted(SHAPES), size=GROUPS, replace=False)
    made = [workflow(kind, seed) for kind in kinds]
    work = sum(job.gpus * job.duration_s for job in singles)
    work += sum(one.gpus[n] * one.run_s[n] for one in made for n in one.parents)
    span_s = work / (LOAD * preset("testbed").gpus)
    jobs = {
        f"s{n}": replace(job, job_id=f"s{n}", submit_s=at)
        for n, (job, at) in enumerate(
            zip(singles, np.sort(rng.uniform(0, span_s, SINGLES)).tolist(), strict=True)
        )
    }
    parents: dict[str, list[str]] = {}
    for group, (one, at) in enumerate(zip(made, rng.uniform(0, 0.7 * span_s, GROUPS), strict=True)):
        run_s = np.array(list(one.run_s.values()))
        limits_s = np.minimum(draw_limits(run_s, limits, rng), LONGEST_S)
        for n, limit_s in zip(one.parents, limits_s.tolist(), strict=True):
            name = f"{group}/{n}"
            jobs[name] = TraceJob(name, float(at), one.run_s[n], one.gpus[n], limit_s)
            parents[name] = [f"{group}/{p}" for p in one.parents[n]]
    return Load(jobs, parents)


def play(load: Load, order: Order, boost: float) -> tuple[float, float]:
    """Mean makespan of the groups, mean wait of the single jobs, in seconds."""
    ends: dict[str, float] = {}
    waits: list[float] = []
    for done in plays.play_to_end(Linked(load, order, boost), len(load.jobs)):
        if "/" in done.job.job_id:
            group = done.job.job_id.split("/")[0]
            begun = load.jobs[done.job.job_id].submit_s
            ends[group] = max(ends.get(group, 0.0), done.ended_at - begun)
        else:
            waits.append(done.started_at - done.job.submit_s)
    return float(np.mean(list(ends.values()))), float(np.mean(waits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    seeds = range(1, parser.parse_args().seeds + 1)
    plays.head("limits", "stretch", "boost", "makespan of groups", "wait of single jobs")
    for limits, stretch in product(LIMITS, STRETCHES):
        loads = [load_of(seed, limits) for seed in seeds]
        order = Order(stretch=stretch)
        base = np.array([play(load, order, 0.0) for load in loads])
        for boost in BOOSTS:
            own = np.array([play(load, order, boost) for load in loads])
            cells = [plays.compared(own[:, at], base[:, at], "wait_s") for at in (0, 1)]
            print(plays.row_of([limits, f"{stretch:g}", f"{boost:g}", *cells]), flush=True)


if __name__ == "__main__":
    main()
