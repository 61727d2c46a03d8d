"""Messages to systemd over a real socket."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rltuned.daemon.systemd import Notifier, watchdog_interval_s


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "notify"))
        server.settimeout(5)
        yield server


def received(server: socket.socket) -> list[str]:
    return server.recv(4096).decode().split("\n")


def test_messages(systemd: socket.socket) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": systemd.getsockname()})
    notifier.ready("dry run")
    assert received(systemd) == ["READY=1", "STATUS=dry run"]
    notifier.alive()
    assert received(systemd) == ["WATCHDOG=1"]
    notifier.alive("two\nlines")
    assert received(systemd) == ["WATCHDOG=1", "STATUS=two lines"]
    notifier.reloading(12.5)
    assert received(systemd) == ["RELOADING=1", "MONOTONIC_USEC=12500000"]
    notifier.stopping("stopped")
    assert received(systemd) == ["STOPPING=1", "STATUS=stopped"]
    notifier.close()
    notifier.alive()


def test_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        name = f"rltuned-test-{os.getpid()}"
        server.bind(f"\0{name}")
        server.settimeout(5)
        notifier = Notifier(f"@{name}")
        notifier.alive()
        assert received(server) == ["WATCHDOG=1"]
        notifier.close()


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "/no/such/socket"])
def test_nobody_listens_and_nothing_breaks(address: str | None) -> None:
    notifier = Notifier(address)
    notifier.ready("x")
    notifier.close()


def test_the_watchdog_is_fed_twice_as_often_as_asked() -> None:
    assert watchdog_interval_s({"WATCHDOG_USEC": "180000000"}) == 90.0
    own = str(os.getpid())
    assert watchdog_interval_s({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": own}) == 1.0
    assert watchdog_interval_s({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}) is None
    assert watchdog_interval_s({}) is None
    assert watchdog_interval_s({"WATCHDOG_USEC": "soon"}) is None
