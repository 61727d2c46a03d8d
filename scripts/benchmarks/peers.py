"""Ours beside others on Lublin-256, whose published numbers can be recomputed.

    python -m scripts.benchmarks.peers ../shared/traces/lublin_256.swf.gz

The README of RLScheduler's repository (DIR-LAB/deep-batch-scheduler) states trace, seed, number and
length of the sequences behind Table V of its paper, and its code the rules of its simulator. Here
these rules are written again and played on the same sequences, beside the classic rules and the
learned policies in our own simulator. Prints Markdown; --json gives all numbers.
"""

import argparse
import hashlib
import heapq
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rltuned.sim.cluster import Cluster, parse_cluster
from rltuned.sim.dispatch import BackfillRule
from rltuned.sim.metrics import score
from rltuned.sim.protocol import Protocol
from rltuned.sim.readers.swf import read_swf
from rltuned.sim.run import Window, compare
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from rltuned.train.ground import cut, make_ground
from rltuned.train.trial import total
from scripts.studies import comparators

SEED, COUNT, LENGTH, PROCESSORS = 1, 10, 1_024, 256
SHORTEST_S = 10.0
RULES = ("fcfs", "wfp3", "unicep", "sjf", "f1", "saf", "smallest")
COMPARATORS = ("rlscheduler", "schedinspector")
MODELS = ("model:rltune", "model:rltune-paper")
PUBLISHED = {
    "none": {"fcfs": 7273.77, "wfp3": 19753.53, "unicep": 22274.74, "sjf": 277.35, "f1": 258.37,
             "rlscheduler": 254.67},
    "easy": {"fcfs": 235.82, "wfp3": 133.87, "unicep": 307.23, "sjf": 73.31, "f1": 75.07,
             "rlscheduler": 58.64},
}  # fmt: skip
"""Table V of RLScheduler, row Lublin-1, as its README gives it: mean bounded slowdown."""

Key = Callable[[TraceJob], tuple[float, float]]


def _f1(job: TraceJob) -> tuple[float, float]:
    return math.log10(job.time_limit_s) * job.gpus + 870 * math.log10(job.submit_s), 0.0


def _wfp3(job: TraceJob) -> tuple[float, float]:
    """With the wait of a job that has not started, which there is -1 - submit."""
    return -(((-1 - job.submit_s) / job.time_limit_s) ** 3) * job.gpus, 0.0


def _unicep(job: TraceJob) -> tuple[float, float]:
    waited = -1 - job.submit_s + 1e-15
    return -waited / (math.log2(job.gpus + 1e-15) * job.time_limit_s), 0.0


THEIRS: dict[str, Key] = {
    "fcfs": lambda j: (j.submit_s, 0.0),
    "wfp3": _wfp3,
    "unicep": _unicep,
    "sjf": lambda j: (j.time_limit_s, j.submit_s),
    "f1": _f1,
}
"""The smaller key first; WFP3 and UNICEP as they are coded there, not as they are defined."""


@dataclass
class Committed:
    """One sequence by their rules: the picked job is waited for, whatever comes meanwhile."""

    jobs: tuple[TraceJob, ...]
    key: Key
    backfill: bool

    def play(self) -> float:
        """Mean bounded slowdown."""
        self.now, self.free, self.arrived = self.jobs[0].submit_s, PROCESSORS, 1
        self.queue = [0]
        self.running: list[tuple[float, int]] = []
        self.wait_s: dict[int, float] = {}
        while self.queue:
            self.queue.sort(key=lambda i: self.key(self.jobs[i]))
            head = self.queue[0]
            self._wait_for(head)
            self._start(head)
            self._until_somebody_waits()
        return float(np.mean([self._slowdown(i) for i in range(len(self.jobs))]))

    def _slowdown(self, index: int) -> float:
        run_s = self.jobs[index].duration_s
        return max(1.0, (self.wait_s[index] + run_s) / max(run_s, SHORTEST_S))

    def _start(self, index: int) -> None:
        job = self.jobs[index]
        self.free -= job.gpus
        heapq.heappush(self.running, (self.now + job.duration_s, index))
        self.wait_s[index] = self.now - job.submit_s
        self.queue.remove(index)

    def _step(self) -> None:
        """The next arrival or the next end, whichever is first; arrivals before ends."""
        ends_at = self.running[0][0] if self.running else math.inf
        if self.arrived < len(self.jobs) and self.jobs[self.arrived].submit_s <= ends_at:
            self.now = max(self.now, self.jobs[self.arrived].submit_s)
            self.queue.append(self.arrived)
            self.arrived += 1
            return
        self.now = max(self.now, ends_at)
        self.free += self.jobs[heapq.heappop(self.running)[1]].gpus

    def _wait_for(self, head: int) -> None:
        if self.jobs[head].gpus <= self.free:
            return
        shadow_s = self._shadow(head)
        while self.jobs[head].gpus > self.free:
            if self.backfill:
                for index in sorted(self.queue, key=lambda i: self.jobs[i].submit_s):
                    job = self.jobs[index]
                    if self.now + job.time_limit_s < shadow_s and job.gpus <= self.free:
                        self._start(index)
            self._step()

    def _shadow(self, head: int) -> float:
        free = self.free
        for ends_at, index in sorted(self.running):  # limits are the run times on this trace
            free += self.jobs[index].gpus
            if free >= self.jobs[head].gpus:
                return ends_at
        raise ValueError(f"job {self.jobs[head].job_id} asks for more than there is")

    def _until_somebody_waits(self) -> None:
        while not self.queue and self.arrived < len(self.jobs):
            self._step()


def starts(size: int) -> list[int]:
    """Where their sequences begin: gym's generator, seeded with the hash of the seed."""
    digest = hashlib.sha512(str(SEED).encode()).digest()[:8]
    words = [int.from_bytes(digest[i : i + 4], "little") for i in (0, 4)]
    draw = np.random.RandomState()
    draw.seed(words)
    return [int(draw.randint(LENGTH, size - LENGTH - 1)) for _ in range(COUNT)]


def read_jobs(path: Path) -> tuple[TraceJob, ...]:
    """The trace has no requested time: both take the run time for it, as RLScheduler does."""
    jobs = read_swf(path).jobs
    return tuple(replace(j, time_limit_s=j.duration_s) for j in jobs)


def cluster() -> Cluster:
    """256 processors of which any will do: one node, so that only the count matters."""
    text = (
        f'[[nodes]]\nname = "n1"\ngpus = {PROCESSORS}\ncpus = {PROCESSORS}\nmem_mib = 1000\n'
        'partitions = ["all"]\n[[partitions]]\nname = "all"\ndefault = true\n'
    )
    return parse_cluster(text, "lublin", "lublin-256")


def ours(jobs: tuple[TraceJob, ...], begins: list[int], backfill: BackfillRule) -> dict[str, float]:
    """Mean bounded slowdown by policy in our simulator, ranked at every event."""
    chosen = tuple(Window(i, jobs[b : b + LENGTH]) for i, b in enumerate(begins))
    where, policies = cluster(), (*RULES, *MODELS)
    protocol = Protocol(rules=Rules(backfill), bounded=False)
    found = compare(chosen, where, policies, protocol)
    ground = make_ground("lublin", where, jobs, Rules(backfill))
    windows = [cut(ground, begin, LENGTH) for begin in begins]
    learned = {}
    for name in COMPARATORS:
        design, actor = comparators.read(name)
        costs = [total("bsld", w, design.play(w, actor)[0]) for w in windows]
        learned[name] = 1.0 + float(np.mean(costs))
    return learned | {name: score(played, where.gpus).bsld for name, played in found.items()}


def measure(path: Path) -> dict[str, dict[str, dict[str, float]]]:
    """By backfill: published, their rules replayed, our simulator."""
    jobs = read_jobs(path)
    begins = starts(len(jobs))
    found: dict[str, dict[str, dict[str, float]]] = {}
    rules: tuple[BackfillRule, ...] = ("none", "easy")
    for backfill in rules:
        replayed = {
            name: float(
                np.mean(
                    [
                        Committed(jobs[b : b + LENGTH], key, backfill == "easy").play()
                        for b in begins
                    ]
                )
            )
            for name, key in THEIRS.items()
        }
        found[backfill] = {
            "published": PUBLISHED[backfill],
            "replayed": replayed,
            "ours": ours(jobs, begins, backfill),
        }
    return found


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """Markdown: claims in one column, measured facts in the others."""
    lines = []
    for backfill, by in found.items():
        lines += [
            f"Backfill: {backfill}.", "",
            "| policy | claim: published | measured: their rules | measured: our simulator |",
            "|---|---|---|---|",
        ]  # fmt: skip
        for name in (*RULES, *COMPARATORS, *MODELS):
            cells = [
                f"{by[kind][name]:,.2f}" if name in by[kind] else "-"
                for kind in ("published", "replayed", "ours")
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks.peers")
    parser.add_argument("trace", type=Path, help="lublin_256.swf, plain or gzip")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    began = time.process_time()
    found = measure(given.trace)
    print(f"bench-peers: {time.process_time() - began:.0f} processor seconds", file=sys.stderr)
    print(json.dumps(found, indent=1) if given.json else table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
