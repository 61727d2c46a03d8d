"""One forecast in a process of its own, at idle priority, bounded in time and memory.

    python -m rltuned.daemon.forecast_child

Reads what the daemon hands over and writes the waits of jobs as JSON, and nothing else.
"""

import json
import os
import resource
import sys
import time
from contextlib import suppress
from typing import Final

from pydantic import ConfigDict, TypeAdapter

from rltuned.core.starts import ToPlay, play
from rltuned.domain.units import JobId

CPU_S: Final = 60.0
"""After so much processor time it has as many plays as it has."""
MOST_CPU_S: Final = 240
MOST_MIB: Final = 1_024
"""Of address space, and half of what the unit's daemon and child may have together."""
MIB: Final = 1024 * 1024
_ADAPTER: Final = TypeAdapter(tuple[ToPlay], config=ConfigDict(ser_json_inf_nan="strings"))


def packed(todo: ToPlay) -> bytes:
    """What the child reads."""
    return _ADAPTER.dump_json((todo,), exclude_defaults=True)


def main() -> None:
    """The child: play, and answer."""
    os.nice(19)
    with suppress(OSError):  # a container may forbid it; nice alone then
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MIB * MIB, MOST_MIB * MIB))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    [todo] = _ADAPTER.validate_json(sys.stdin.buffer.read())
    json.dump(play(todo, late=lambda: time.process_time() > CPU_S), sys.stdout)


def answer(body: bytes) -> dict[JobId, list[float]]:
    """What the child has written. Raises ValueError, TypeError: no whole answer."""
    return {JobId(int(job)): [float(s) for s in row] for job, row in json.loads(body).items()}


if __name__ == "__main__":
    main()
