"""What several unit tests start from."""

import subprocess

import pytest

from rltuned.settings.service import HttpKeys
from tests import needs


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> HttpKeys:
    """A certificate of 127.0.0.1 that has signed itself, and is its own clients' authority."""
    needs.program("openssl")
    folder = tmp_path_factory.mktemp("tls")
    chain, key = folder / "cert.pem", folder / "key.pem"
    words = (
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
        "-keyout", str(key), "-out", str(chain),
    )  # fmt: skip
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    return HttpKeys(tls_cert=chain, tls_key=key)
