"""What another request would change for one job, in a process of its own.

    python -m rltuned.daemon.what_if_child

Reads a line of JSON and what the last forecast was played from; writes JSON, and nothing else.
"""

import json
import sys
import time
from typing import Any, Final

from rltuned.core.decide import Decision, decide
from rltuned.core.hindsight import Scales
from rltuned.core.other_request import OtherRequest
from rltuned.core.starts import ToPlay
from rltuned.daemon.documents import find_job
from rltuned.daemon.forecast_child import unpacked
from rltuned.daemon.idle_child import confine
from rltuned.daemon.logger import make_log
from rltuned.daemon.what_if import what_if
from rltuned.daemon.wiring import find_policy, run_times_of
from rltuned.domain.context import Context
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.queries import last_seen
from rltuned.journal.salt import read_salt
from rltuned.journal.snapshots import FILE_NAME, reading
from rltuned.settings import Loaded, Settings

CPU_S: Final = 10.0
"""After so much processor time it has as many plays as it has."""
MOST_CPU_S: Final = 30
GONE: Final = "it waited no more at the last cycle"


def answered(asked: dict[str, Any], ground: ToPlay) -> dict[str, Any]:
    """The document that WhatIf hands on. Raises RltunedError, ValueError."""
    settings = Settings.model_validate(asked["settings"])
    loaded, folder = Loaded(settings), settings.daemon.state_dir
    with reading(folder / FILE_NAME) as db:
        found = last_seen(db)
    if found is None or found[0].cluster != ground.snapshot.cluster:
        return {"what_if": None, "what_if_why": GONE}
    (snapshot, context), knobs = found, settings.knobs()
    job = find_job(snapshot, str(asked["job"]))
    if job is None:
        return {"what_if": None, "what_if_why": GONE}

    def order(seen: Snapshot, context: Context) -> Decision:
        return decide(seen, find_policy(loaded)[0], knobs, context=context)

    limit_s = None if asked["limit_s"] is None else float(asked["limit_s"])
    return what_if(
        snapshot,
        context,
        job,
        OtherRequest(limit_s, asked["gpus"]),
        look=run_times_of(loaded, read_salt(folder), make_log("console", "error")).look,
        order=None if asked["as_is"] else order,
        running=ground.running,
        arrivals=ground.arrivals,
        scales=Scales(*asked["scales"]),
        late=lambda: time.process_time() > CPU_S,
    )


def main() -> None:
    """The child: play, and answer."""
    confine(MOST_CPU_S)
    first, _, todo = sys.stdin.buffer.read().partition(b"\n")
    json.dump(answered(json.loads(first), unpacked(todo)), sys.stdout, allow_nan=False)


if __name__ == "__main__":
    main()
