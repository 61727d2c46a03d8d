"""What another request would change for a waiting job: asked by users, played by the forecast's
idle process.

It reads the last cycle from the journal, decides and plays it again, so that an answer costs the
daemon next to nothing. Only one is played at a time, and each user waits between two.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rltuned.core.decide import Decision, decide
from rltuned.core.line import present_line, proposed_line
from rltuned.core.placement import ceil_div
from rltuned.core.starts import Expected, Scales, ToPlay, corrected, expectation, expected_of
from rltuned.daemon.child import ChildError, IdleChild
from rltuned.daemon.logger import make_log
from rltuned.daemon.wiring import find_policy, run_times_of
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.domain.units import JobId
from rltuned.journal.cycles import last_seen
from rltuned.journal.store import FILE_NAME, read_salt, reading
from rltuned.settings import Loaded, Settings
from rltuned.slurm.values import SHOWN, asked_limit_s
from rltuned.text import span

APART_S: Final = 10.0
"""Between the end of one and the next of the same user."""
WALL_S: Final = 30.0
PATIENCE_S: Final = 20.0
"""For the forecast's process, whose turn it may be."""
CPU_S: Final = 10.0
"""After so much processor time it has as many plays as it has."""
MOST_GPUS: Final = 1_000_000
BUSY: Final = "another one is being played; ask again in some seconds"
TOO_SOON: Final = f"each user may ask every {APART_S:.0f} s; ask again then"
UNKNOWN: Final = "only users of the daemon's machine may ask"
NOT_YET: Final = "no forecast has been made since the daemon's start; ask again in a minute"
GONE: Final = "it waited no more at the last cycle"

Document = dict[str, Any]
LastForecast = tuple[bytes, Scales, bool]
"""What the last forecast was played from as the child read it, the record's scales, and whether it
was played in Slurm's own order.
"""


class OtherRequest(NamedTuple):
    """limit_s: inf = UNLIMITED. None = as it is."""

    limit_s: float | None = None
    gpus: int | None = None

    def of(self, request: Request) -> Request:
        """CPUs and memory go with the GPUs."""
        if self.limit_s is not None:
            request = replace(request, time_limit_s=self.limit_s)
        before, gpus = request.total, self.gpus
        if gpus is None or gpus == before.gpus:
            return request
        cpus, mem_mib = (
            ceil_div(amount * gpus, before.gpus) if before.gpus else amount
            for amount in (before.cpus, before.mem_mib)
        )
        total = Resources(gpus, max(1, cpus), mem_mib)
        return replace(request, total=total, nodes=None, nodes_most=None, expected=None)


def other_of(limit: str | None, gpus: str | None) -> OtherRequest | None:
    """What a user names, the limit as sbatch takes it; None = nothing. Raises ValueError."""
    if not limit and not gpus:
        return None
    limit_s = asked_limit_s(limit) if limit else None
    is_number = gpus and gpus.isascii() and gpus.isdigit() and len(gpus) <= SHOWN
    if gpus and not (is_number and int(gpus) <= MOST_GPUS):
        raise ValueError(f"{gpus[:SHOWN]!r} is no number of GPUs")
    return OtherRequest(limit_s, int(gpus) if gpus else None)


class WhatIf:
    """Answers in the threads of the endpoint. settings: in force. last: of the last forecast."""

    def __init__(
        self,
        child: IdleChild,
        settings: Callable[[], Settings],
        last: Callable[[], LastForecast | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._child, self._settings, self._last, self._clock = child, settings, last, clock
        self._one = threading.Lock()
        self._ended_at: dict[str, float] = {}

    def ask(self, job: JobId, other: OtherRequest, user: str, *, is_admin: bool) -> Document:
        """What it would change, or `what_if_why` not. is_admin: may ask as often as it likes."""
        if not user and not is_admin:
            return _unknown(UNKNOWN)
        if not self._one.acquire(blocking=False):
            return _unknown(BUSY)
        try:
            now = self._clock()
            self._ended_at = {u: at for u, at in self._ended_at.items() if now - at < APART_S}
            if user in self._ended_at and not is_admin:
                return _unknown(TOO_SOON)
            found = self._played(job, other)
            self._ended_at[user] = self._clock()
            return found
        finally:
            self._one.release()

    def _played(self, job: JobId, other: OtherRequest) -> Document:
        last = self._last()
        if last is None:
            return _unknown(NOT_YET)
        todo, scales, as_is = last
        # JSON knows no infinity
        limit_s = None if other.limit_s is None else str(other.limit_s)
        asked = {
            "settings": self._settings().model_dump(mode="json"), "job": job, "limit_s": limit_s,
            "gpus": other.gpus, "scales": scales, "as_is": as_is,
        }  # fmt: skip
        try:
            answer = self._child.run(asked, todo, WALL_S, patience_s=PATIENCE_S)
            return dict(json.loads(answer))
        except TimeoutError:
            return _unknown(BUSY)
        except (ChildError, ValueError) as error:
            return _unknown(f"it could not be played: {error}")


def _unknown(why: str) -> Document:
    return {"what_if": None, "what_if_why": why}


def answered(asked: Document, ground: ToPlay) -> Document:
    """In the child: the document that WhatIf hands on. Raises RltunedError, ValueError."""
    settings = Settings.model_validate(asked["settings"])
    loaded, folder = Loaded(settings), settings.daemon.state_dir
    with reading(folder / FILE_NAME) as db:
        found = last_seen(db)
    if found is None or found[0].cluster != ground.snapshot.cluster:
        return _unknown(GONE)
    (snapshot, context), knobs = found, settings.knobs()
    job = next((one for one in snapshot.pending if one.job_id == asked["job"]), None)
    if job is None:
        return _unknown(GONE)

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
        last=ground,
        scales=Scales(*asked["scales"]),
        late=lambda: time.process_time() > CPU_S,
    )


def what_if(
    seen: Snapshot,
    context: Context,
    job: PendingJob,
    other: OtherRequest,
    *,
    look: Callable[[Snapshot], Context],
    order: Callable[[Snapshot, Context], Decision] | None,
    last: ToPlay,
    scales: Scales,
    late: Callable[[], bool] = lambda: False,
) -> Document:
    """When the job would start, and where it would stand, with another request, in those of its
    partitions that take its limit. look: predicts run times. order: decides; None = Slurm's own
    order counts. last: what the last forecast was played from. late: as play_forward.
    """
    request, most = other.of(job.request), {p.name: p.max_time_s for p in seen.partitions}
    limit_s = request.time_limit_s

    def takes(name: str) -> bool:
        most_s = most.get(name)
        return limit_s is None or most_s is None or limit_s <= most_s

    where = tuple(filter(takes, job.partitions))
    if where:
        changed = replace(job, request=request, partitions=where)
        pending = (changed if one.job_id == job.job_id else one for one in seen.pending)
        seen = replace(seen, pending=tuple(pending))
        if (run_time := look(seen).run_times.get(job.job_id)) is not None:
            run_times = {**context.run_times, job.job_id: run_time}
            context = replace(context, run_times=run_times)
        line = present_line(seen, context) if order is None else proposed_line(order(seen, context))
        found = expected_of(line, last.running, last.arrivals, late=late)
        if (mine := found.starts.get(job.job_id)) is not None:
            found = replace(found, starts={**found.starts, job.job_id: corrected(mine, scales)})
    else:
        bars = [
            f"partition {name} takes at most {span(most[name] or 0)}" for name in job.partitions
        ]
        why = f"Slurm would not start it: {', '.join(bars)}"
        found = Expected(float(seen.taken_at), {}, cannot={job.job_id: why})
    unlimited = other.limit_s == float("inf")
    return {
        "what_if": {
            "limit_s": None if unlimited else other.limit_s,
            "unlimited": unlimited,
            "gpus": other.gpus,
            **expectation(found, job.job_id, found.at),
        }
    }
