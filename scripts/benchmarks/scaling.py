"""A whole cycle of the daemon at any size: per stage, and its memory; each size in its own process.

The loop itself runs, on the stage `full` with the shipped settings and model, its journal on the
disk, against the made-up answers of answers.py: it observes, decides, writes, reads back.
Between two cycles the numbers grow older, and what was written stands there.
"""

import gc
import json
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from prometheus_client import CollectorRegistry

from rltuned.core.decide import Decision
from rltuned.core.ladder import Rung
from rltuned.daemon.logs import make_log
from rltuned.daemon.loop import Loop
from rltuned.daemon.metrics.cycle import Metrics
from rltuned.daemon.observers import Publisher
from rltuned.daemon.report import CycleReport
from rltuned.daemon.runtime import Rig
from rltuned.daemon.signals import Orders
from rltuned.daemon.systemd import Notifier
from rltuned.daemon.wiring import build_rig
from rltuned.domain.plan import Result
from rltuned.domain.ports import Clock
from rltuned.errors import BackendError
from rltuned.journal.journal import Journal
from rltuned.settings import Flag, Loaded, load
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from scripts.benchmarks import Figure
from scripts.benchmarks.answers import APART_S, MARKS, NOW, grow_older, write_programs
from scripts.benchmarks.stages import Stages

JOBS: Final = (1_000, 10_000, 50_000, 100_000)
NODES: Final = (100, 1_000, 10_000)
RUNNING: Final = 1_000
"""Running jobs at most: one per node, and no more."""
BOUNDS_S: Final = {(10_000, 1_000): 3.0, (100_000, 1_000): 30.0, (100_000, 10_000): 30.0}
INTERVAL_S: Final = 60.0
AGE: Final = 7
"""By how much the number of a job that nobody set grows from one cycle to the next."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a queue and a cluster. apart_s: see synthetic.APART_S."""

    pending: int
    nodes: int
    apart_s: float = APART_S

    @property
    def running(self) -> int:
        return min(RUNNING, self.nodes)

    def write(self, folder: Path) -> SlurmCli:
        """Put the answers of such a cluster into a folder."""
        write_programs(
            folder,
            pending=self.pending, running=self.running, nodes=self.nodes, apart_s=self.apart_s,
        )  # fmt: skip
        return SlurmCli(bin_dir=folder)

    def grow_older(self, folder: Path, cycles: int) -> None:
        """Let so many intervals have gone by since the beginning."""
        grow_older(
            folder,
            pending=self.pending, running=self.running, age=AGE * cycles, apart_s=self.apart_s,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.pending}_pending_{self.nodes}_nodes"


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle, measured. Stages as in Stages; publish and the rest are `other`; within: what the
    bounds did, see `held_within`.
    """

    wall_s: float
    cpu_s: float
    collect_cpu_s: float
    commands_cpu_s: float
    stages_wall_s: dict[str, float]
    stages_cpu_s: dict[str, float]
    applied: int
    peak_mib: float
    within: dict[str, int] = field(default_factory=dict)


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


@dataclass
class Ear:
    """Hands the reports on and keeps the last one."""

    to: Publisher
    last: list[CycleReport] = field(default_factory=list)

    def cycle(self, report: CycleReport) -> None:
        self.last = [report]
        self.to.cycle(report)

    def alive(self) -> None:
        self.to.alive()

    def unexpected(self, error: Exception) -> None:
        self.to.unexpected(error)

    def reloading(self) -> None:
        self.to.reloading()

    def loaded(self, rig: Rig) -> None:
        self.to.loaded(rig)

    def not_loaded(self, reason: str) -> None:
        self.to.not_loaded(reason)


def measured(size: Size, policy: str, rounds: int) -> list[Cycle]:
    """So many cycles of one size after one that does not count, in a process of their own.

    Raises:
        BackendError: a cycle came to no result.
        ModelError, SettingsError: the policy cannot be used.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        told = child.submit(_in_child, size, policy, rounds).result()
    return [Cycle(**row) for row in json.loads(told)]


def _in_child(size: Size, policy: str, rounds: int) -> str:
    with TemporaryDirectory() as name:
        folder = Path(name)
        clock, stages = FixedClock(), Stages()
        backend = SlurmBackend(size.write(folder), clock.now, on_call=stages.called, marks=MARKS)

        def an_interval_later() -> None:
            clock.cycle += 1
            size.grow_older(folder, clock.cycle)

        found = played(
            backend, clock, stages, folder, policy=policy, rounds=rounds, between=an_interval_later
        )
    return json.dumps([{name: getattr(c, name) for name in Cycle.__slots__} for c in found])


def played(
    backend: SlurmBackend,
    clock: Clock,
    stages: Stages,
    folder: Path,
    *,
    policy: str,
    rounds: int,
    between: Callable[[], None],
    dry_run: bool = False,
) -> list[Cycle]:
    """So many cycles of the daemon's own loop after one that does not count.

    Args:
        backend: the world; its on_call is stages.called.
        clock: its time.
        stages: where the seconds go.
        folder: for the journal.
        policy: who ranks.
        rounds: how many cycles.
        between: what happens between two.
        dry_run: decide and keep, and write nothing.

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
        ear = Ear(Publisher(Metrics(registry), log, Notifier(None), clock, journal=journal.size))
        rig = build_rig(settings_for(policy, folder), backend, dry_run=dry_run)
        ear.loaded(rig)
        loop = Loop(rig, clock, journal, ear, orders=Orders(), reload=lambda: rig)
        for number in range(rounds + 1):
            stages.clear()
            found = _one(loop, stages)
            report = ear.last[0]
            if not report.ok or report.journal_error:
                raise BackendError(f"{report.summary()} {report.journal_error}")
            if number:
                applied = report.results().get(Result.APPLIED, 0)
                within = held_within(report.decision) if report.decision else {}
                rows.append(replace(found, applied=applied, within=within))
            between()
    return rows


def held_within(decision: Decision) -> dict[str, int]:
    """How many jobs a decision has ordered, how many a bound holds back, and how many stand beyond
    their bound (none, or it is wrong).
    """
    delays = decision.delays
    return {
        "ordered": len(decision.entries),
        "bounded": delays.clipped,
        "beyond": int((delays.delay_s > delays.upper_s).sum()),
    }


def settings_for(policy: str, folder: Path) -> Loaded:
    """The shipped settings, on the stage that writes."""
    flags = (
        ("policy.name", policy),
        ("ladder.stage", Rung.FULL.value),
        ("daemon.state_dir", str(folder)),
        ("daemon.pause_file", str(folder / "PAUSE")),
    )
    return load(None, tuple(Flag(key, value, "bench") for key, value in flags))


def _one(loop: Loop, stages: Stages) -> Cycle:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall, cpu = time.perf_counter(), time.process_time()
    with stages.watching(), stages.timed("other"):
        loop.run(cycles=1)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.process_time()
    gc.collect()
    return Cycle(
        wall_s=wall,
        cpu_s=cpu,
        collect_cpu_s=time.process_time() - began,
        commands_cpu_s=after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime,
        stages_wall_s=dict(stages.wall_s),
        stages_cpu_s=dict(stages.cpu_s),
        applied=0,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def figures(size: Size, cycles: list[Cycle]) -> list[Figure]:
    """The whole cycle beside its bound; none where there is no bound."""
    bound = BOUNDS_S.get((size.pending, size.nodes))
    if bound is None:
        return []
    source = "our own bound; from the first look to the last note of what was applied"
    return [
        Figure(f"cycle_{size}", median(c.wall_s for c in cycles), "s", bound, source),
        Figure(f"cycle_{size}_slowest", max(c.wall_s for c in cycles), "s", bound, source),
        Figure(f"cycle_{size}_processor", median(c.cpu_s for c in cycles), "s", bound, source),
    ]
