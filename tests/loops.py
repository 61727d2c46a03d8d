"""A loop with a fake world, a fake clock and an observer that remembers."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from rltuned.core.decide import Knobs, Policy, decide
from rltuned.core.numbers import Writing
from rltuned.core.select import Scope
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.documents import Document
from rltuned.daemon.logger import make_log
from rltuned.daemon.loop import Loop
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.observers import Publisher
from rltuned.daemon.report import CycleReport, CycleStage
from rltuned.daemon.state import Condition, Health, HealthState
from rltuned.daemon.systemd import Notifier, SignalFlags
from rltuned.daemon.web.board import Board
from rltuned.daemon.web.server import (
    PATIENCE_S,
    Endpoint,
    listen,
    listen_at,
    port_table,
    socket_table,
)
from rltuned.daemon.wiring import Rig
from rltuned.journal.journal import Journal
from rltuned.settings.keys import Rescue, Settings
from tests.builders import NOW, job, snapshot
from tests.fakes import ConstantOrder, FakeBackend, FakeClock

FRESH = Health([Condition(HealthState.LIVE)])
UNJUDGED = CanaryStatus()


def serving(
    health: Callable[[], Health] = lambda: FRESH,
    board: Board | None = None,
    patience_s: float = PATIENCE_S,
    registry: CollectorRegistry | None = None,
) -> Endpoint:
    """The daemon's port, on any, with a board of no cycle yet where none is given."""
    board = board or Board(lambda: NOW)
    return Endpoint(
        listen("127.0.0.1", 0),
        port_table(
            registry or CollectorRegistry(),
            health,
            lambda: board.document(health(), UNJUDGED),
            board,
        ),
        patience_s,
    )


def asked(
    folder: Path,
    health: Callable[[], Health] = lambda: FRESH,
    verdict: CanaryStatus = UNJUDGED,
    board: Board | None = None,
    patience_s: float = PATIENCE_S,
) -> Endpoint:
    """The daemon's socket, beside the pause file of settings whose state folder this is."""
    board = board or Board(lambda: NOW)
    table = socket_table(lambda: board.document(health(), verdict), board, folder)
    path = folder / "socket"
    return Endpoint(listen_at(path), table, patience_s, path)


WORLD = snapshot(job(1, priority=300), job(2, priority=200), job(3, priority=100))


REVERSED = ConstantOrder((3, 2, 1))


class Received(Publisher):
    """It remembers what it is told."""

    def __init__(self) -> None:
        self.reports: list[CycleReport] = []
        self.words: list[str] = []
        self.beats = 0

    def cycle(self, report: CycleReport) -> None:
        self.reports.append(report)

    def alive(self) -> None:
        self.beats += 1

    def unexpected(self, error: Exception) -> None:
        self.words.append(f"unexpected {error}")

    def reloading(self) -> None:
        self.words.append("reloading")

    def loaded(self, rig: Rig) -> None:
        self.words.append(f"loaded {rig.policy.name}")

    def not_loaded(self, reason: str) -> None:
        self.words.append(f"not loaded: {reason}")


@dataclass
class Bench:
    """A loop and all it hangs on."""

    folder: Path
    live: bool = True
    policy: Policy = REVERSED
    world: FakeBackend = field(default_factory=lambda: FakeBackend(WORLD))
    clock: FakeClock = field(default_factory=FakeClock)
    received: Received = field(default_factory=Received)
    orders: SignalFlags = field(default_factory=SignalFlags)
    reload: Callable[[], Rig] | None = None
    heartbeat_s: float = 1e9
    writing: Writing = field(default_factory=lambda: Writing(hysteresis=0.0))

    def rig(self) -> Rig:
        return Rig(
            backend=self.world,
            policy=self.policy,
            knobs=Knobs(Scope(), writing=self.writing),
            dry_run=not self.live,
            interval_s=60.0,
            pause_file=self.folder / "PAUSE",
        )

    def loop(self) -> Loop:
        return Loop(
            self.rig(),
            self.clock,
            Journal(self.folder),
            self.received,
            orders=self.orders,
            reload=self.reload or self.rig,
            heartbeat_s=self.heartbeat_s,
        )

    def priorities(self) -> dict[int, int]:
        return {int(j.job_id): j.priority for j in self.world.world.pending}


@dataclass
class Clocks:
    """One that stops in sleep, one that does not, and the wall clock."""

    awake_s: float = 100.0
    boot_s: float = 1_100.0
    wall_s: float = 1_700_000_000.0

    def __call__(self) -> tuple[float, float, float]:
        return self.awake_s, self.boot_s, self.wall_s

    def run(self, seconds: float) -> None:
        self.awake_s += seconds
        self.sleep(seconds)

    def sleep(self, seconds: float) -> None:
        self.boot_s += seconds
        self.wall_s += seconds


def rescued(settings: Settings) -> Rescue:
    """What a restore needs of them."""
    return Rescue(
        daemon=settings.daemon, slurm=settings.slurm, ha=settings.ha, journal=settings.journal
    )


SEEN = snapshot(job(1, priority=300, user="mallory"), job(2, priority=200))


DECISION = decide(SEEN, ConstantOrder((2, 1)), Knobs(writing=Writing(hysteresis=0.0)))


class Desk:
    """A publisher with its clock and its log."""

    def __init__(self, level: str = "info") -> None:
        self.clock = FakeClock()
        self.stream = io.StringIO()
        self.publisher = Publisher(
            Metrics(CollectorRegistry()),
            make_log("json", level, self.stream),
            Notifier(None),
            self.clock,
        )
        self.publisher.loaded(
            Rig(FakeBackend(SEEN), ConstantOrder(), Knobs(), True, 60.0, Path("/no/such/PAUSE"))
        )

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]


def report(mode: HealthState = HealthState.DRY_RUN, **rest: Any) -> CycleReport:
    fields: dict[str, Any] = {"snapshot": SEEN, "decision": DECISION, **rest}
    return CycleReport(1, NOW, mode, {CycleStage.OBSERVE: 0.25}, **fields)


EVIL = '<script>alert("x")</script>'


class Watching(Received):
    """An audience with a board."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self.board = board

    def cycle(self, report: CycleReport) -> None:
        super().cycle(report)
        self.board.cycle(report)

    def loaded(self, rig: Rig) -> None:
        super().loaded(rig)
        self.board.loaded(rig)


def board_after(
    tmp_path: Path,
    *,
    cycles: int = 1,
    jobs: bool = False,
    users: bool = False,
    last_week: Callable[[], Document | None] = lambda: None,
) -> Board:
    board = Board(lambda: NOW, last_week=last_week, jobs=jobs, users=users)
    bench = Bench(tmp_path, received=Watching(board))
    bench.world.put(job(77, user=EVIL, partition=EVIL, priority=7))
    loop = bench.loop()
    board.loaded(loop.rig)
    loop.run(cycles)
    return board
