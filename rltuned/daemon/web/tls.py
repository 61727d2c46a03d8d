"""TLS for the endpoint, as prometheus-client's own server offers it."""

import ssl
from typing import Final

from rltuned.errors import SettingsError
from rltuned.settings.service import HttpKeys
from rltuned.trusted import flaws_on, read_secret

_MOST_BYTES: Final = 1024 * 1024


def endpoint_context(http: HttpKeys) -> ssl.SSLContext | None:
    """TLS 1.2 or later with the certificates of the settings, read once; None = without TLS. Raises
    SettingsError: a file cannot be read, other users may write it, or they do not belong together;
    of the key also: other users may read it.
    """
    if http.tls_cert is None or http.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    what = f"certificate {http.tls_cert} with key {http.tls_key}"
    try:
        context.load_cert_chain(http.tls_cert, http.tls_key, password=_no_password)
        what = f"key {http.tls_key}"
        read_secret(http.tls_key, _MOST_BYTES, follow=True)
        if http.tls_clients is not None:
            what = f"client authorities {http.tls_clients}"
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(http.tls_clients)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingsError(f"http: {what} cannot be used: {reason}") from None
    for path in filter(None, (http.tls_cert, http.tls_key, http.tls_clients)):
        # a group may share a folder on the way, but not the file
        flaws = [flaw for flaw in flaws_on(path) if not flaw.by_group]
        if flaws:
            raise SettingsError(f"http: {path} cannot be used: {flaws[0]}")
    return context


def _no_password() -> str:
    """Called when the key is locked; a daemon cannot type one."""
    raise ValueError("the key has a password; store it without one")
