"""When cycles start that are long, or that a busy slurmctld does not want: the daemon's own pace.

The loop runs as in scaling.py, on a clock that leaps over its pauses: what a cycle takes is real,
what lies between two is only counted.
"""

import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from prometheus_client import CollectorRegistry

from rltuned.daemon.logs import make_log
from rltuned.daemon.loop import Loop
from rltuned.daemon.metrics.cycle import Metrics
from rltuned.daemon.observers import Publisher
from rltuned.daemon.report import CycleReport
from rltuned.daemon.signals import Orders
from rltuned.daemon.systemd import Notifier
from rltuned.daemon.wiring import build_rig
from rltuned.domain.plan import Result
from rltuned.journal.journal import Journal
from rltuned.slurm.backend import SlurmBackend
from scripts.benchmarks.answers import MARKS, NOW, grow_busy
from scripts.benchmarks.scaling import Ear, Size, settings_for

CALM, BUSY = 3, 200
"""RPCs served at once; the shipped bound is 100."""
THREADS: Final = (CALM, *[BUSY] * 4, *[CALM] * 5)
"""What sdiag says at one look after the other."""


@dataclass(frozen=True, slots=True)
class Start:
    """One cycle: when it began after the first, what it took, what slurmctld served then."""

    at_s: float
    wall_s: float
    threads: int
    skipped: str
    stretch: float
    applied: int


@dataclass
class LeapClock:
    """The real clock, but for pauses: those are over at once."""

    leapt_s: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def monotonic(self) -> float:
        return time.monotonic() + self.leapt_s

    def now(self) -> float:
        return NOW + self.monotonic() - self.began

    def wait(self, seconds: float) -> bool:
        self.leapt_s += seconds
        return False


@dataclass
class _Listener(Ear):
    """Notes every cycle, then makes the cluster's next minute, which takes no time."""

    size: Size = field(default_factory=lambda: Size(1, 1))
    folder: Path = Path()
    threads: Sequence[int] = THREADS
    clock: LeapClock = field(default_factory=LeapClock)
    seen: list[Start] = field(default_factory=list)

    def cycle(self, report: CycleReport) -> None:
        super().cycle(report)
        number = len(self.seen)
        self.seen.append(
            Start(
                at_s=report.started_at - NOW,
                wall_s=self.clock.now() - report.started_at,
                threads=self.threads[number],
                skipped="" if report.skip is None else str(report.skip),
                stretch=1.0 if report.weighed is None else report.weighed.stretch,
                applied=report.results().get(Result.APPLIED, 0),
            )
        )
        began = time.monotonic()
        if number + 1 < len(self.threads):
            grow_busy(self.folder, self.threads[number + 1])
            if report.skip is None:
                self.size.grow_older(self.folder, number + 1)
        self.clock.leapt_s -= time.monotonic() - began


def paced(size: Size, policy: str, threads: Sequence[int], interval_s: float) -> list[Start]:
    """One cycle for each of `threads`, in a process of their own.

    Args:
        size: of queue and cluster.
        policy: who ranks.
        threads: what sdiag says, look by look.
        interval_s: from one start to the next.

    Raises:
        ModelError, SettingsError: the policy cannot be used.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        told = child.submit(_in_child, size, policy, tuple(threads), interval_s).result()
    return [Start(**row) for row in json.loads(told)]


def _in_child(size: Size, policy: str, threads: tuple[int, ...], interval_s: float) -> str:
    with (
        TemporaryDirectory() as name,
        open(os.devnull, "w") as nowhere,  # noqa: PTH123 - a device
        closing(Journal(Path(name))) as journal,
    ):
        folder, clock = Path(name), LeapClock()
        cli = size.write(folder)
        grow_busy(folder, threads[0])
        log, registry = make_log("json", "info", nowhere), CollectorRegistry()
        publisher = Publisher(Metrics(registry), log, Notifier(None), clock, journal=journal.size)
        backend = SlurmBackend(cli, clock.now, marks=MARKS)
        rig = replace(build_rig(settings_for(policy, folder), backend), interval_s=interval_s)
        clock.began = clock.monotonic()  # what stands above is no part of it
        ear = _Listener(publisher, size=size, folder=folder, threads=threads, clock=clock)
        ear.loaded(rig)
        Loop(rig, clock, journal, ear, orders=Orders(), reload=lambda: rig).run(len(threads))
    return json.dumps([asdict(start) for start in ear.seen])
