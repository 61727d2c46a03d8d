"""RLScheduler's published figures on Lublin-1, its rules replayed, and this simulator beside them.

    python -m scripts.studies.lublin [../shared/traces/lublin_256.swf.gz]

The README of RLScheduler (Zhang et al., SC'20) names trace, seed, number and length of the
sequences behind the row Lublin-1 of its Table V. Its simulator waits for the job that it has
picked, whatever arrives meanwhile; `Replay` does so too. This simulator ranks the queue at every
event, as Slurm does, without bounds. Mean bounded slowdown, run times as limits on both sides;
below, processor seconds of all sequences under FCFS without backfill.
"""

import argparse
import hashlib
import heapq
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np

from rltuned.lab.replay.metrics import score
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.readers import read_swf
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.cluster import parse_cluster
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules

SEED, COUNT, LENGTH, PROCESSORS, SHORTEST_S = 1, 10, 1_024, 256, 10.0
POLICIES = ("fcfs", "wfp3", "unicep", "sjf", "f1", "saf", "smallest")
PUBLISHED = {
    "none": {"fcfs": 7273.77, "wfp3": 19753.53, "unicep": 22274.74, "sjf": 277.35, "f1": 258.37},
    "easy": {"fcfs": 235.82, "wfp3": 133.87, "unicep": 307.23, "sjf": 73.31, "f1": 75.07},
}
Backfill = Literal["none", "easy"]
KEYS: dict[str, Callable[[TraceJob], tuple[float, float]]] = {
    "fcfs": lambda j: (j.submit_s, 0.0),
    "wfp3": lambda j: (-(((-1 - j.submit_s) / j.time_limit_s) ** 3) * j.gpus, 0.0),
    "unicep": lambda j: (
        (1 + j.submit_s - 1e-15) / (math.log2(j.gpus + 1e-15) * j.time_limit_s), 0.0,
    ),
    "sjf": lambda j: (j.time_limit_s, j.submit_s),
    "f1": lambda j: (math.log10(j.time_limit_s) * j.gpus + 870 * math.log10(j.submit_s), 0.0),
}  # fmt: skip
"""Their rules, the smallest first, with their wait of a job that has not started: -1 - submit."""


@dataclass
class Replay:
    """One sequence in their simulator."""

    jobs: tuple[TraceJob, ...]
    key: Callable[[TraceJob], tuple[float, float]]
    backfill: Backfill
    now: float = 0.0
    free: int = PROCESSORS
    arrived: int = 0
    queue: list[int] = field(default_factory=list)
    running: list[tuple[float, int]] = field(default_factory=list)
    wait_s: dict[int, float] = field(default_factory=dict)

    def bsld(self) -> float:
        """Mean bounded slowdown."""
        self._step()
        while self.queue:
            head = min(self.queue, key=lambda i: self.key(self.jobs[i]))
            while self.jobs[head].gpus > self.free:
                if self.backfill == "easy":
                    self._fill(self._shadow_s(head))
                self._step()
            self._start(head)
            while not self.queue and self.arrived < len(self.jobs):
                self._step()
        run_s = np.array([j.duration_s for j in self.jobs])
        wait_s = np.array([self.wait_s[i] for i in range(len(self.jobs))])
        return float(np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, SHORTEST_S)).mean())

    def _start(self, index: int) -> None:
        job = self.jobs[index]
        self.free -= job.gpus
        heapq.heappush(self.running, (self.now + job.duration_s, index))
        self.wait_s[index] = self.now - job.submit_s
        self.queue.remove(index)

    def _step(self) -> None:
        """The next arrival or end, whichever is first; arrivals before ends."""
        ends_at = self.running[0][0] if self.running else math.inf
        if self.arrived < len(self.jobs) and self.jobs[self.arrived].submit_s <= ends_at:
            self.now = max(self.now, self.jobs[self.arrived].submit_s)
            self.queue.append(self.arrived)
            self.arrived += 1
            return
        self.now = max(self.now, ends_at)
        self.free += self.jobs[heapq.heappop(self.running)[1]].gpus

    def _fill(self, shadow_s: float) -> None:
        for index in sorted(self.queue, key=lambda i: self.jobs[i].submit_s):
            job = self.jobs[index]
            if self.now + job.time_limit_s < shadow_s and job.gpus <= self.free:
                self._start(index)

    def _shadow_s(self, head: int) -> float:
        free = self.free
        for ends_at, index in sorted(self.running):
            free += self.jobs[index].gpus
            if free >= self.jobs[head].gpus:
                return ends_at
        raise ValueError(f"job {self.jobs[head].job_id} asks for more than there is")


def sequences(jobs: tuple[TraceJob, ...]) -> list[tuple[TraceJob, ...]]:
    """Theirs: the generator of gym, seeded with the hash of the seed."""
    digest = hashlib.sha512(str(SEED).encode()).digest()[:8]
    draw = np.random.RandomState()
    draw.seed([int.from_bytes(digest[i : i + 4], "little") for i in (0, 4)])
    starts = [int(draw.randint(LENGTH, len(jobs) - LENGTH - 1)) for _ in range(COUNT)]
    return [jobs[start : start + LENGTH] for start in starts]


def here(found: list[tuple[TraceJob, ...]], policy: str, backfill: Backfill) -> float:
    """Mean bounded slowdown in this simulator, on one node of 256 processors."""
    cluster = parse_cluster(
        f'[[nodes]]\nname = "n1"\ngpus = {PROCESSORS}\ncpus = {PROCESSORS}\nmem_mib = 1000\n'
        'partitions = ["all"]\n[[partitions]]\nname = "all"\ndefault = true\n',
        "lublin", "lublin-256",
    )  # fmt: skip
    protocol = Protocol(bounded=False)
    windows = (Scenario.of(cluster, jobs, Rules(backfill)) for jobs in found)
    return score([simulate(w, policy, protocol) for w in windows], PROCESSORS).bsld


def main() -> None:
    """Print the table of results/lublin.md."""
    parser = argparse.ArgumentParser(prog="python -m scripts.studies.lublin", description=__doc__)
    trace = Path("../shared/traces/lublin_256.swf.gz")
    parser.add_argument("trace", type=Path, nargs="?", default=trace)
    # the trace has no requested time: both sides take the run time for it
    jobs = read_swf(parser.parse_args().trace).jobs
    found = sequences(tuple(replace(j, time_limit_s=j.duration_s) for j in jobs))
    backfills: tuple[Backfill, ...] = ("none", "easy")
    print("| policy | backfill | published | their rules, replayed | this simulator |")
    print("|---|---|---|---|---|")
    for backfill, policy in product(backfills, POLICIES):
        published, theirs = "none", "none"
        if policy in KEYS:
            played = [Replay(jobs, KEYS[policy], backfill).bsld() for jobs in found]
            published, theirs = f"{PUBLISHED[backfill][policy]:,.2f}", f"{np.mean(played):,.2f}"
        own = here(found, policy, backfill)
        print(f"| {policy} | {backfill} | {published} | {theirs} | {own:,.2f} |")
    began = time.process_time()
    _ = [Replay(jobs, KEYS["fcfs"], "none").bsld() for jobs in found]
    middle = time.process_time()
    here(found, "fcfs", "none")
    print(f"\nFCFS: {middle - began:.3f} s replayed, {time.process_time() - middle:.3f} s here")


if __name__ == "__main__":
    main()
