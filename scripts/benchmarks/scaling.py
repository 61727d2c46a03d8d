"""A whole cycle of the daemon at any size, by stage, with its memory (`make bench-scale`).

Each size runs in a process of its own: the loop itself, on the stage `full` with the shipped
settings and model, its journal on the disk, against the made-up answers of tests/answers.py. It
observes, decides, writes, reads back. Between two cycles the numbers grow older, and what was
written stands there. Prints a table of all sizes, and the figures that have a bound in the form of
`make bench`.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry

from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.ladder import Rung
from rltuned.core.order import Wish
from rltuned.daemon.logger import make_log
from rltuned.daemon.loop import Loop
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.observers import Publisher
from rltuned.daemon.report import CycleReport, CycleStage
from rltuned.daemon.systemd import Notifier, SignalFlags
from rltuned.daemon.wiring import build_rig
from rltuned.domain.plan import Clock, Result
from rltuned.errors import BackendError
from rltuned.journal.journal import Journal
from rltuned.run import Call
from rltuned.settings import Flag, Loaded, load
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from scripts.benchmarks import Figure, peak_mib
from tests.answers import MARKS, NOW, grow_older, write_programs

JOBS: Final = (1_000, 10_000, 50_000, 100_000)
NODES: Final = (100, 1_000, 10_000)
RUNNING: Final = 1_000
"""Running jobs at most: one per node, and no more."""
BOUNDS_S: Final = {(10_000, 1_000): 3.0, (100_000, 1_000): 30.0, (100_000, 10_000): 30.0}
INTERVAL_S: Final = 60.0
LARGE: Final = 20_000
"""Larger queues are measured in fewer cycles."""
SPAN: Final = 10
"""Cycles at each end whose median counts for growth."""
MOST_GROWTH: Final = 1.1
HEAD: Final = "pending | nodes | wall, s (least to most) | processor, s | peak MiB | commands, s"
AGE: Final = 7
"""By how much the number of a job that has no written number grows from one cycle to the next."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a queue and a cluster."""

    pending: int
    nodes: int

    @property
    def running(self) -> int:
        return min(RUNNING, self.nodes)

    def __str__(self) -> str:
        return f"{self.pending}_pending_{self.nodes}_nodes"


OWNING: Final = Size(10_000, 1_000)
RESTLESS: Final = "restless"


class Restless:
    """Delays every second job, and in the next cycle of the others: all must be
    written all the time.
    """

    name, trust = RESTLESS, None

    def __init__(self) -> None:
        self._asked = 0

    def score(self, matrix: StateMatrix) -> FloatArray:
        return -self.wish(matrix).own_s

    def wish(self, matrix: StateMatrix) -> Wish:
        self._asked += 1
        turns = (np.array([job.job_id for job in matrix.jobs]) + self._asked) % 2
        return Wish(3_600.0 + 36_000.0 * turns, np.zeros(len(turns)))


def unit_s() -> float:
    """Processor seconds of a fixed piece of work of a cycle's kind: texts apart and together."""
    start, kept = time.process_time(), {}
    for number in range(150_000):
        kept[str(number)] = f"{number * 3}|{number % 7}".split("|")
    return time.process_time() - start


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle: seconds (of Slurm's commands: the time waited for them), changes, memory.

    stages_s: wall seconds as the daemon's own metric has them, commands included. unit_s: right
    after it; see there.
    """

    wall_s: float
    cpu_s: float
    commands_s: float
    commands_cpu_s: float
    stages_s: dict[str, float]
    applied: int
    peak_mib: float
    unit_s: float


@dataclass
class FixedClock:
    """The made-up cluster's time, one interval per cycle; the stopwatch is the real one."""

    cycle: int = 0

    def now(self) -> float:
        return NOW + INTERVAL_S * self.cycle

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        raise AssertionError(f"a benchmark does not wait {seconds} s")


class _Keeper(Publisher):
    """Publishes, and keeps the last report."""

    last: CycleReport

    def cycle(self, report: CycleReport) -> None:
        self.last = report
        super().cycle(report)


def measured(size: Size, policy: str, rounds: int, **limits: float) -> list[Cycle]:
    """So many cycles of one size after one that does not count, in a process of their own.

    policy: who ranks. limits: keys of `[limits]` that differ from the shipped settings.

    Raises:
        BackendError: a cycle came to no result.
        ModelError, SettingsError: the policy cannot be used.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        answer = child.submit(_in_child, size, policy, rounds, limits).result()
    return [Cycle(**row) for row in json.loads(answer)]


def _in_child(
    size: Size, policy: str, rounds: int, limits: Mapping[str, float] = MappingProxyType({})
) -> str:
    with TemporaryDirectory() as name:
        folder = Path(name)
        clock, calls = FixedClock(), list[Call]()
        pending, running = size.pending, size.running
        write_programs(folder, pending=pending, running=running, nodes=size.nodes)
        backend = SlurmBackend(
            SlurmCli(bin_dir=folder), clock.now, on_call=calls.append, marks=MARKS
        )

        def an_interval_later() -> None:
            clock.cycle += 1
            grow_older(folder, pending=pending, running=running, age=AGE * clock.cycle)

        found = played(
            backend, clock, calls, folder,
            policy=policy, rounds=rounds, between=an_interval_later, limits=limits,
        )  # fmt: skip
    return json.dumps([asdict(c) for c in found])


def played(
    backend: SlurmBackend,
    clock: Clock,
    calls: list[Call],
    folder: Path,
    *,
    policy: str,
    rounds: int,
    between: Callable[[], None],
    dry_run: bool = False,
    limits: Mapping[str, float] = MappingProxyType({}),
) -> list[Cycle]:
    """So many cycles of the daemon's own loop after one that does not count.

    Args:
        backend: the world.
        clock: its time.
        calls: what the backend's on_call appends to.
        folder: for the journal.
        policy: who ranks.
        rounds: how many cycles.
        between: what happens between two.
        dry_run: decide and keep, and write nothing.
        limits: keys of `[limits]` that differ from the shipped settings.

    Raises:
        BackendError: a cycle came to no result.
        ModelError, SettingsError: the policy cannot be used.
    """
    rows = []
    with (
        open(os.devnull, "w") as nowhere,  # noqa: PTH123 - a device
        closing(Journal(folder)) as journal,
    ):
        log = make_log("json", "info", nowhere)
        registry = CollectorRegistry()
        ear = _Keeper(Metrics(registry), log, Notifier(None), clock, journal=journal)
        rule = "delay" if policy == RESTLESS else policy
        rig = build_rig(settings_for(rule, folder, limits), backend, dry_run=dry_run)
        if policy == RESTLESS:
            rules = replace(rig.knobs.rules, max_writes_per_hour=None)
            rig = replace(rig, policy=Restless(), knobs=replace(rig.knobs, rules=rules))
        ear.loaded(rig)
        loop = Loop(rig, clock, journal, ear, orders=SignalFlags(), reload=lambda: rig)
        for number in range(rounds + 1):
            calls.clear()
            found = _one(loop, ear, calls)
            if number:
                rows.append(found)
            between()
    return rows


def settings_for(
    policy: str, folder: Path, limits: Mapping[str, float] = MappingProxyType({})
) -> Loaded:
    """The shipped settings, on the stage that writes."""
    flags = (
        *((f"limits.{key}", value) for key, value in limits.items()),
        ("policy.name", policy),
        ("ladder.stage", Rung.FULL.value),
        ("daemon.state_dir", str(folder)),
        ("daemon.pause_file", str(folder / "PAUSE")),
    )
    return load(None, tuple(Flag(key, value, "bench") for key, value in flags))


def _one(loop: Loop, ear: _Keeper, calls: list[Call]) -> Cycle:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall, cpu = time.perf_counter(), time.process_time()
    loop.run(cycles=1)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = ear.last
    if not report.ok or report.journal_error:
        raise BackendError(f"{report.summary()} {report.detail} {report.journal_error}")
    return Cycle(
        wall_s=wall,
        cpu_s=cpu,
        commands_s=sum(call.seconds for call in calls),
        commands_cpu_s=after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime,
        stages_s={stage.value: seconds for stage, seconds in report.stages.items()},
        applied=report.results().get(Result.APPLIED, 0),
        peak_mib=peak_mib(),
        unit_s=min(unit_s() for _ in range(3)),
    )


def figures(size: Size, cycles: list[Cycle]) -> list[Figure]:
    """The whole cycle beside its bound; none where there is no bound."""
    bound = BOUNDS_S.get((size.pending, size.nodes))
    if bound is None:
        return []
    source = "own bound; from the first look to the last note of what was applied"
    return [
        Figure(f"cycle_{size}", median(c.wall_s for c in cycles), "s", bound, source),
        Figure(f"cycle_{size}_slowest", max(c.wall_s for c in cycles), "s", bound, source),
        Figure(f"cycle_{size}_processor", median(c.cpu_s for c in cycles), "s", bound, source),
    ]


def owning(size: Size, cycles: int) -> list[Figure]:
    """Whether cycles get longer the more jobs rltuned owns: the last ones over the first.

    Processor seconds of the whole cycle, wall seconds of the journal (its disk included), both by
    those of a fixed piece of work beside it: the speed of a shared machine drifts by a third.
    """
    found = measured(size, RESTLESS, cycles, hysteresis=0.0)
    writes = sum(c.applied for c in found) / len(found)
    source = f"own bound; {cycles} cycles with {writes:.0f} writes each"
    whole = [c.cpu_s / c.unit_s for c in found]
    journal = [c.stages_s[CycleStage.JOURNAL] / c.unit_s for c in found]
    return [
        Figure(f"owning_{size}_growth", _growth(whole), "", MOST_GROWTH, source),
        Figure(f"owning_{size}_journal_growth", _growth(journal), "", MOST_GROWTH, source),
        Figure(f"owning_{size}_cycle", median(c.cpu_s for c in found), "s", 3.0, source),
    ]


def _growth(seconds: list[float]) -> float:
    span = min(SPAN, len(seconds) // 2)
    return median(seconds[-span:]) / median(seconds[:span])


def row(size: Size, cycles: list[Cycle]) -> str:
    """A line of the table: median seconds of each stage, of Slurm's commands, and memory."""
    walls = sorted(c.wall_s for c in cycles)
    stages = (median(c.stages_s.get(stage, 0.0) for c in cycles) for stage in CycleStage)
    cells = [
        f"{size.pending:,}", f"{size.nodes:,}",
        f"{median(walls):.2f} ({walls[0]:.2f} to {walls[-1]:.2f})",
        f"{median(c.cpu_s for c in cycles):.2f}", f"{max(c.peak_mib for c in cycles):.0f}",
        f"{median(c.commands_s for c in cycles):.2f}", *(f"{s:.3f}" for s in stages),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Measure and print, size by size."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks.scaling")
    parser.add_argument("--policy", default="model:rltune")
    parser.add_argument("--jobs", type=int, nargs="+", default=JOBS)
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    given = parser.parse_args()
    print(f"| {HEAD} | {' | '.join(CycleStage)} |\n{'|---' * (6 + len(CycleStage))}|")
    found = []
    for size in (Size(jobs, nodes) for jobs in given.jobs for nodes in given.nodes):
        cycles = measured(size, given.policy, 3 if size.pending > LARGE else 5)
        print(row(size, cycles), flush=True)
        found += figures(size, cycles)
    found += owning(OWNING, 50)
    print(json.dumps([f.document() for f in found], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
