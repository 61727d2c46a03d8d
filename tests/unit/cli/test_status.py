"""`status`: with the daemon, without it, without the journal."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rltuned.daemon.breaker import Breaker, Cause, Effect, change
from typer.testing import CliRunner, Result

from rltuned.cli import app
from rltuned.core.ladder import Switchback
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.state import Health
from rltuned.daemon.web.server import QuestionServer
from rltuned.journal.journal import Journal
from rltuned.text import when
from tests.builders import NOW
from tests.configs import settings_file
from tests.loops import FRESH, asked
from tests.unit.cli.journalled import FIRST, live


def run(*args: str) -> Result:
    return CliRunner().invoke(app, args)


@pytest.fixture
def health() -> Health:
    return FRESH


@pytest.fixture
def server(tmp_path: Path, health: Health) -> Iterator[QuestionServer]:
    with closing(asked(tmp_path, lambda: health)) as made:
        yield made


def settings(folder: Path, port: int = 0) -> str:
    daemon = f'[daemon]\nstate_dir = "{folder}"\npause_file = "{folder}/PAUSE"\n'
    return str(settings_file(folder, f"{daemon}[http]\nport = {port}\n"))


@pytest.mark.usefixtures("server")
def test_all_is_well(tmp_path: Path) -> None:
    live(tmp_path)
    config = settings(tmp_path)
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
    config = settings(tmp_path)
    done = run("status", "--config", config)
    assert done.exit_code == 1
    assert "the daemon does not answer" in done.stdout
    assert "socket: No such file or directory" in done.stdout
    assert "stage: observe by the settings" in done.stdout
    assert "last cycle: 1, " in done.stdout
    document = json.loads(run("status", "--json", "--config", config).stdout)
    assert (document["ok"], document["daemon"]) == (False, None)


def test_neither_answers(tmp_path: Path) -> None:
    done = run("status", "--config", settings(tmp_path))
    assert done.exit_code == 1
    assert "the journal cannot be read" in done.stdout


def test_blocks_and_effect_of_the_switchback_are_reported(tmp_path: Path) -> None:
    live(tmp_path)
    off = replace(Switchback().block("gpu", NOW), on=False)
    verdict = CanaryStatus(effect=Effect(3), blocks={"gpu": off, "long": replace(off, on=True)})
    with closing(asked(tmp_path, verdict=verdict)):
        reply = run("status", "--config", settings(tmp_path)).stdout
    until = when(off.ends_at)
    assert f"switchback: gpu off (Slurm's own order is measured) until {until}\n" in reply
    assert f"switchback: long on until {until}\n" in reply
    assert "effect: 3 of 10 pairs of blocks are measured\n" in reply


@pytest.mark.usefixtures("server")
def test_an_open_breaker_is_trouble(tmp_path: Path) -> None:
    live(tmp_path)
    with closing(Journal(tmp_path)) as journal:
        opened = Breaker().opened(Cause.ERRORS, "five in a row", NOW)
        change(journal, "test", lambda _: {"gpu": opened}, NOW)
    done = run("status", "--config", settings(tmp_path))
    assert done.exit_code == 1
    assert "the circuit breaker of gpu is open" in done.stdout
    assert "five in a row" in done.stdout


def test_check_knows_its_own_daemon_on_the_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = settings(tmp_path, port)
        alone = run("check", "--no-slurm", "--config", config).stdout
        with closing(asked(tmp_path)):
            text = run("check", "--no-slurm", "--config", config).stdout
    assert "remedy: choose another http.port\n" in alone
    assert f"ok    http: rltuned runs; 127.0.0.1:{port} is taken\n" in text


def _rest(terminal: int) -> bytes:
    os.set_blocking(terminal, False)
    found = b""
    with suppress(BlockingIOError):
        while piece := os.read(terminal, 65_536):
            found += piece
    return found
