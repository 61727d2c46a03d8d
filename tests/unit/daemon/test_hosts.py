"""The names by which the status page may be asked for."""

import http.client
import socket
from collections.abc import Iterator

import pytest

from rltuned.daemon.web.hosts import is_asked_by, own_names
from rltuned.daemon.web.server import MetricsServer
from rltuned.daemon.web.status import Showing
from tests.loops import serving

NAMES = own_names("ctl1.site.example", "192.0.2.1", "Status.Site.Example")


@pytest.mark.parametrize(
    ("header", "is_ours"),
    [
        ("localhost", True),
        ("LOCALHOST:9841", True),
        ("localhost.:9841", True),
        ("ctl1", True),
        ("ctl1.site.example:9841", True),
        ("status.site.example", True),
        ("127.0.0.1:9841", True),
        ("192.0.2.7", True),
        ("[::1]:9841", True),
        ("[2001:db8::7]", True),
        ("evil.example", False),
        ("evil.example:9841", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("ctl1.site.example.evil.example:9841", False),
        ("localhost:x", False),
        ("[::1", True),  # no name in any case
        ("", False),
        (":9841", False),
    ],
)
def test_names_and_addresses(header: str, is_ours: bool) -> None:
    assert is_asked_by([header], NAMES) == is_ours


def test_none_and_several_are_no_browsers() -> None:
    assert not is_asked_by(None, NAMES)
    assert not is_asked_by([], NAMES)
    assert not is_asked_by(["localhost", "evil.example"], NAMES)


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    made = serving(showing=Showing(jobs=True), names=["status.site.example"])
    yield made
    made.close()


def status_of(server: MetricsServer, path: str, *hosts: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.putrequest("GET", path, skip_host=True)
        for host in hosts:
            connection.putheader("Host", host)
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/", "/?range=7d", "/status.json", "/status.css", "/status.js"])
def test_a_strangers_name_is_not_answered(server: MetricsServer, path: str) -> None:
    good = (f"127.0.0.1:{server.port}", socket.gethostname(), "status.site.example")
    assert {status_of(server, path, host) for host in good} == {200}
    assert status_of(server, path, f"evil.example:{server.port}") == 421
    assert status_of(server, path, "localhost", "evil.example") == 421
    assert status_of(server, path) == 421


def test_prometheus_may_use_whichever_name_it_likes(server: MetricsServer) -> None:
    for path in ("/metrics", "/healthz", "/readyz"):
        assert status_of(server, path, "rltuned.prometheus.svc:9841") == 200
