"""Every state in every place that shows it, the log lines of cycles, signals and systemd."""

import gc
import io
import json
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.core.decide import Knobs
from rltuned.core.numbers import Shortage
from rltuned.daemon.breaker import Breaker, Cause, Effect, change
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.clock import SystemClock
from rltuned.daemon.logger import make_log
from rltuned.daemon.loop import uncollected
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.observers import Publisher
from rltuned.daemon.report import CycleReport, Failure, Skip, row_of
from rltuned.daemon.state import HealthState
from rltuned.daemon.systemd import Notifier, watchdog_interval_s
from rltuned.daemon.web.board import Board
from rltuned.daemon.wiring import Rig
from rltuned.journal.journal import Journal
from tests.builders import NOW
from tests.configs import settings_file
from tests.fakes import ConstantOrder, FakeBackend, FakeClock
from tests.loops import DECISION, SEEN, Desk, asked, report, serving

OPEN = {"gpu": Breaker().opened(Cause.ERRORS, "five in a row", NOW)}
FEW = Effect(3, 300.0, 330.0, 400.0)
MANY = Effect(20, 2_000.0, 2_600.0, 20_000.0)


class Daemon:
    """A publisher with all it reports to, and a real endpoint."""

    def __init__(self, folder: Path, before: CanaryStatus) -> None:
        self.clock, self.log = FakeClock(), io.StringIO()
        self.systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = f"\0rltuned-test-{id(self)}"
        self.systemd.bind(address)
        self.systemd.setblocking(False)
        self.notifier = Notifier("@" + address[1:])
        self.metrics = Metrics(CollectorRegistry())
        board = Board(lambda: NOW)
        log = make_log("json", "info", self.log)
        self.publisher = Publisher(
            self.metrics, log, self.notifier, self.clock, board=board, before=before
        )
        self.publisher.loaded(
            Rig(FakeBackend(SEEN), ConstantOrder(), Knobs(), False, 60.0, folder / "PAUSE")
        )
        health = self.publisher.health
        self.server = serving(health, board, registry=self.metrics.registry)
        self.questions = asked(folder, health, board=board)

    def close(self) -> None:
        self.server.close()
        self.questions.close()
        self.notifier.close()
        self.systemd.close()

    def get(self, path: str) -> str:
        try:
            with urlopen(f"{self.server.url}{path}", timeout=10) as answer:  # noqa: S310 - ours
                return str(answer.read().decode())
        except HTTPError as error:
            with error:
                return error.read().decode()

    def status_lines(self) -> list[str]:
        """What systemd shows, the last at the end."""
        found: list[str] = []
        while True:
            try:
                message = self.systemd.recv(65_536).decode()
            except BlockingIOError:
                return found
            found += [x[7:] for x in message.splitlines() if x.startswith("STATUS=")]

    def log_lines(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["event"] == "state"]


@contextmanager
def daemon(folder: Path, before: CanaryStatus = CanaryStatus()) -> Iterator[Daemon]:  # noqa: B008
    with closing(Daemon(folder, before)) as made:
        yield made


def live(**rest: Any) -> CycleReport:
    return report(HealthState.LIVE, **rest)


def skipped(skip: Skip, detail: str) -> CycleReport:
    return live(failure=Failure(skip, detail), snapshot=None, decision=None)


CYCLES = {
    HealthState.JOURNAL_UNUSABLE: report(
        HealthState.OBSERVE, reasons={HealthState.JOURNAL_UNUSABLE: "disk full"}
    ),
    HealthState.RIVAL_SUSPECTED: report(
        HealthState.OBSERVE, reasons={HealthState.RIVAL_SUSPECTED: "12 numbers are not rltuned's"}
    ),
    HealthState.NUMBERS_UNEXPLAINED: report(
        HealthState.OBSERVE, reasons={HealthState.NUMBERS_UNEXPLAINED: "2 jobs have numbers"}
    ),
    HealthState.CLOCK_OFF: report(
        HealthState.OBSERVE, reasons={HealthState.CLOCK_OFF: "the clock is +900 s off"}
    ),
    HealthState.SLURM_UNREACHABLE: skipped(Skip.BACKEND, "squeue: cannot contact controller"),
    HealthState.NO_RESULT: skipped(Skip.SNAPSHOT, "job 7: garbled"),
    HealthState.BREAKER_OPEN: live(verdict=CanaryStatus(breakers=OPEN)),
    HealthState.NO_ROOM: live(decision=replace(DECISION, short=Shortage(2, 3_600.0, 700))),
    HealthState.SLURM_BUSY: skipped(Skip.BUSY, "slurmctld is busy: threads"),
    HealthState.DRY_RUN: report(HealthState.DRY_RUN),
    HealthState.PAUSED: report(HealthState.PAUSED),
    HealthState.STANDBY: report(
        HealthState.STANDBY, reasons={HealthState.STANDBY: "ctl2 holds the lease"}
    ),
    HealthState.OBSERVE: report(HealthState.OBSERVE),
    HealthState.SHADOW: report(HealthState.SHADOW),
    HealthState.LEARNING: live(verdict=CanaryStatus(effect=FEW)),
    HealthState.LIVE: live(verdict=CanaryStatus(effect=MANY)),
}
"""What one cycle came to, by the state that follows; the others follow from other events."""


def bring_into(state: HealthState, one: Daemon) -> None:
    """Let that happen by which a daemon gets into a state."""
    if state is HealthState.STARTING:
        return
    one.publisher.cycle(CYCLES.get(state, live()))
    if state is HealthState.STALE:
        one.clock.advance(181)
    if state is HealthState.RELOAD_FAILED:
        one.publisher.not_loaded("line 3 is wrong")


def cli(folder: Path, *options: str) -> str:
    places = f'state_dir = "{folder}"\npause_file = "{folder}/PAUSE"\n'
    path = settings_file(folder, f"[daemon]\n{places}")
    done = CliRunner().invoke(app, ["status", "--config", str(path), *options])
    assert done.exit_code in {0, 1}, done.output
    return done.stdout


@pytest.mark.parametrize("state", HealthState)
def test_every_place_shows_a_state_in_the_same_words(tmp_path: Path, state: HealthState) -> None:
    with daemon(tmp_path) as one:
        if state is HealthState.BREAKER_OPEN:
            with closing(Journal(tmp_path)) as journal:
                change(journal, SEEN.cluster, lambda _: OPEN, NOW)
        bring_into(state, one)
        health = one.publisher.health()
        found = next(c for c in health.conditions if c.state is state)
        assert "{" not in found.sentence
        ready = json.loads(one.get("/readyz"))
        assert ready == health.document()
        assert found.sentence in ready["reason"]
        document = json.loads(one.get("/status.json"))
        assert {key: document[key] for key in ready} == ready
        escaped = found.sentence.replace("'", "&#39;")
        page = one.get("/")
        assert f"<p>{escaped}</p>" in page
        assert health.state.word in page
        assert f'rltuned_mode{{mode="{state.value}"}} 1.0' in one.get("/metrics")
        assert found.sentence in cli(tmp_path).splitlines()[0]
        assert found.sentence in json.loads(cli(tmp_path, "--json"))["state"]
        assert found.sentence in one.status_lines()[-1] or state is HealthState.STALE
        if state not in {HealthState.STARTING, HealthState.STALE, HealthState.RELOAD_FAILED}:
            assert found.sentence in one.log_lines()[-1]["detail"]


def test_an_open_breaker_is_known_before_the_first_cycle(tmp_path: Path) -> None:
    with closing(Journal(tmp_path)) as journal:
        change(journal, "another", lambda _: {"long": OPEN["gpu"]}, NOW)
        change(journal, SEEN.cluster, lambda _: OPEN, NOW)
        assert CanaryStatus.before(journal, None).demoted == (), "no cycle says whose they are"
        journal.record(row_of(live(), "delay"))
        before = CanaryStatus.before(journal, "model:rltune")
        assert CanaryStatus.before(journal, None).effect is None
    assert before.demoted == ("gpu",)
    with daemon(tmp_path, before) as again:
        assert [b["partition"] for b in again.publisher.document()["breakers"]] == ["gpu"]
        again.publisher.cycle(skipped(Skip.BACKEND, "away"))
        assert HealthState.BREAKER_OPEN in {c.state for c in again.publisher.health().conditions}


def test_while_no_cycle_ends_nothing_is_said_to_be_written(tmp_path: Path) -> None:
    """A slurmctld that has died keeps Slurm's commands for long before they fail."""
    with daemon(tmp_path) as one:
        one.publisher.cycle(CYCLES[HealthState.LEARNING])
        one.clock.advance(179)
        assert HealthState.LIVE in {c.state for c in one.publisher.health().conditions}
        one.clock.advance(2)
        assert str(one.publisher.health()) == (
            "the last result is 181 s old; the cycle due 121 s ago has not ended: "
            "a Slurm command may hang"
        )
        one.publisher.cycle(skipped(Skip.BACKEND, "squeue: cannot contact controller"))
        one.clock.advance(2)
        assert str(one.publisher.health()) == (
            "Slurm does not answer: squeue: cannot contact controller; the last result is 183 s old"
        )
        one.publisher.cycle(report(HealthState.PAUSED))
        one.clock.advance(181)
        assert one.publisher.health().conditions[-1].state is HealthState.PAUSED


def test_another_state_is_a_line_in_the_log_and_another_number_is_none(tmp_path: Path) -> None:
    with daemon(tmp_path) as one:
        one.publisher.cycle(
            report(HealthState.OBSERVE, reasons={HealthState.RIVAL_SUSPECTED: "12 numbers"})
        )
        one.publisher.cycle(
            report(HealthState.OBSERVE, reasons={HealthState.RIVAL_SUSPECTED: "13 numbers"})
        )
        one.publisher.cycle(live())
        lines = one.log_lines()
    assert [(line["level"], line["state"]) for line in lines] == [
        ("warning", "rival_suspected"),
        ("info", "live"),
    ]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def away(skip: Skip = Skip.BACKEND) -> CycleReport:
    return report(decision=None, snapshot=None, failure=Failure(skip, "squeue is away", 120.0))


def rig(tmp_path: Path) -> Rig:
    world = FakeBackend(SEEN)
    return Rig(world, ConstantOrder(), Knobs(), True, 60.0, tmp_path / "PAUSE")


def test_ready_means_a_fresh_result_and_good_files(desk: Desk, tmp_path: Path) -> None:
    assert not desk.publisher.health().ready
    desk.publisher.cycle(report())
    assert desk.publisher.health().ready
    desk.clock.advance(179)
    desk.publisher.cycle(away())
    assert desk.publisher.health().ready
    desk.clock.advance(2)
    assert not desk.publisher.health().ready
    desk.publisher.cycle(report())
    desk.publisher.not_loaded("line 3 is wrong")
    assert not desk.publisher.health().ready
    desk.publisher.loaded(rig(tmp_path))
    assert desk.publisher.health().ready


def test_a_skipped_cycle_says_why_and_when_it_goes_on(desk: Desk) -> None:
    desk.publisher.cycle(away())
    desk.publisher.cycle(away(Skip.UNEXPECTED))
    first, second = desk.lines("cycle_skipped")
    assert (first["level"], first["detail"], first["next_try_s"]) == (
        "warning", "squeue is away", 120.0,
    )  # fmt: skip
    assert second["level"] == "error"


def test_a_bug_leaves_its_traceback(desk: Desk) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 // int("0")
    desk.publisher.unexpected(caught.value)
    (line,) = desk.lines("unexpected_error")
    assert "ZeroDivisionError: " in line["exception"]


def test_console_lines_cannot_steer_a_terminal_or_be_forged() -> None:
    stream = io.StringIO()
    log = make_log("console", "info", stream)
    log.info("note", note="a\x1b[2J\nforged\r\x9b line")
    log.info("note", note="no\x1b[2Jblank\x9b")
    first, second = stream.getvalue().splitlines()
    assert first.isprintable()
    assert second.endswith("note=no\\x1b[2Jblank\\x9b")


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "/no/such/socket"])
def test_nobody_listens_and_nothing_breaks(address: str | None) -> None:
    notifier = Notifier(address)
    notifier.ready("x")
    notifier.close()


def test_the_watchdog_is_fed_twice_as_often_as_asked() -> None:
    assert watchdog_interval_s({"WATCHDOG_USEC": "180000000"}) == 90.0
    own = str(os.getpid())
    assert watchdog_interval_s({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": own}) == 1.0
    assert watchdog_interval_s({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}) is None
    assert watchdog_interval_s({}) is None
    assert watchdog_interval_s({"WATCHDOG_USEC": "soon"}) is None


def test_a_wake_up_ends_the_wait_and_only_a_stop_stops() -> None:
    clock = SystemClock()
    clock.wake(stop=False)
    assert clock.wait(60) is False
    clock.wake(stop=True)
    assert clock.wait(60) is True
    assert clock.wait(60) is True


def test_many_wake_ups_block_nobody() -> None:
    clock = SystemClock()
    for _ in range(100_000):
        clock.wake(stop=False)
    assert clock.wait(60) is False
    assert clock.wait(0) is False


def test_a_wait_works_in_a_process_with_more_than_a_thousand_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        clock = SystemClock()
        assert not clock.wait(0.01)
        clock.wake(stop=True)
        assert clock.wait(60.0)
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_search_for_cycles_rests_meanwhile_and_stays_off_where_it_was() -> None:
    with uncollected():
        assert not gc.isenabled()
    with pytest.raises(ValueError, match="seen"), uncollected():
        raise ValueError("seen")
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
