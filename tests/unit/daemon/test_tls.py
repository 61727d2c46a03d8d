"""The endpoint over TLS: with a certificate, with client certificates, and with bad files."""

import http.client
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from rltuned.daemon.web.server import Health, MetricsServer
from rltuned.daemon.web.tls import Certificates, server_context
from rltuned.errors import SettingsError


def serve(signed: Certificates) -> MetricsServer:
    return MetricsServer(
        "127.0.0.1",
        0,
        CollectorRegistry(),
        lambda: Health(ready=True, reason="fresh"),
        patience_s=1.0,
        tls=server_context(signed),
    )


@pytest.fixture
def server(signed: Certificates) -> Iterator[MetricsServer]:
    made = serve(signed)
    yield made
    made.close()


def ask(server: MetricsServer, context: ssl.SSLContext) -> int:
    client = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=10, context=context)
    with closing(client):
        client.request("GET", "/healthz")
        with client.getresponse() as answer:
            answer.read()
            return answer.status


def trusting(signed: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(signed.chain))


def test_it_answers_over_tls_only(server: MetricsServer, signed: Certificates) -> None:
    assert server.url.startswith("https://")
    assert ask(server, trusting(signed)) == 200
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in plain.recv(100)
    assert ask(server, trusting(signed)) == 200


def test_a_client_that_never_shakes_hands_is_cut(
    server: MetricsServer, signed: Certificates
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
        assert ask(server, trusting(signed)) == 200
        assert silent.recv(10) == b""


def test_only_clients_with_a_certificate(signed: Certificates) -> None:
    server = serve(Certificates(signed.chain, signed.key, clients=signed.chain))
    try:
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            ask(server, trusting(signed))
        known = trusting(signed)
        known.load_cert_chain(signed.chain, signed.key)
        assert ask(server, known) == 200
    finally:
        server.close()


def test_files_that_cannot_be_used_are_one_clear_line(signed: Certificates, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.pem .*cannot be used: No such file"):
        server_context(Certificates(tmp_path / "nothing.pem", signed.key))
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    with pytest.raises(SettingsError, match=r"client authorities .*junk\.pem cannot be used"):
        server_context(Certificates(signed.chain, signed.key, clients=junk))
    locked = tmp_path / "locked.pem"
    words = (
        "openssl",
        "ec",
        "-in",
        signed.key,
        "-aes256",
        "-passout",
        "pass:x",
        "-out",
        locked,
    )
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    with pytest.raises(SettingsError, match="the key has a password"):
        server_context(Certificates(signed.chain, locked))
