"""A canary on the built-in cluster, through the daemon's own loop: figures of ADR 10.

    python -m scripts.canary_world --policy neutral --write-mode site_factor --seed 1

Half of the jobs are treated, a cycle is five minutes of simulated time. Policies: neutral (keeps
the order in force), sjf, longest (the largest time limit first).
"""

import argparse
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from rltuned.core.decide import Knobs, Policy
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.ladder import Ladder, Rung
from rltuned.core.numbers import Writing
from rltuned.core.select import Rules
from rltuned.daemon.journal import Journal
from rltuned.daemon.loop import Loop
from rltuned.daemon.outcomes import Arm
from rltuned.daemon.report import CycleReport
from rltuned.daemon.seams import Rig
from rltuned.daemon.signals import Orders
from rltuned.policies.baselines import BASELINES
from rltuned.sim.backend import SimBackend
from rltuned.sim.demo import SLA, demo_world

INTERVAL_S = 300.0
START = 1.7e9
LADDER = Ladder(Rung.CANARY, fraction=0.5)


class Clock:
    """Time that goes only while the loop waits."""

    def __init__(self) -> None:
        self._elapsed_s = 0.0

    def now(self) -> float:
        return START + self._elapsed_s

    def monotonic(self) -> float:
        return self._elapsed_s

    def wait(self, seconds: float) -> bool:
        self._elapsed_s += seconds
        return False


@dataclass(frozen=True)
class Neutral:
    name: str = "neutral"

    def score(self, matrix: StateMatrix) -> FloatArray:
        return np.array([float(job.priority) for job in matrix.jobs])

    def delay_s(self, matrix: StateMatrix) -> FloatArray:
        return np.zeros(len(matrix))


@dataclass(frozen=True)
class Longest:
    name: str = "longest"

    def score(self, matrix: StateMatrix) -> FloatArray:
        return -BASELINES["sjf"].score(matrix)

    def delay_s(self, matrix: StateMatrix) -> FloatArray:
        found = BASELINES["sjf"].delay_s(matrix)
        longest: FloatArray = found.max(initial=0.0) - found
        return longest


class Tally:
    """Waits by arm, the strongest evidence, and when a breaker opened."""

    def __init__(self) -> None:
        self.waits: dict[Arm, list[float]] = defaultdict(list)
        self.evidence = 1.0
        self.opened = ""

    def cycle(self, report: CycleReport) -> None:
        if report.verdict is None:
            raise RuntimeError(report.detail or report.journal_error)
        for job in report.verdict.outcomes.started:
            if job.wait_s is not None:
                self.waits[job.arm].append(job.wait_s)
        for breaker in report.verdict.breakers.values():
            values = [e.value for e in breaker.evidence.values()]
            self.evidence = max([self.evidence, *values])
            if breaker.is_open and not self.opened:
                jobs = len(self.waits[Arm.TREATED]) + len(self.waits[Arm.CONTROL])
                self.opened = f"after {jobs} jobs: {breaker.detail}"

    def alive(self) -> None: ...

    def unexpected(self, error: Exception) -> None:
        raise error

    def reloading(self) -> None: ...

    def loaded(self, rig: Rig) -> None: ...

    def not_loaded(self, reason: str) -> None: ...


def rig_of(policy: Policy, clock: Clock, folder: Path, asked: argparse.Namespace) -> Rig:
    rules = Rules(
        sla_partitions=frozenset({SLA}),
        canary=LADDER.canary,
        max_writes_per_hour=30,
    )
    return Rig(
        backend=SimBackend(demo_world(asked.seed, clock.now()), clock.now),
        policy=policy,
        knobs=Knobs(rules, writing=Writing(mode=asked.write_mode)),
        dry_run=False,
        interval_s=INTERVAL_S,
        max_backoff_s=INTERVAL_S,
        pause_file=folder / "PAUSE",
        ladder=LADDER,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    policies: dict[str, Policy] = {
        "neutral": Neutral(),
        "sjf": BASELINES["sjf"],
        "longest": Longest(),
    }
    parser.add_argument("--policy", choices=policies, default="neutral")
    parser.add_argument("--write-mode", choices=("priority", "site_factor"), default="site_factor")
    parser.add_argument("--cycles", type=int, default=1_200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    clock, tally = Clock(), Tally()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rig = rig_of(policies[asked.policy], clock, folder, asked)
        journal = Journal(folder)
        loop = Loop(rig, clock, journal, tally, orders=Orders(), reload=lambda: rig)
        loop.run(asked.cycles)
        journal.close()
    for arm in (Arm.TREATED, Arm.CONTROL):
        waits = tally.waits[arm]
        print(f"{arm}: {len(waits)} started, mean wait {fmean(waits) if waits else 0:.0f} s")
    print(f"evidence at most {tally.evidence:.1f}; breaker: {tally.opened or 'closed'}")


if __name__ == "__main__":
    main()
