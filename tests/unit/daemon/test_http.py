"""The endpoint over real sockets: what it answers, and what slow clients cannot do to it."""

import gzip
import http.client
import json
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from prometheus_client import CollectorRegistry

from rltuned.daemon.metrics import Metrics
from rltuned.daemon.state import Condition, Health, HealthState
from rltuned.daemon.web.server import MAX_CONNECTIONS, NO_DECISION, Answers, Asker, MetricsServer
from rltuned.daemon.what_if import OtherRequest
from rltuned.errors import SettingsError
from tests import needs
from tests.loops import FRESH, UNJUDGED, board_after, serving


class Doctor:
    """Says what a test tells it to say."""

    def __init__(self) -> None:
        self.verdict = FRESH

    def __call__(self) -> Health:
        return self.verdict


@pytest.fixture
def doctor() -> Doctor:
    return Doctor()


@pytest.fixture
def server(doctor: Doctor) -> Iterator[MetricsServer]:
    metrics = Metrics(CollectorRegistry())
    made = MetricsServer("127.0.0.1", 0, metrics.registry, doctor)
    yield made
    made.close()


def ask(
    server: MetricsServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.effective_port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    finally:
        connection.close()


def test_metrics_in_both_formats(server: MetricsServer) -> None:
    status, kind, text = ask(server, "/metrics")
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert "rltuned_build_info{" in text
    wanted = "application/openmetrics-text; version=1.0.0"
    status, kind, text = ask(server, "/metrics?x=1", Accept=wanted)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    odd = "application/openmetrics-text; version=x"
    assert ask(server, "/metrics", Accept=odd)[0] == 200


def test_a_scraper_that_takes_gzip_gets_it(server: MetricsServer) -> None:
    asked = urllib.request.Request(f"{server.url}/metrics", headers={"Accept-Encoding": "gzip"})  # noqa: S310
    with urllib.request.urlopen(asked, timeout=10) as answer:  # noqa: S310 - ours
        assert answer.headers["Content-Encoding"] == "gzip"
        packed = answer.read()
        assert int(answer.headers["Content-Length"]) == len(packed)
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:  # noqa: S310 - ours
        assert answer.headers["Content-Encoding"] is None
        plain = answer.read()
    names = {line.split(b"{")[0].split()[0] for line in gzip.decompress(packed).splitlines()}
    assert b"process_resident_memory_bytes" in names
    assert names == {line.split(b"{")[0].split()[0] for line in plain.splitlines()}
    assert len(packed) < len(plain) / 3


def test_health_and_readiness(server: MetricsServer, doctor: Doctor) -> None:
    assert ask(server, "/healthz")[0] == 200
    status, kind, text = ask(server, "/readyz")
    assert (status, kind) == (200, "application/json")
    assert json.loads(text) == FRESH.document()
    doctor.verdict = Health(
        [Condition(HealthState.LIVE), Condition(HealthState.STALE, "400 s old")]
    )
    status, _, text = ask(server, "/readyz")
    assert (status, json.loads(text)["ready"]) == (503, False)
    assert json.loads(text)["reason"].startswith("the last result is 400 s old; ")
    assert ask(server, "/healthz")[0] == 200


def test_other_paths_and_methods(server: MetricsServer) -> None:
    assert ask(server, "/")[0] == 404
    assert ask(server, "/etc/passwd")[0] == 404
    assert ask(server, "/metrics", "POST")[0] == 501
    status, _, text = ask(server, "/metrics", "HEAD")
    assert (status, text) == (200, "")


def test_what_is_asked_of_a_job_is_read_from_the_address(doctor: Doctor, tmp_path: Path) -> None:
    """A request that is none is refused before anything is looked at."""
    found: list[tuple[str, OtherRequest | None]] = []

    class Listening(Answers):
        def explain(
            self, name: str, asker: Asker, other: OtherRequest | None = None
        ) -> dict[str, Any]:
            found.append((name, other))
            return super().explain(name, asker, other)

    made = MetricsServer(
        "127.0.0.1",
        0,
        CollectorRegistry(),
        doctor,
        status=dict,
        answers=Listening(tmp_path / "journal.sqlite"),
    )
    with closing(made):
        status, kind, text = ask(made, "/job.json?job=1_2&limit=2:00:00&gpus=2")
        assert (status, kind) == (200, "application/json")
        assert NO_DECISION in json.loads(text)["why"]
        ask(made, "/job.json?job=7")
        for bad in ("limit=soon", "gpus=-1", "gpus=1e9"):
            assert " is no" in json.loads(ask(made, f"/job.json?job=7&{bad}")[2])["why"]
    assert found == [("1_2", OtherRequest(7_200.0, 2)), ("7", None)]


def test_the_status_page_runs_its_own_script_alone_and_is_embedded_nowhere(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(serving(doctor)) as made:
        status, kind, text = ask(made, "/")
        assert (status, kind) == (200, "text/html; charset=utf-8")
        assert "http-equiv" not in text
        assert ask(made, "/job?id=1")[0] == 404
        assert ask(made, "/status.css")[:2] == (200, "text/css; charset=utf-8")
        for path, title in (("/runbook", "Runbook"), ("/your-job", "Your job")):
            status, kind, text = ask(made, path)
            assert (status, kind) == (200, "text/html; charset=utf-8")
            assert f">{title}</h1>" in text
            assert "```" not in text
            assert f"<a href={path[1:]}>" in ask(made, "/")[2]
        monkeypatch.setattr("rltuned.daemon.web.server.shared_files", lambda *_: [])
        assert ask(made, "/runbook")[0] == 404
        assert json.loads(ask(made, "/status.json")[2])["reason"] == str(FRESH)
        assert ask(made, "/status.js")[:2] == (200, "text/javascript; charset=utf-8")
        with urllib.request.urlopen(f"{made.url}/", timeout=10) as answer:  # noqa: S310 - ours
            policy = answer.headers["Content-Security-Policy"]
            assert {name: answer.headers[name] for name in SAFE} == SAFE
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


LINK = re.compile(r"(?:href|src|action)=\"?([^\s\">]+)")


@pytest.mark.parametrize("path", ["/", "/?q=gpu&sort=waited", "/job?id=3", "/your-job", "/runbook"])
def test_links_of_a_page_stay_below_the_path_of_a_proxy(
    path: str, doctor: Doctor, tmp_path: Path
) -> None:
    """Behind https://site/rltuned/ a link to /status.css would leave rltuned."""
    board = board_after(tmp_path, jobs=True)
    made = MetricsServer(
        "127.0.0.1",
        0,
        CollectorRegistry(),
        doctor,
        status=lambda: board.document(FRESH, UNJUDGED),
        board=board,
    )
    with closing(made):
        status, _, text = ask(made, path)
        assert status == 200
        links = [one for one in LINK.findall(text) if not one.startswith(("data:", "#"))]
        assert len(links) > 4
        assert [one for one in links if one.startswith("/")] == []
        for one in links:
            if "://" not in one:
                target = urljoin(f"/{path[1:]}", one).partition("#")[0]
                assert ask(made, target)[0] == 200, one


SAFE = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}


def test_a_huge_header_is_refused(server: MetricsServer) -> None:
    assert ask(server, "/metrics", Junk="x" * 100_000)[0] == 431


def test_slow_clients_are_cut_and_prometheus_gets_in(server: MetricsServer) -> None:
    slow = [
        socket.create_connection(("127.0.0.1", server.effective_port), timeout=10)
        for _ in range(3 * MAX_CONNECTIONS)
    ]
    try:
        for client in slow[-MAX_CONNECTIONS:]:
            client.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow")
        assert ask(server, "/metrics")[0] == 200
        assert slow[0].recv(10) == b""
    finally:
        for client in slow:
            client.close()


def test_five_hundred_idle_clients_keep_nobody_out(server: MetricsServer) -> None:
    before = threading.active_count()
    idle = []
    try:
        for number in range(500):
            idle.append(socket.create_connection(("127.0.0.1", server.effective_port), timeout=10))
            if number % 100 == 99:
                assert ask(server, "/metrics")[0] == 200
                assert ask(server, "/healthz")[0] == 200
        assert threading.active_count() - before <= MAX_CONNECTIONS + 2
        assert len(server.active_channels) <= MAX_CONNECTIONS
    finally:
        for client in idle:
            client.close()


def is_cut(client: socket.socket, piece: bytes, pause_s: float) -> bool:
    """Send the piece again and again; whether the server put an end to it."""
    try:
        for _ in range(10_000):
            client.sendall(piece)
            time.sleep(pause_s)
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize("piece", [b"x", b"GET /metrics HTTP/1.1\r\n", b"X-Slow: 1\r\n"])
def test_a_client_that_trickles_is_cut_all_the_same(doctor: Doctor, piece: bytes) -> None:
    quick = MetricsServer("127.0.0.1", 0, CollectorRegistry(), doctor, patience_s=0.5)
    try:
        with socket.create_connection(("127.0.0.1", quick.effective_port), timeout=10) as slow:
            assert is_cut(slow, piece, pause_s=0.05), "each piece comes well within the patience"
        assert ask(quick, "/healthz")[0] == 200
    finally:
        quick.close()


def test_a_request_without_end_is_cut(server: MetricsServer) -> None:
    header = b"X-Junk: " + b"x" * 4_000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.effective_port), timeout=10) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert is_cut(client, header, pause_s=0.0)
    assert ask(server, "/metrics")[0] == 200


def test_a_taken_port_is_one_clear_line(server: MetricsServer, doctor: Doctor) -> None:
    with pytest.raises(
        SettingsError, match=rf"127.0.0.1:{server.effective_port}: Address already in use"
    ):
        MetricsServer("127.0.0.1", server.effective_port, CollectorRegistry(), doctor)
    with pytest.raises(SettingsError, match=r"cannot listen on nowhere.invalid:0"):
        MetricsServer("nowhere.invalid", 0, CollectorRegistry(), doctor)


def test_ipv6_addresses_have_brackets(doctor: Doctor) -> None:
    try:
        made = MetricsServer("::1", 0, CollectorRegistry(), doctor)
    except SettingsError as error:
        needs.skip_or_fail(str(error))
    assert made.url == f"http://[::1]:{made.effective_port}"
    made.close()
