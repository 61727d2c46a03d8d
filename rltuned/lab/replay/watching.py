"""How far a long play is: the kernel runs in a thread, and what it leaves behind is counted."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

T = TypeVar("T")
Watcher = Callable[[float, float], None]
"""Called during a play with the part of its jobs that have started, and about how many seconds are
left if the others take as long."""
LOOK_S: Final = 2.0
_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Let a watcher know of the plays in here that take longer than LOOK_S."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def watched(play: Callable[[], T], part: Callable[[], float]) -> T:
    """What a play returns. part: how much of it is done, asked for meanwhile."""
    watcher = _WATCHER.get()
    if watcher is None:
        return play()
    began = time.perf_counter()
    with ThreadPoolExecutor(1) as thread:
        played = thread.submit(play)
        while not wait_for([played], LOOK_S).done:
            done = part()
            if done > 0.0:
                watcher(done, (time.perf_counter() - began) * (1.0 - done) / done)
        return played.result()
