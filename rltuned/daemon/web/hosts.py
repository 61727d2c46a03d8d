"""By which names the status page may be asked for.

A page of a stranger's can make a browser on the site's network ask this port under a name of the
stranger's own that suddenly points here (DNS rebinding), and could then read the answer. The name
stands in the Host header, so only known ones are answered. An address instead of a name cannot be
made to point elsewhere. /metrics and the health paths tell nothing of single jobs and are answered
under any name, so that Prometheus may use whichever it likes.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

LOCAL: Final = "localhost"


def own_names(hostname: str, *more: str) -> frozenset[str]:
    """Every name of this daemon, in lower case, with its address and those of the settings."""
    short = hostname.partition(".")[0]
    return frozenset(_plain(name) for name in (LOCAL, hostname, short, *more) if name)


def is_asked_by(headers: Sequence[str] | None, names: Iterable[str]) -> bool:
    """Whether a request is for this daemon. headers: every Host header; a browser sends one."""
    if headers is None or len(headers) != 1:
        return False
    host = _without_port(headers[0].strip())
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return _plain(host) in names
    return True


def _without_port(header: str) -> str:
    """The host of `host`, `host:9841`, `[::1]` and `[::1]:9841`."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    host, colon, port = header.rpartition(":")
    return host if colon and port.isdigit() else header


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")
