"""`status`, what it asks of the daemon, of all daemons of a machine, and of forecasts."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rltuned.cli import app, asking
from rltuned.cli.asking import answered, ask_daemon
from rltuned.core.decide import Knobs, decide
from rltuned.core.ladder import Switchback
from rltuned.daemon.breaker import Effect
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.state import Health
from rltuned.daemon.web.board import Board
from rltuned.daemon.web.server import Endpoint, reached
from rltuned.errors import SettingsError
from rltuned.settings import Settings, load
from rltuned.text import when
from tests.builders import NOW, decided, job, running, snapshot
from tests.configs import settings_file
from tests.fakes import ConstantOrder
from tests.loops import FRESH
from tests.loops import asked as daemon_of
from tests.unit.cli.journalled import FIRST, live


def run(*args: str) -> Result:
    return CliRunner().invoke(app, args)


@pytest.fixture
def health() -> Health:
    return FRESH


@pytest.fixture
def server(tmp_path: Path, health: Health) -> Iterator[Endpoint]:
    with closing(daemon_of(tmp_path, lambda: health)) as made:
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
    assert "daemon: no answer; stage observe by the settings" in done.stdout
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
    with closing(daemon_of(tmp_path, verdict=verdict)):
        reply = run("status", "--config", settings(tmp_path)).stdout
    until = when(off.ends_at)
    assert f"switchback: gpu off (Slurm's own order is measured) until {until}\n" in reply
    assert f"switchback: long on until {until}\n" in reply
    assert "effect: 3 of 10 pairs of blocks are measured\n" in reply


def test_check_knows_its_own_daemon_on_the_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = settings(tmp_path, port)
        alone = run("check", "--no-slurm", "--config", config).stdout
        with closing(daemon_of(tmp_path)):
            text = run("check", "--no-slurm", "--config", config).stdout
    assert "remedy: choose another http.port\n" in alone
    assert f"ok    http: rltuned runs; 127.0.0.1:{port} is taken\n" in text


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Settings of two clusters, a third file that is none, and something else."""
    (tmp_path / "bin").mkdir()
    for name in ("alpha", "beta"):
        state = tmp_path / "state" / name
        state.mkdir(parents=True)
        live(state)
        places = f'state_dir = "{state}"\npause_file = "{state}/PAUSE"\n'
        more = f'[daemon]\n{places}[slurm]\nbin_dir = "{tmp_path / "bin"}"\n'
        (tmp_path / f"{name}.toml").write_text(more)
    with closing(daemon_of(tmp_path / "state" / "alpha")):
        (tmp_path / "gamma.toml").write_text("[order]\nown = -1.0\n")
        (tmp_path / "notes.txt").write_text("no settings")
        yield tmp_path


def document(*args: str, code: int) -> Any:
    done = run(*args)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_status_of_all(folder: Path) -> None:
    config = ("--config", str(folder / "alpha.toml"))
    found = document("status", "--all", "--json", *config, code=2)
    alpha, beta, gamma = found["instances"]
    assert [one["instance"] for one in found["instances"]] == ["alpha", "beta", "gamma"]
    assert (alpha["ok"], alpha["daemon"]["ready"]) == (True, True)
    assert beta["journal"]["cycle"]["cluster"] == "test"
    assert "gamma.toml:2: order.own" in gamma["error"]
    assert not found["ok"]
    done = run("status", "--all", *config)
    rows = [line.partition(": ") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["alpha", "beta", "gamma"]
    assert rows[0][2] == str(FRESH)
    assert rows[1][2].startswith("the daemon does not answer: ")
    (folder / "gamma.toml").unlink()
    (folder / "beta.toml").unlink()
    assert document("status", "--all", "--json", *config, code=0)["ok"]


def test_a_folder_without_settings_is_refused(tmp_path: Path) -> None:
    for place, says in ((tmp_path, "no settings file"), (tmp_path / "none", "No such file")):
        done = run("status", "--all", "--config", str(place / "x.toml"))
        assert isinstance(done.exception, SettingsError)
        assert says in str(done.exception)


Serve = Callable[[bytes], Settings]


def settings_at(folder: Path) -> Settings:
    text = f'[daemon]\nstate_dir = "{folder}"\npause_file = "{folder}/PAUSE"\n'
    return load(settings_file(folder, text)).settings


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Answers one request with these bytes."""
    with socket.socket(socket.AF_UNIX) as listener:
        with reached(tmp_path / "socket") as address:
            listener.bind(address)
        listener.listen()
        threads: list[threading.Thread] = []

        def served(body: bytes, status: str = "200 OK") -> Settings:
            def answer() -> None:
                with listener.accept()[0] as peer:
                    peer.recv(65_536)
                    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
                    try:
                        peer.sendall(head.encode() + body)
                    except OSError:
                        return  # it has read enough

            threads.append(threading.Thread(target=answer, daemon=True))
            threads[-1].start()
            return settings_at(tmp_path)

        yield served
        for thread in threads:
            thread.join(10)


def test_the_plan_of_a_long_queue_is_read_whole(serve: Serve, tmp_path: Path) -> None:
    plan = {
        "rltuned": "0.3.0",
        "state_dir": str(tmp_path),
        "plan": {"jobs": [{"why": "x" * 600}] * 10_000},
    }
    found, why = ask_daemon(serve(json.dumps(plan).encode()), "/plan.json")
    assert (found, why) == (plan, "")


def test_too_long_an_answer_is_one_sentence(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_MOST", 1_024 * 1_024)
    found, why = ask_daemon(serve(b"[" + b"1," * 1_000_000))
    assert found is None
    assert why.endswith("its answer is longer than 1 MiB")


@pytest.mark.parametrize("body", [b"[" * 100_000, b"\xff\xfe", b"", b"[]", b"null", b'{"a": 1}'])
def test_what_is_no_daemon_is_one_sentence(serve: Serve, body: bytes) -> None:
    found, why = ask_daemon(serve(body))
    assert found is None
    assert "/socket" in why
    assert "\n" not in why


def test_the_daemon_of_another_state_folder_is_not_believed(serve: Serve) -> None:
    found, why = ask_daemon(serve(b'{"rltuned": "0.4.0", "state_dir": "/elsewhere"}'))
    assert found is None
    assert "is of a daemon with another state_dir than" in why


@pytest.mark.parametrize(("age_s", "is_old"), [(0.0, False), (170.0, False), (7_200.0, True)])
@pytest.mark.parametrize("asked", [("plan",), ("explain", "1"), ("explain", "9")])
def test_an_old_answer_is_called_old(
    tmp_path: Path, asked: tuple[str, ...], age_s: float, is_old: bool
) -> None:
    """In review `plan` showed the queue of hours ago as that of now, while Slurm did not answer."""
    board = Board(lambda: NOW)
    at = time.time() - age_s
    seen = snapshot(job(1, submitted_at=at), runs=[running(9, started_at=at - 9)], taken_at=at)
    board.cycle(decided(decide(seen, ConstantOrder(), Knobs())))
    settings_at(tmp_path)
    with closing(daemon_of(tmp_path, board=board)):
        done = run(*asked, "--config", str(tmp_path / "rltuned.toml"))
    assert done.exit_code == 0, done.output
    assert ("the daemon last saw the queue 2h00m ago" in done.stderr) == is_old


def test_a_daemon_that_hangs_is_not_waited_for_as_for_one_that_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 0.1)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "socket"))
        hung.listen()
        assert answered(settings_at(tmp_path), "/job.json?job=1", "job", 3_600.0) is None
    assert f"the daemon does not answer: {tmp_path}/socket: timed out" in capsys.readouterr().err
