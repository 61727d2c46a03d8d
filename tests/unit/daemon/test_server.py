"""The port and the socket: what they answer, to whom, and what slow clients cannot do to them."""

import gzip
import http.client
import json
import os
import re
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
from urllib.parse import urljoin

import pytest
from prometheus_client import CollectorRegistry

from rltuned.core.decide import Knobs, decide
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.state import Condition, Health, HealthState
from rltuned.daemon.web.board import NOT_SHOWN, Asker, Board
from rltuned.daemon.web.server import (
    MAX_CONNECTIONS,
    THREADS,
    Endpoint,
    connected,
    connection,
    listen,
)
from rltuned.errors import SettingsError
from tests.accounting import as_user
from tests.builders import NOW, decided, job, snapshot
from tests.fakes import ConstantOrder
from tests.loops import FRESH, board_after, serving
from tests.loops import asked as answering
from tests.needs import skip_or_fail
from tests.programs import ran

SAFE = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
LINK = re.compile(r"(?:href|src|action)=\"?([^\s\">]+)")


@pytest.fixture
def verdict() -> list[Health]:
    """What /readyz says, as a test changes it."""
    return [FRESH]


@pytest.fixture
def server(verdict: list[Health]) -> Iterator[Endpoint]:
    registry = Metrics(CollectorRegistry()).registry
    with closing(serving(lambda: verdict[0], registry=registry)) as made:
        yield made


def answer_of(
    server: Endpoint, path: str, method: str = "GET", **headers: str
) -> tuple[int, Any, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.effective_port, timeout=10)) as one:
        one.request(method, path, headers=headers)
        answer = one.getresponse()
        return answer.status, answer.headers, answer.read()


def ask(server: Endpoint, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    status, found, body = answer_of(server, path, method, **headers)
    return status, found.get("Content-Type", ""), body.decode()


def test_metrics_in_both_formats(server: Endpoint) -> None:
    status, kind, text = ask(server, "/metrics")
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert "rltuned_build_info{" in text
    wanted = "application/openmetrics-text; version="
    status, kind, text = ask(server, "/metrics?x=1", Accept=f"{wanted}1.0.0")
    assert kind.startswith(f"{wanted}1.0.0")
    assert text.endswith("# EOF\n")
    assert ask(server, "/metrics", Accept=f"{wanted}x")[0] == 200


def test_a_scraper_that_takes_gzip_gets_it(server: Endpoint) -> None:
    _, headers, packed = answer_of(server, "/metrics", **{"Accept-Encoding": "gzip"})
    assert (headers["Content-Encoding"], headers["Content-Length"]) == ("gzip", str(len(packed)))
    _, headers, plain = answer_of(server, "/metrics")
    assert headers["Content-Encoding"] is None
    names = [
        {line.split(b"{")[0].split()[0] for line in text.splitlines()}
        for text in (gzip.decompress(packed), plain)
    ]
    assert names[0] == names[1] >= {b"process_resident_memory_bytes"}
    assert len(packed) < len(plain) / 3


def test_health_and_readiness(server: Endpoint, verdict: list[Health]) -> None:
    status, kind, text = ask(server, "/readyz")
    assert (status, kind, json.loads(text)) == (200, "application/json", FRESH.document())
    verdict[0] = Health([Condition(HealthState.LIVE), Condition(HealthState.STALE, "400 s old")])
    status, _, text = ask(server, "/readyz")
    assert (status, json.loads(text)["ready"]) == (503, False)
    assert json.loads(text)["reason"].startswith("the last result is 400 s old; ")
    assert ask(server, "/healthz")[0] == 200


def test_other_paths_and_methods(server: Endpoint) -> None:
    assert ask(server, "/etc/passwd")[0] == 404
    assert ask(server, "/metrics", "POST")[0] == 501
    status, _, text = ask(server, "/metrics", "HEAD")
    assert (status, text) == (200, "")
    assert ask(server, "/metrics", Junk="x" * 100_000)[0] == 431


def test_the_status_page_runs_its_own_script_alone_and_is_embedded_nowhere(
    server: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, headers, text = answer_of(server, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert {name: headers[name] for name in SAFE} == SAFE
    policy = headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= {*policy}
    assert not [one for one in policy if "unsafe" in one]
    assert ask(server, "/job?id=1")[0] == 404
    assert ask(server, "/status.css")[:2] == (200, "text/css; charset=utf-8")
    assert ask(server, "/status.js")[:2] == (200, "text/javascript; charset=utf-8")
    assert json.loads(ask(server, "/status.json")[2])["reason"] == str(FRESH)
    for path, title in (("runbook", "Runbook"), ("your-job", "Your job")):
        status, kind, shown = ask(server, f"/{path}")
        assert (status, kind) == (200, "text/html; charset=utf-8")
        assert (f">{title}</h1>" in shown, "```" in shown) == (True, False)
        assert f"<a href={path}>" in text.decode()
    monkeypatch.setattr("rltuned.daemon.web.server.shared_files", lambda *_: [])
    assert ask(server, "/runbook")[0] == 404


@pytest.mark.parametrize("path", ["/", "/?q=gpu&sort=waited", "/job?id=3", "/your-job", "/runbook"])
def test_links_stay_below_the_path_of_a_proxy(path: str, tmp_path: Path) -> None:
    """Behind https://site/rltuned/ a link to /status.css would leave rltuned."""
    with closing(serving(board=board_after(tmp_path, jobs=True))) as made:
        status, _, text = ask(made, path)
        links = [one for one in LINK.findall(text) if not one.startswith(("data:", "#"))]
        assert (status, len(links) > 4) == (200, True)
        assert [one for one in links if one.startswith("/")] == []
        for one in links:
            if "://" not in one:
                target = urljoin(f"/{path[1:]}", one).partition("#")[0]
                assert ask(made, target)[0] == 200, one


def test_slow_clients_are_cut_and_prometheus_gets_in(server: Endpoint) -> None:
    slow = [
        socket.create_connection(("127.0.0.1", server.effective_port), timeout=10)
        for _ in range(3 * MAX_CONNECTIONS)
    ]
    for client in slow[-MAX_CONNECTIONS:]:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow")
    assert ask(server, "/metrics")[0] == 200
    assert slow[0].recv(10) == b""
    for client in slow:
        client.close()


def trickle(client: socket.socket, piece: bytes) -> None:
    """Each piece comes well within the patience."""
    for _ in range(10_000):
        client.sendall(piece)
        time.sleep(0.05)


@pytest.mark.parametrize("piece", [b"x", b"GET /metrics HTTP/1.1\r\n", b"X-Slow: 1\r\n"])
def test_a_client_that_trickles_is_cut_all_the_same(piece: bytes) -> None:
    with closing(serving(patience_s=0.5)) as quick:
        slow = socket.create_connection(("127.0.0.1", quick.effective_port), timeout=10)
        with slow, pytest.raises(ConnectionError):
            trickle(slow, piece)
        assert ask(quick, "/healthz")[0] == 200


def test_a_taken_port_is_one_clear_line(server: Endpoint) -> None:
    port = server.effective_port
    with pytest.raises(SettingsError, match=rf"127.0.0.1:{port}: Address already in use"):
        listen("127.0.0.1", port)
    with pytest.raises(SettingsError, match=r"cannot listen on nowhere.invalid:0"):
        listen("nowhere.invalid", 0)


def test_closing_wakes_its_loop_though_another_thread_has() -> None:
    """The loop could close its pipe before the closing thread had written to it."""
    made = serving()
    pull = made.trigger._physical_pull

    def late() -> None:
        pull()  # of a request that has just been answered
        time.sleep(0.2)
        pull()

    with patch.object(made.trigger, "_physical_pull", late):
        made.close()


def test_ipv6_addresses_have_brackets() -> None:
    try:
        made = Endpoint(listen("::1", 0), {})
    except SettingsError as error:
        skip_or_fail(str(error))
    assert made.url == f"http://[::1]:{made.effective_port}"
    made.close()


OTHER = "daemon"
ASK = """
import json, sys
from pathlib import Path
from rltuned.daemon.web.server import connection
made = connection(Path(sys.argv[1]), 10.0)
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
def board() -> Board:
    made = Board(lambda: NOW)
    seen = snapshot(job(1, user="root"), job(2, user=OTHER), job(3, user="ann"))
    made.cycle(decided(decide(seen, ConstantOrder(), Knobs())))
    return made


def asked(folder: Path, path: str) -> dict[str, Any]:
    with closing(connection(folder / "socket", 10.0)) as made:
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


def test_each_user_is_answered_about_own_jobs(folder: Path, board: Board) -> None:
    with closing(answering(folder, board=board)):
        assert numbers(asked(folder, "/plan.json")) == [1, 2, 3]
        assert numbers(asked_by(OTHER, folder, "/plan.json")) == [2]
        assert asked_by(OTHER, folder, "/job.json?job=2")["job"]["job_id"] == 2
        assert asked_by(OTHER, folder, "/job.json?job=3")["why"] == NOT_SHOWN
        told = asked_by(OTHER, folder, "/status.json")
    assert (told["reason"], told["state_dir"]) == (str(FRESH), str(folder))


@pytest.mark.parametrize("path", ["/", "/metrics", "/job?id=1", "/job", "/../etc/passwd"])
def test_nothing_else_is_there(folder: Path, board: Board, path: str) -> None:
    with (
        closing(answering(folder, board=board)),
        closing(connection(folder / "socket", 10.0)) as made,
    ):
        made.request("GET", path)
        assert made.getresponse().status == 404


@pytest.mark.parametrize("path", ["/plan.json", "/job.json?job=1", "/job.json?job=2"])
def test_over_tcp_everybody_is_a_stranger(board: Board, path: str) -> None:
    """A proxy on the daemon's machine, run by root or by the daemon's user, speaks for all who
    reach it; so does a listener whose port an own one borrows.
    """
    with (
        closing(serving(board=board)) as server,
        closing(http.client.HTTPConnection("127.0.0.1", server.effective_port, timeout=10)) as made,
    ):
        made.request("GET", path, headers={"X-Forwarded-User": "root"})
        found = json.loads(made.getresponse().read())
    assert found["why"] == NOT_SHOWN
    assert set(found) == {"rltuned", "why"}


def test_the_socket_of_a_dead_daemon_is_replaced(folder: Path, board: Board) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(folder / "socket"))
    with closing(answering(folder, board=board)):
        assert numbers(asked(folder, "/plan.json")) == [1, 2, 3]
    assert not (folder / "socket").exists()


def test_the_socket_of_a_living_one_stays(folder: Path, board: Board) -> None:
    with closing(answering(folder, board=board)):
        with pytest.raises(SettingsError, match="another daemon answers there"):
            answering(folder, board=board)
        assert numbers(asked(folder, "/plan.json")) == [1, 2, 3]
    (folder / "socket").write_text("a file")
    with pytest.raises(SettingsError, match="something else lies there"):
        answering(folder, board=board)
    assert (folder / "socket").read_text() == "a file"


def test_a_long_path_and_a_folder_that_is_not_there(folder: Path, board: Board) -> None:
    deep = folder / ("x" * 120)
    with closing(answering(deep, board=board)):
        assert numbers(asked(deep, "/plan.json")) == [1, 2, 3]
    with pytest.raises(SettingsError, match=r"no socket at .*: No such file"):
        answering(folder / "none" / "there", board=board)


HOLD = """
import sys, time
from pathlib import Path
from rltuned.daemon.web.server import connected
path = Path(sys.argv[1])
held = [connected(path, 10.0) for _ in range(int(sys.argv[2]))]
print("held", flush=True)
sys.stdin.read()
"""


def test_a_flood_of_one_user_cuts_nobody_else(folder: Path, board: Board) -> None:
    """In review 32 connections of any user cut those of all others."""
    if os.geteuid():
        skip_or_fail("only root starts processes of other users")
    with (
        closing(answering(folder, board=board, patience_s=30.0)),
        closing(connection(folder / "socket", 10.0)) as mine,
    ):
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


def test_one_answer_is_made_at_a_time_for_a_user(folder: Path, board: Board) -> None:
    """In review each of any number of questions had a thread that made a whole plan."""
    begun, go_on, at_once = Queue[int](), threading.Event(), [0]
    whole = board.plan

    def slow(asker: Asker) -> dict[str, Any]:
        at_once[0] += 1
        begun.put(at_once[0])
        assert go_on.wait(30.0)
        at_once[0] -= 1
        return whole(asker)

    with patch.object(board, "plan", slow), closing(answering(folder, board=board)):
        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(asked, folder, "/plan.json") for _ in range(8)]
            found = [begun.get(timeout=30.0)]
            assert asked(folder, "/status.json")["rltuned"], "of another kind meanwhile"
            go_on.set()
            assert [numbers(one.result()) for one in asking] == [[1, 2, 3]] * 8
        found += [begun.get(timeout=30.0) for _ in range(7)]
    assert found == [1] * 8


def test_a_flood_of_questions_has_few_threads(folder: Path, board: Board) -> None:
    """In review each question had a thread that went on although its connection was cut."""
    before, go_on, peak = threading.active_count(), threading.Event(), 0
    whole = board.plan

    def slow(asker: Asker) -> dict[str, Any]:
        assert go_on.wait(30.0)
        return whole(asker)

    with patch.object(board, "plan", slow), closing(answering(folder, board=board)):
        for _ in range(1_000):
            with closing(connected(folder / "socket", 10.0)) as made, suppress(BrokenPipeError):
                made.sendall(b"GET /plan.json HTTP/1.0\r\n\r\n")
            peak = max(peak, threading.active_count() - before)
        go_on.set()
    assert 0 < peak <= THREADS + 1


def test_who_reads_nothing_of_a_long_answer_holds_no_thread(folder: Path, board: Board) -> None:
    long = {"text": os.urandom(20_000_000).hex()}
    with (
        patch.object(board, "plan", lambda _asker: long),
        closing(answering(folder, board=board, patience_s=0.5)) as server,
    ):
        readers = [connected(folder / "socket", 10.0) for _ in range(THREADS)]
        for one in readers:
            one.sendall(b"GET /plan.json HTTP/1.0\r\n\r\n")
        assert asked(folder, "/status.json")["rltuned"]
        until = time.monotonic() + 30.0
        while server.active_channels and time.monotonic() < until:
            time.sleep(0.1)
        assert not server.active_channels
        assert asked(folder, "/job.json?job=1")["job"]["job_id"] == 1
        for one in readers:
            one.close()
