"""What answers at the daemon's socket: an answer of any size a daemon gives, and nothing else."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.cli import asking
from rltuned.cli.asking import ask_about, ask_daemon
from rltuned.core.decide import Knobs, decide
from rltuned.daemon.web.server import Answers, QuestionServer, reached
from rltuned.settings import Settings, load
from tests.builders import decided, job, running, snapshot
from tests.configs import settings_file
from tests.fakes import ConstantOrder
from tests.unit.cli.runner import run

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


def test_what_is_longer_than_any_answer_is_one_sentence(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_an_old_answer_is_said_to_be_old(
    tmp_path: Path, asked: tuple[str, ...], age_s: float, is_old: bool
) -> None:
    """In review `plan` showed the queue of hours ago as that of now, while Slurm did not answer."""
    answers = Answers(tmp_path / "journal.sqlite")
    at = time.time() - age_s
    seen = snapshot(job(1, submitted_at=at), runs=[running(9, started_at=at - 9)], taken_at=at)
    answers.cycle(decided(decide(seen, ConstantOrder(), Knobs())))
    settings_at(tmp_path)
    status = {"rltuned": "0"}
    server = QuestionServer(tmp_path / "socket", answers, lambda: status, state_dir=tmp_path)
    with closing(server):
        done = run(*asked, "--config", str(tmp_path / "rltuned.toml"))
    assert done.exit_code == 0, done.output
    assert ("the daemon last saw the queue 2h00m ago" in done.stderr) == is_old


def test_a_daemon_that_hangs_is_not_waited_for_as_for_one_that_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PATIENCE_S", 0.1)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "socket"))
        hung.listen()
        found = ask_about(settings_at(tmp_path), "/job.json?job=1", "job", 3_600.0)
    assert found == (None, f"the daemon does not answer: {tmp_path}/socket: timed out")


def test_without_a_socket_there_is_no_answer(tmp_path: Path) -> None:
    assert ask_daemon(settings_at(tmp_path)) == (
        None,
        f"{tmp_path}/socket: No such file or directory",
    )
