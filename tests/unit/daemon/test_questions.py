"""The socket of the daemon: who asks is what the kernel says, and nothing else."""

import http.client
import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from queue import Queue
from typing import Any
from unittest.mock import patch

import pytest
from prometheus_client import CollectorRegistry

from rltuned.core.decide import Knobs, decide
from rltuned.daemon.web.server import (
    NOT_SHOWN,
    THREADS,
    Answers,
    Asker,
    Connection,
    MetricsServer,
    QuestionServer,
    asker_of,
    connected,
)
from rltuned.errors import SettingsError
from tests.accounting import as_user
from tests.builders import decided, job, snapshot
from tests.fakes import ConstantOrder
from tests.loops import FRESH
from tests.needs import skip_or_fail
from tests.programs import ran

OTHER = "daemon"
ASK = """
import json, sys
from pathlib import Path
from rltuned.daemon.web.server import Connection
made = Connection(Path(sys.argv[1]), 10.0)
made.request("GET", sys.argv[2])
print(made.getresponse().read().decode())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """That other users reach, as /run/rltuned is."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    made = Answers(tmp_path / "journal.sqlite")
    seen = snapshot(job(1, user="root"), job(2, user=OTHER), job(3, user="ann"))
    made.cycle(decided(decide(seen, ConstantOrder(), Knobs())))
    return made


def serving(folder: Path, answers: Answers, **more: Any) -> QuestionServer:
    status = {"rltuned": "0", "reason": str(FRESH)}
    return QuestionServer(
        folder / "socket", answers, lambda: status, state_dir=folder / "state", **more
    )


def asked(folder: Path, path: str) -> dict[str, Any]:
    with closing(Connection(folder / "socket", 10.0)) as made:
        made.request("GET", path)
        found: dict[str, Any] = json.loads(made.getresponse().read())
        return found


def asked_by(user: str, folder: Path, path: str) -> dict[str, Any]:
    """The same in a process of another user."""
    if os.geteuid():
        skip_or_fail("only root starts processes of other users")
    asks = (sys.executable, "-c", ASK, folder / "socket", path)
    done = ran(*as_user(user), *asks, cwd="/")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def numbers(found: dict[str, Any]) -> list[int]:
    return [one["job_id"] for one in found["plan"]["jobs"]]


def test_each_user_is_answered_about_own_jobs(folder: Path, answers: Answers) -> None:
    with closing(serving(folder, answers)):
        assert numbers(asked(folder, "/plan.json")) == [1, 2, 3]
        assert numbers(asked_by(OTHER, folder, "/plan.json")) == [2]
        assert asked_by(OTHER, folder, "/job.json?job=2")["job"]["job_id"] == 2
        assert asked_by(OTHER, folder, "/job.json?job=3")["why"] == NOT_SHOWN
        told = asked_by(OTHER, folder, "/status.json")
    assert (told["reason"], told["state_dir"]) == (str(FRESH), str(folder / "state"))


def test_with_http_jobs_everyone_sees_all(folder: Path, answers: Answers) -> None:
    with closing(serving(folder, answers, everyone=True)):
        assert numbers(asked_by(OTHER, folder, "/plan.json")) == [1, 2, 3]


@pytest.mark.parametrize("path", ["/", "/metrics", "/job?id=1", "/job", "/../etc/passwd"])
def test_nothing_else_is_there(folder: Path, answers: Answers, path: str) -> None:
    with (
        closing(serving(folder, answers)),
        closing(Connection(folder / "socket", 10.0)) as made,
    ):
        made.request("GET", path)
        assert made.getresponse().status == 404


@pytest.mark.parametrize("path", ["/plan.json", "/job.json?job=1", "/job.json?job=2"])
def test_over_tcp_everybody_is_a_stranger(answers: Answers, path: str) -> None:
    """A proxy on the daemon's machine, run by root or by the daemon's user, speaks for all who
    reach it; so does a listener whose port an own one borrows.
    """
    server = MetricsServer(
        "127.0.0.1", 0, CollectorRegistry(), lambda: FRESH, status=dict, answers=answers
    )
    with (
        closing(server),
        closing(http.client.HTTPConnection("127.0.0.1", server.effective_port, timeout=10)) as made,
    ):
        made.request("GET", path, headers={"X-Forwarded-User": "root"})
        found = json.loads(made.getresponse().read())
    assert found["why"] == NOT_SHOWN
    assert set(found) == {"rltuned", "why"}


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    one, other = socket.socketpair()
    with closing(one), closing(other):
        name = pwd.getpwuid(os.geteuid()).pw_name
        assert asker_of(one) == Asker(name, is_admin=True, sees_all=True)


def test_the_socket_of_a_dead_daemon_is_replaced_and_goes_with_the_daemon(
    folder: Path, answers: Answers
) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(folder / "socket"))
    with closing(serving(folder, answers)):
        assert numbers(asked(folder, "/plan.json")) == [1, 2, 3]
    assert not (folder / "socket").exists()


def test_the_socket_of_a_living_one_stays(folder: Path, answers: Answers) -> None:
    with closing(serving(folder, answers)):
        with pytest.raises(SettingsError, match="another daemon answers there"):
            serving(folder, answers)
        assert numbers(asked(folder, "/plan.json")) == [1, 2, 3]
    (folder / "socket").write_text("a file")
    with pytest.raises(SettingsError, match="something else lies there"):
        serving(folder, answers)
    assert (folder / "socket").read_text() == "a file"


def test_a_long_path_and_a_folder_that_is_not_there(folder: Path, answers: Answers) -> None:
    deep = folder / ("x" * 120)
    with closing(serving(deep, answers)):
        assert numbers(asked(deep, "/plan.json")) == [1, 2, 3]
    with pytest.raises(SettingsError, match=r"no socket at .*: No such file"):
        serving(folder / "none" / "there", answers)


def test_who_asks_and_says_nothing_keeps_no_one_out(folder: Path, answers: Answers) -> None:
    with closing(serving(folder, answers, patience_s=30.0)):
        silent = [connected(folder / "socket", 10.0) for _ in range(40)]
        assert numbers(asked(folder, "/plan.json")) == [1, 2, 3]
        for one in silent:
            one.close()


HOLD = """
import sys, time
from pathlib import Path
from rltuned.daemon.web.server import connected
path = Path(sys.argv[1])
held = [connected(path, 10.0) for _ in range(int(sys.argv[2]))]
print("held", flush=True)
sys.stdin.read()
"""


def test_a_flood_of_one_user_cuts_nobody_else(folder: Path, answers: Answers) -> None:
    """In review 32 connections of any user cut those of all others."""
    if os.geteuid():
        skip_or_fail("only root starts processes of other users")
    with (
        closing(serving(folder, answers, patience_s=30.0)),
        closing(Connection(folder / "socket", 10.0)) as mine,
    ):
        mine.connect()
        wanted = (sys.executable, "-c", HOLD, str(folder / "socket"), "100")
        with subprocess.Popen(
            [*as_user(OTHER), *wanted], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as flood:
            assert flood.stdout is not None
            assert flood.stdin is not None
            assert flood.stdout.readline() == b"held\n"
            mine.request("GET", "/plan.json")
            assert numbers(json.loads(mine.getresponse().read())) == [1, 2, 3]
            flood.stdin.close()


def test_who_asks_waits_while_as_many_ask_as_the_kernel_keeps(folder: Path) -> None:
    """In review that was an error at once, `Resource temporarily unavailable`."""
    path = folder / "socket"
    with closing(socket.socket(socket.AF_UNIX)) as busy:
        busy.bind(str(path))
        busy.listen(0)
        with closing(connected(path, 10.0)), ThreadPoolExecutor(1) as pool:
            with pytest.raises(TimeoutError, match="too many ask at once"):
                connected(path, 0.1)
            late = pool.submit(connected, path, 30.0)
            for _ in range(2):
                busy.accept()[0].close()
            late.result().close()


def test_one_answer_is_made_at_a_time_for_a_user(folder: Path, answers: Answers) -> None:
    """In review each of any number of questions had a thread that made a whole plan."""
    begun, go_on, at_once = Queue[int](), threading.Event(), [0]
    whole = answers.plan

    def slow(asker: Asker) -> dict[str, Any]:
        at_once[0] += 1
        begun.put(at_once[0])
        assert go_on.wait(30.0)
        at_once[0] -= 1
        return whole(asker)

    with patch.object(answers, "plan", slow), closing(serving(folder, answers)):
        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(asked, folder, "/plan.json") for _ in range(8)]
            found = [begun.get(timeout=30.0)]
            assert asked(folder, "/status.json")["rltuned"] == "0", "of another kind meanwhile"
            go_on.set()
            assert [numbers(one.result()) for one in asking] == [[1, 2, 3]] * 8
        found += [begun.get(timeout=30.0) for _ in range(7)]
    assert found == [1] * 8


def test_a_flood_of_questions_has_few_threads(folder: Path, answers: Answers) -> None:
    """In review each question had a thread that went on although its connection was cut."""
    before, go_on, peak = threading.active_count(), threading.Event(), 0
    whole = answers.plan

    def slow(asker: Asker) -> dict[str, Any]:
        assert go_on.wait(30.0)
        return whole(asker)

    with patch.object(answers, "plan", slow), closing(serving(folder, answers)):
        for _ in range(1_000):
            with closing(connected(folder / "socket", 10.0)) as made, suppress(BrokenPipeError):
                made.sendall(b"GET /plan.json HTTP/1.0\r\n\r\n")
            peak = max(peak, threading.active_count() - before)
        go_on.set()
    assert 0 < peak <= THREADS + 1


def test_who_reads_nothing_of_a_long_answer_is_cut_and_holds_no_thread(
    folder: Path, answers: Answers
) -> None:
    long = {"rltuned": "0", "text": os.urandom(20_000_000).hex()}
    with (
        patch.object(answers, "plan", lambda _asker: long),
        closing(serving(folder, answers, patience_s=0.5)) as server,
    ):
        readers = [connected(folder / "socket", 10.0) for _ in range(THREADS)]
        for one in readers:
            one.sendall(b"GET /plan.json HTTP/1.0\r\n\r\n")
        assert asked(folder, "/status.json")["rltuned"] == "0"
        until = time.monotonic() + 30.0
        while server.active_channels and time.monotonic() < until:
            time.sleep(0.1)
        assert not server.active_channels
        assert asked(folder, "/job.json?job=1")["job"]["job_id"] == 1
        for one in readers:
            one.close()
