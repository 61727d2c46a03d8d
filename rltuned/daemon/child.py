"""A process of its own at idle priority, one at a time: it plays a forecast or another request.

    python -m rltuned.daemon.child

Reads a line of JSON, null or what WhatIf asks, and what the forecast is played from; writes JSON,
and nothing else.
"""

import json
import os
import resource
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter

from rltuned.core.starts import ToPlay, play
from rltuned.domain.units import JobId
from rltuned.run import run

MOST_MIB: Final = 1_024
"""Of address space, and half of what the unit's daemon and child may have together."""
MOST_BYTES: Final = 256 * 1024 * 1024
"""Of its answer."""
MOST_SAID: Final = 160
"""Characters of its last line on standard error in a message."""
CPU_S: Final = 60.0
"""After so much processor time a forecast has as many plays as it has."""
MOST_CPU_S: Final = 240
MOST_CPU_OF_ONE_S: Final = 30
"""For another request."""
_MIB: Final = 1024 * 1024
_ADAPTER: Final = TypeAdapter(tuple[ToPlay], config=ConfigDict(ser_json_inf_nan="strings"))


class ChildError(Exception):
    """It failed, or took too long."""


class IdleChild:
    """Never two run at once: they share one bound of memory."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self.closed = False

    def run(self, asked: Any, todo: bytes, wall_s: float, *, patience_s: float = -1.0) -> bytes:
        """What it answers. patience_s: to wait for the turn; -1 = for ever. Raises ChildError;
        TimeoutError: another one is still at it.
        """
        if not self._turn.acquire(timeout=patience_s):
            raise TimeoutError
        try:
            return self._run(json.dumps(asked).encode() + b"\n" + todo, wall_s)
        except OSError as error:
            raise ChildError(f"{type(error).__name__}: {error}") from error
        finally:
            self._turn.release()

    def _run(self, todo: bytes, wall_s: float) -> bytes:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        call = run(
            [sys.executable, "-m", "rltuned.daemon.child"],
            env,
            wall_s,
            MOST_BYTES,
            name="the child",
            feed=todo,
            dies_with_us=True,
            stopped=lambda: self.closed,
        )
        if not call.ok and self.closed:
            raise ChildError("the daemon is ending")
        if not call.ok:
            last = call.stderr.strip().rpartition("\n")[2]
            why = call.failure or f"the child ended with {call.exit_code}: {last[:MOST_SAID]}"
            raise ChildError(why)
        return call.stdout.encode()

    def close(self) -> None:
        """End one that is still at it."""
        self.closed = True


def packed(todo: ToPlay) -> bytes:
    """What the child plays a forecast from."""
    return _ADAPTER.dump_json((todo,), exclude_defaults=True)


def waits_of(body: bytes) -> dict[JobId, list[float]]:
    """The answer to null. Raises ValueError, TypeError: it is not whole."""
    return {JobId(int(job)): [float(s) for s in row] for job, row in json.loads(body).items()}


def main() -> None:
    """The child: play, and answer."""
    first, _, todo = sys.stdin.buffer.read().partition(b"\n")
    asked = json.loads(first)
    _confine(MOST_CPU_S if asked is None else MOST_CPU_OF_ONE_S)
    [ground] = _ADAPTER.validate_json(todo)
    if asked is None:
        found: Any = play(ground, late=lambda: time.process_time() > CPU_S)
    else:
        from rltuned.daemon.what_if import answered  # noqa: PLC0415 - a forecast needs little

        found = answered(asked, ground)
    json.dump(found, sys.stdout, allow_nan=asked is None)


def _confine(most_cpu_s: int) -> None:
    os.nice(19)
    with suppress(OSError):  # a container may forbid it; nice alone then
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MIB * _MIB, MOST_MIB * _MIB))
    resource.setrlimit(resource.RLIMIT_CPU, (most_cpu_s, most_cpu_s))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
