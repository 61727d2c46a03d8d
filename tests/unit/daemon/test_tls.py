"""The endpoint over TLS: with a certificate, with client certificates, and with bad files."""

import http.client
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from rltuned.daemon.web.server import MetricsServer
from rltuned.daemon.web.tls import endpoint_context
from rltuned.errors import SettingsError
from rltuned.settings.service import HttpKeys
from tests.loops import FRESH


def serve(signed: HttpKeys) -> MetricsServer:
    return MetricsServer(
        "127.0.0.1",
        0,
        CollectorRegistry(),
        lambda: FRESH,
        patience_s=1.0,
        tls=endpoint_context(signed),
    )


@pytest.fixture
def server(signed: HttpKeys) -> Iterator[MetricsServer]:
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


def trusting(signed: HttpKeys) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(signed.tls_cert))


def test_it_answers_over_tls_only(server: MetricsServer, signed: HttpKeys) -> None:
    assert server.url.startswith("https://")
    assert ask(server, trusting(signed)) == 200
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in plain.recv(100)
    assert ask(server, trusting(signed)) == 200


def test_a_client_that_never_shakes_hands_is_cut(server: MetricsServer, signed: HttpKeys) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
        assert ask(server, trusting(signed)) == 200
        assert silent.recv(10) == b""


def test_only_clients_with_a_certificate(signed: HttpKeys) -> None:
    server = serve(signed.model_copy(update={"tls_clients": signed.tls_cert}))
    try:
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            ask(server, trusting(signed))
        known = trusting(signed)
        known.load_cert_chain(str(signed.tls_cert), str(signed.tls_key))
        assert ask(server, known) == 200
    finally:
        server.close()


def test_files_that_cannot_be_used_are_one_clear_line(signed: HttpKeys, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.pem .*cannot be used: No such file"):
        endpoint_context(signed.model_copy(update={"tls_cert": tmp_path / "nothing.pem"}))
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    with pytest.raises(SettingsError, match=r"client authorities .*junk\.pem cannot be used"):
        endpoint_context(signed.model_copy(update={"tls_clients": junk}))
    locked = tmp_path / "locked.pem"
    source, target = str(signed.tls_key), str(locked)
    words = ("openssl", "ec", "-in", source, "-aes256", "-passout", "pass:x", "-out", target)
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    with pytest.raises(SettingsError, match="the key has a password"):
        endpoint_context(signed.model_copy(update={"tls_key": locked}))


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o640, 0o604])
def test_a_key_that_others_may_read_is_no_secret(
    signed: HttpKeys, tmp_path: Path, mode: int
) -> None:
    """In review such a key was taken."""
    key = Path(shutil.copy(str(signed.tls_key), tmp_path / "key.pem"))
    loose = signed.model_copy(update={"tls_key": key})
    key.chmod(mode)
    with pytest.raises(
        SettingsError, match=r"key\.pem cannot be used: (other users may read|others)"
    ):
        endpoint_context(loose)
    key.chmod(0o400)
    assert endpoint_context(loose) is not None
    tmp_path.chmod(0o777)
    with pytest.raises(SettingsError, match="others may write to it"):
        endpoint_context(loose)


@pytest.mark.parametrize("name", ["tls_cert", "tls_clients"])
def test_a_certificate_that_others_may_write_is_refused(
    signed: HttpKeys, tmp_path: Path, name: str
) -> None:
    cert = Path(shutil.copy(str(signed.tls_cert), tmp_path / "cert.pem"))
    loose = signed.model_copy(update={name: cert})
    cert.chmod(0o666)
    with pytest.raises(SettingsError, match=r"cert\.pem cannot be used: .*others may write"):
        endpoint_context(loose)
    cert.chmod(0o644)
    assert endpoint_context(loose) is not None
