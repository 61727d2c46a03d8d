"""Waiting for what other processes bring about."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

PATIENCE_S = 120.0
"""For a command, or for what comes within seconds on an idle machine."""
FIRST_S, LAST_S = 0.05, 0.3


def looks(seconds: float) -> Iterator[None]:
    """One look after the other until time is up: each costs the processor, so they get rarer."""
    end, pause_s = time.monotonic() + seconds, FIRST_S
    yield
    while time.monotonic() < end:
        time.sleep(pause_s)
        pause_s = min(1.3 * pause_s, LAST_S)
        yield


def wait_for(seen: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    """Ask until it is so; AssertionError after `seconds`."""
    assert any(seen() for _ in looks(seconds)), f"not seen: {what}"


def ended(pid: int) -> bool:
    """Whether a process comes to its end, be it that nobody has asked for its code."""
    return any(not is_alive(pid) for _ in looks(PATIENCE_S))


def is_alive(pid: int) -> bool:
    """Running, not merely waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
