"""What the operator asks for: SIGTERM and SIGINT stop after the cycle, SIGHUP reloads, and a pause
file keeps everything from being written.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType


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
