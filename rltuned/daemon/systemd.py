"""What the operator and systemd say and hear: signals, the pause file, the notify socket.

SIGTERM and SIGINT stop after the cycle, SIGHUP reloads, and a pause file keeps everything from
being written. sd_notify(3) is a no-op where there is no socket.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType


class Notifier:
    """READY, STATUS, WATCHDOG, RELOADING and STOPPING messages.

    A message that cannot be sent is dropped: the daemon must not die of a missing listener, and a
    missing watchdog message is exactly what systemd acts on.
    """

    def __init__(self, address: str | None) -> None:
        if address is not None and address[:1] not in {"/", "@"}:
            address = None  # other families (vsock) are for virtual machines
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Notifier":
        return cls(environment.get("NOTIFY_SOCKET"))

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def alive(self, status: str | None = None) -> None:
        """The main loop got one step further."""
        self._send("WATCHDOG=1", *([f"STATUS={status}"] if status else []))

    def reloading(self, monotonic_s: float) -> None:
        """Answer SIGHUP; READY=1 must follow. monotonic_s: CLOCK_MONOTONIC in seconds."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(monotonic_s * 1_000_000)}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={status}")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *fields: str) -> None:
        if self._socket is None or self._address is None:
            return
        name = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        text = "\n".join(field.replace("\n", " ") for field in fields)
        try:
            self._socket.sendto(text.encode(), socket.MSG_DONTWAIT, name)
        except OSError:
            return


def watchdog_interval_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """How often to report in: half of what systemd allows; None = no watchdog for this process."""
    allowed_us = environment.get("WATCHDOG_USEC", "")
    pid = environment.get("WATCHDOG_PID", str(os.getpid()))
    if not allowed_us.isdigit() or pid != str(os.getpid()):
        return None
    return int(allowed_us) / 2_000_000 or None


@dataclass
class SignalFlags:
    """Asked for and not yet done. Handlers only set these; the loop does the work."""

    stop: bool = False
    reload: bool = False


@contextmanager
def listening(orders: SignalFlags, wake: Callable[[bool], None]) -> Iterator[None]:
    """Turn signals into orders while the block runs; a second SIGINT ends the process at once.
    wake: ends a wait; its argument says whether to stop.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        if orders.stop and number == signal.SIGINT:
            raise KeyboardInterrupt
        orders.stop = True
        wake(True)

    def reload(_number: int, _frame: FrameType | None) -> None:
        orders.reload = True
        wake(False)

    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_paused(pause_file: Path) -> bool:
    """Whether the pause file is there; a place that cannot be looked at counts as paused."""
    try:
        pause_file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
