"""The last look before a batch is sent: whether what it was planned from is too old by now."""

from collections.abc import Callable, Sequence

Readings = Callable[[], tuple[float, ...]]
"""Reads several clocks at once, always the same ones: seconds of each."""


def longest_s(since: Sequence[float], now: Sequence[float]) -> float:
    """Seconds gone by, as the clock says that counted most; for what must not be too old."""
    return max(b - a for a, b in zip(since, now, strict=True))


class Fence:
    """Shuts when the last look at the cluster is too long ago.

    A process that was stopped (SIGSTOP), a machine that slept and one whose clock was set all wake
    up with an old plan in hand. Each of these shows on one of the clocks, so the longest counts.

    readings: the clocks: one that stops in sleep, one that does not, and the wall clock. max_age_s:
    oldest view that may be acted on. holds: asked last; why this daemon may not write, empty = it
    may.
    """

    def __init__(
        self, readings: Readings, max_age_s: float, holds: Callable[[], str] = lambda: ""
    ) -> None:
        self._readings = readings
        self._max_age_s = max_age_s
        self._holds = holds
        self._looked: tuple[float, ...] | None = None

    def look(self) -> None:
        self._looked = self._readings()

    def shut(self) -> str:
        """Why nothing may be sent; empty = send."""
        if self._looked is None:
            return "not sent: the cluster was not looked at yet"
        age_s = longest_s(self._looked, self._readings())
        if age_s > self._max_age_s:
            return (
                f"not sent: the queue was seen {age_s:.0f} s ago, and max_snapshot_age_s is "
                f"{self._max_age_s:g}"
            )
        return self._holds()
