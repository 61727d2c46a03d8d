"""`status`: with the daemon, without it, without the journal."""

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner, Result

from rltuned.cli import app
from rltuned.core.switchback import Switchback
from rltuned.daemon.canary.breaker import Breaker, Cause, change
from rltuned.daemon.canary.effect import Effect
from rltuned.daemon.canary.monitor import CanaryStatus
from rltuned.daemon.state import Condition, Health, HealthState
from rltuned.daemon.web.server import MetricsServer
from rltuned.daemon.web.status import Board, Showing
from rltuned.daemon.web.tls import endpoint_context
from rltuned.journal.journal import Journal
from rltuned.settings.service import HttpKeys
from rltuned.text import when
from tests.builders import NOW
from tests.configs import settings_file
from tests.loops import FRESH, serving
from tests.unit.cli.journalled import FIRST, live


def run(*args: str) -> Result:
    return CliRunner().invoke(app, args)


@pytest.fixture
def health() -> Health:
    return FRESH


@pytest.fixture
def server(health: Health) -> Iterator[MetricsServer]:
    with closing(serving(lambda: health)) as made:
        yield made


def settings(folder: Path, port: int) -> str:
    return str(settings_file(folder, f'[daemon]\nstate_dir = "{folder}"\n[http]\nport = {port}\n'))


def unused_port() -> int:
    quick = MetricsServer(
        "127.0.0.1", 0, CollectorRegistry(), lambda: Health([Condition(HealthState.STARTING)])
    )
    quick.close()
    return quick.port


def test_all_is_well(tmp_path: Path, server: MetricsServer) -> None:
    live(tmp_path)
    config = settings(tmp_path, server.port)
    done = run("status", "--config", config)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"rltuned: {FRESH}\n")
    assert "last cycle: 1, " in done.stdout
    assert f"job 3: priority 100 -> {FIRST}: applied; moves up 2 places: short (" in done.stdout
    document = json.loads(run("status", "--json", "--config", config).stdout)
    assert document["ok"]
    assert document["daemon"]["ready"]
    assert document["journal"]["cycle"]["applied"] == 3
    assert document["journal"]["carrying"] == 3


def test_the_daemon_is_down_and_the_journal_still_speaks(tmp_path: Path) -> None:
    live(tmp_path)
    config = settings(tmp_path, unused_port())
    done = run("status", "--config", config)
    assert done.exit_code == 1
    assert "the daemon does not answer" in done.stdout
    assert "Connection refused" in done.stdout
    assert "stage: observe by the settings" in done.stdout
    assert "last cycle: 1, " in done.stdout
    document = json.loads(run("status", "--json", "--config", config).stdout)
    assert (document["ok"], document["daemon"]) == (False, None)


def test_neither_answers(tmp_path: Path) -> None:
    done = run("status", "--config", settings(tmp_path, unused_port()))
    assert done.exit_code == 1
    assert "the journal cannot be read" in done.stdout


def test_without_a_port_the_journal_tells_how_old_the_last_cycle_is(tmp_path: Path) -> None:
    live(tmp_path)
    done = run("status", "--config", settings(tmp_path, 0))
    assert done.exit_code == 1
    assert re.match(r"rltuned: the last result is \d+ s old\n", done.stdout)


def test_blocks_and_effect_of_the_switchback_are_reported(tmp_path: Path) -> None:
    live(tmp_path)
    board = Board(Showing(), lambda: NOW)
    off = replace(Switchback().block("gpu", NOW), on=False)
    verdict = CanaryStatus(effect=Effect(3), blocks={"gpu": off, "long": replace(off, on=True)})
    made = MetricsServer(
        "127.0.0.1",
        0,
        CollectorRegistry(),
        lambda: FRESH,
        status=lambda: board.document(FRESH, verdict),
    )
    with closing(made):
        reply = run("status", "--config", settings(tmp_path, made.port)).stdout
    until = when(off.ends_at)
    assert f"switchback: gpu off (Slurm's own order is measured) until {until}\n" in reply
    assert f"switchback: long on until {until}\n" in reply
    assert "effect: 3 of 10 pairs of blocks are measured\n" in reply


def test_an_open_breaker_is_trouble(tmp_path: Path, server: MetricsServer) -> None:
    live(tmp_path)
    with closing(Journal(tmp_path)) as journal:
        opened = Breaker().opened(Cause.ERRORS, "five in a row", NOW)
        change(journal, "test", lambda _: {"gpu": opened}, NOW)
    done = run("status", "--config", settings(tmp_path, server.port))
    assert done.exit_code == 1
    assert "the circuit breaker of gpu is open" in done.stdout
    assert "five in a row" in done.stdout


def test_over_tls_only_the_certificate_of_the_settings_is_believed(
    tmp_path: Path, health: Health, signed: HttpKeys
) -> None:
    live(tmp_path)
    with closing(serving(lambda: health, tls=endpoint_context(signed))) as made:
        config = settings(tmp_path, made.port)
        plain = run("status", "--config", config)
        Path(config).write_text(
            Path(config).read_text()
            + f'tls_cert = "{signed.tls_cert}"\ntls_key = "{signed.tls_key}"\n'
        )
        done = run("status", "--config", config)
    assert plain.exit_code == 1
    assert done.exit_code == 0, done.output


def test_check_knows_its_own_daemon_on_the_port(tmp_path: Path, server: MetricsServer) -> None:
    config = settings(tmp_path, server.port)
    text = run("check", "--no-slurm", "--config", config).stdout
    assert f"ok    http: rltuned listens on 127.0.0.1:{server.port}\n" in text
    with socket.create_server(("127.0.0.1", 0)) as other:
        config = settings(tmp_path, other.getsockname()[1])
        text = run("check", "--no-slurm", "--config", config).stdout
    assert "remedy: choose another http.port\n" in text


def test_a_foreign_server_is_not_believed(tmp_path: Path) -> None:
    live(tmp_path)
    with closing(MetricsServer("127.0.0.1", 0, CollectorRegistry(), lambda: FRESH)) as other:
        done = run("status", "--config", settings(tmp_path, other.port))
    assert done.exit_code == 1
    assert "answered 404" in done.stdout


def _rest(terminal: int) -> bytes:
    os.set_blocking(terminal, False)
    found = b""
    with suppress(BlockingIOError):
        while piece := os.read(terminal, 65_536):
            found += piece
    return found
