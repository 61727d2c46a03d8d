"""A process of its own at idle priority, one at a time: how it is run, and what bounds it."""

import os
import resource
import sys
import threading
from contextlib import suppress
from typing import Final

from rltuned.run import run

MOST_MIB: Final = 1_024
"""Of address space, and half of what the unit's daemon and child may have together."""
MOST_BYTES: Final = 256 * 1024 * 1024
"""Of its answer."""
MOST_SAID: Final = 160
"""Characters of its last line on standard error in a message."""
_MIB: Final = 1024 * 1024


class ChildError(Exception):
    """It failed, or took too long."""


class ChildBusyError(ChildError):
    """Another one is still at it."""


class ChildEndedError(ChildError):
    """The daemon ends, and it with it: no trouble."""


class IdleChild:
    """Runs modules, and never two at once: they share one bound of memory."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._closed = False

    def run(self, module: str, todo: bytes, wall_s: float, *, patience_s: float = -1.0) -> bytes:
        """What the module writes when it reads todo. patience_s: to wait for the turn; -1 = for
        ever. Raises ChildError.
        """
        if not self._turn.acquire(timeout=patience_s):
            raise ChildBusyError
        try:
            return self._run(module, todo, wall_s)
        except OSError as error:
            raise ChildError(f"{type(error).__name__}: {error}") from error
        finally:
            self._turn.release()

    def _run(self, module: str, todo: bytes, wall_s: float) -> bytes:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        call = run(
            [sys.executable, "-m", module],
            env,
            wall_s,
            MOST_BYTES,
            name="the child",
            feed=todo,
            dies_with_us=True,
            stopped=lambda: self._closed,
        )
        if not call.ok and self._closed:
            raise ChildEndedError("the daemon is ending")
        if not call.ok:
            last = call.stderr.strip().rpartition("\n")[2]
            why = call.failure or f"the child ended with {call.exit_code}: {last[:MOST_SAID]}"
            raise ChildError(why)
        return call.stdout.encode()

    def close(self) -> None:
        """End one that is still at it."""
        self._closed = True


def confine(most_cpu_s: int) -> None:
    """What the process does to itself at first. most_cpu_s: of processor time."""
    os.nice(19)
    with suppress(OSError):  # a container may forbid it; nice alone then
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MIB * _MIB, MOST_MIB * _MIB))
    resource.setrlimit(resource.RLIMIT_CPU, (most_cpu_s, most_cpu_s))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
