"""One forecast in a process of its own.

    python -m rltuned.daemon.forecast_child

Reads what the daemon hands over and writes the waits of jobs as JSON, and nothing else.
"""

import json
import sys
import time
from typing import Final

from pydantic import ConfigDict, TypeAdapter

from rltuned.core.starts import ToPlay, play
from rltuned.daemon.idle_child import confine
from rltuned.domain.units import JobId

CPU_S: Final = 60.0
"""After so much processor time it has as many plays as it has."""
MOST_CPU_S: Final = 240
_ADAPTER: Final = TypeAdapter(tuple[ToPlay], config=ConfigDict(ser_json_inf_nan="strings"))


def packed(todo: ToPlay) -> bytes:
    """What the child reads."""
    return _ADAPTER.dump_json((todo,), exclude_defaults=True)


def unpacked(data: bytes) -> ToPlay:
    """The inverse of `packed`. Raises ValueError."""
    [todo] = _ADAPTER.validate_json(data)
    return todo


def main() -> None:
    """The child: play, and answer."""
    confine(MOST_CPU_S)
    todo = unpacked(sys.stdin.buffer.read())
    json.dump(play(todo, late=lambda: time.process_time() > CPU_S), sys.stdout)


def answer(body: bytes) -> dict[JobId, list[float]]:
    """What the child has written. Raises ValueError, TypeError: no whole answer."""
    return {JobId(int(job)): [float(s) for s in row] for job, row in json.loads(body).items()}


if __name__ == "__main__":
    main()
