"""TLS for the endpoint: what prometheus-client's own server offers, and nothing of our own."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from rltuned.errors import SettingsError
from rltuned.settings.service import HttpKeys


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the server's chain and key, and whose clients are let in (None = everybody)."""

    chain: Path
    key: Path
    clients: Path | None = None


def endpoint_context(http: HttpKeys) -> ssl.SSLContext | None:
    """TLS as the settings want it; None = they do not.

    Raises:
        SettingsError: a file cannot be used.
    """
    if http.tls_cert is None or http.tls_key is None:
        return None
    return server_context(Certificates(http.tls_cert, http.tls_key, http.tls_clients))


def server_context(files: Certificates) -> ssl.SSLContext:
    """TLS 1.2 or later with these certificates; read once, so a new one needs a restart.

    Raises:
        SettingsError: a file cannot be read, or they do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.chain, files.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"http: certificate {files.chain} with key {files.key} cannot be used: {_said(error)}"
        ) from None
    if files.clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(files.clients)
        except OSError as error:
            raise SettingsError(
                f"http: client authorities {files.clients} cannot be used: {_said(error)}"
            ) from None
    return context


def _no_password() -> str:
    """Asked for when the key is locked; a daemon has nobody to ask."""
    raise ValueError("the key has a password; store it without one")


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
