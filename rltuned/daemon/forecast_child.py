"""One forecast in a process of its own, at idle priority, bounded in time and memory.

    python -m rltuned.daemon.forecast_child

Reads what the daemon hands over and answers with the starts as JSON; nothing else is on its output.
"""

import json
import os
import pickle
import resource
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from rltuned.core.decide import Decision
from rltuned.core.forecast import Arrivals
from rltuned.core.starts import Start, starts_of
from rltuned.domain.snapshot import RunTime
from rltuned.domain.units import JobId

CPU_S: Final = 60.0
"""After so much processor time it has as many plays as it has."""
MOST_CPU_S: Final = 240
MOST_MIB: Final = 2_048
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be played. as_is: in Slurm's present order."""

    decision: Decision
    running: dict[JobId, RunTime]
    arrivals: Arrivals
    as_is: bool


def packed(order: Order) -> bytes:
    """What the child reads."""
    return pickle.dumps(order, protocol=pickle.HIGHEST_PROTOCOL)


def main() -> None:
    """The child: play, and answer."""
    os.nice(19)
    with suppress(OSError):  # a container may forbid it; nice alone then
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MIB * MIB, MOST_MIB * MIB))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    order: Order = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the daemon, by its own pipe
    found = starts_of(
        order.decision,
        order.running,
        order.arrivals,
        as_is=order.as_is,
        late=lambda: time.process_time() > CPU_S,
    )
    json.dump([asdict(one) for one in found], sys.stdout, allow_nan=False)


def answer(body: bytes) -> tuple[Start, ...]:
    """What the child has written. Raises ValueError, TypeError: no whole answer."""
    rows: list[dict[str, Any]] = json.loads(body)
    return tuple(Start(**row) for row in rows)


if __name__ == "__main__":
    main()
