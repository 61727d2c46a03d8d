"""The only place that knows what time it is."""

import os
import select
import time
from typing import Final

_LONGEST_MS: Final = 86_400_000
"""A wait ends after a day at the latest."""


def now() -> float:
    """Unix time, in seconds."""
    return time.time()


class SystemClock:
    """Real time. A wait ends at once when `wake` is called, also from a signal handler.

    A pipe carries the wake-up instead of threading.Event, whose lock a signal handler could find
    taken by the very thread that it interrupted.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        self._stopping = False

    def now(self) -> float:
        return now()

    def monotonic(self) -> float:
        return time.monotonic()

    def readings(self) -> tuple[float, float, float]:
        """Three clocks at once: one that stops in sleep, one that does not, and the wall clock."""
        return time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), time.time()

    def wait(self, seconds: float) -> bool:
        """Sleep; ends early after a wake-up. True = asked to stop."""
        # not select(): it refuses a descriptor above 1023, which a process with many files may get
        waited_ms = min(max(0.0, seconds) * 1_000, _LONGEST_MS)
        if not self._stopping and self._poll.poll(waited_ms):
            self._drain()
        return self._stopping

    def wake(self, *, stop: bool) -> None:
        """End the wait that is going on, or the next one. Safe in a signal handler."""
        self._stopping = self._stopping or stop
        try:
            os.write(self._writer, b"x")
        except BlockingIOError:
            return  # the pipe is full of wake-ups already

    def _drain(self) -> None:
        try:
            while os.read(self._reader, 512):
                pass
        except BlockingIOError:
            return
