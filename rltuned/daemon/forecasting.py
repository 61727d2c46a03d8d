"""The daemon's forecast: made by a child every few minutes, never in the way of a cycle.

The loop hands over its last decision and goes on. A thread waits for the child, keeps the answer in
a file beside the journal, and the next cycles show it with its age. A child that fails or takes too
long costs the new forecast and nothing else.
"""

import json
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final

from rltuned.core.decide import Decision
from rltuned.core.forecast import DAY_S, Arrival, Arrivals
from rltuned.core.line import present_line, proposed_line
from rltuned.core.starts import (
    ARRIVALS,
    MOST,
    Expected,
    Hindsight,
    Start,
    arrivals_of,
    bare,
    come_of,
    corrected,
    finite,
    to_play,
    told,
    waiting,
)
from rltuned.daemon.child import ChildError, IdleChild, packed, waits_of
from rltuned.daemon.logger import Log
from rltuned.daemon.report import CycleReport, ForecastStatus
from rltuned.daemon.run_times import BUGS
from rltuned.daemon.state import HealthState
from rltuned.daemon.what_if import LastForecast
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Context, RunTime, RunTimes, Snapshot
from rltuned.domain.units import JobKey
from rltuned.files import write_whole
from rltuned.journal.store import hand_to_folder_owner
from rltuned.trusted import owner_of, read_trusted

FILE_NAME: Final = "forecast"
VERSION: Final = 2
EVERY_S: Final = 300.0
FRESH_S: Final = 900.0
"""An older one is not shown."""
WALL_S: Final = 270.0
SEEN_DAYS: Final = 3.0
LATE_S: Final = 300.0
"""So long after its submission a job may still be seen for the first time after an earlier look."""
KNOWN_S: Final = 3_600.0
"""Until so much of what arrives has been watched, the last look's jobs stand for it."""
_MOST_BYTES: Final = 64 * 1024 * 1024

OfRunning = Callable[[Snapshot], RunTimes]


@dataclass(slots=True)
class RecentArrivals:
    """Jobs that came while the daemon watched, the last days' and at most ARRIVALS. at: of the last
    look. jobs: by unit, each with how many came at once: the tasks of an array.
    """

    since: float = 0.0
    at: float = 0.0
    jobs: dict[JobKey, tuple[PendingJob, RunTime | None, int]] = field(default_factory=dict)

    def look(self, seen: Snapshot, run_times: RunTimes) -> None:
        now = float(seen.taken_at)
        if now < self.at:  # the clock was ahead
            self.since = self.at = now
            self.jobs = {key: one for key, one in self.jobs.items() if key[1] <= now}
        self.since = self.since or now
        after, self.at = max(self.since, self.at - LATE_S), now
        # pending jobs stand by their submission: only the last ones are new
        first = bisect_left(seen.pending, after, key=lambda job: job.submitted_at)
        came: list[PendingJob | RunningJob] = [*seen.pending[first:], *seen.running]
        known = set(self.jobs)
        for job in came:
            key = job.unit
            if key in known or float(job.submitted_at or 0.0) < after:
                continue
            if isinstance(job, PendingJob):
                as_waits, count = bare(job), come_of(job)
            else:
                as_waits, count = waiting(job), 1
            # the tasks of one array may stand in several records
            count += self.jobs[key][2] if key in self.jobs else 0
            self.jobs[key] = as_waits, run_times.get(job.job_id), min(count, MOST)
        begin = now - SEEN_DAYS * DAY_S
        ordered = sorted((key for key in self.jobs if key[1] >= begin), key=itemgetter(1, 0))
        totals = accumulate(self.jobs[key][2] for key in reversed(ordered))
        kept = ordered[len(ordered) - sum(total <= ARRIVALS for total in totals) :]
        if len(kept) < len(ordered):
            self.since = kept[0][1]
        self.since = max(self.since, begin)
        self.jobs = {key: self.jobs[key] for key in kept}

    def arrivals(self, seen: Snapshot, predicted: RunTimes) -> Arrivals:
        now = float(seen.taken_at)
        if now - self.since < KNOWN_S:
            return arrivals_of(seen, predicted)
        came = [
            Arrival(job, now - at, run)
            for (_, at), (job, run, count) in self.jobs.items()
            for _ in range(count)
        ]
        return Arrivals(tuple(came), now - self.since)


class Forecaster:
    """Follows the cycles. folder: of the journal; None = nothing is kept. of_running: what is
    predicted of running jobs, asked in the loop's own thread. last: what the last one was played
    from; None = none since the start.
    """

    def __init__(
        self,
        folder: Path | None,
        log: Log,
        of_running: OfRunning,
        child: IdleChild,
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._folder, self._log, self._of_running = folder, log, of_running
        self._every_s = every_s
        self._watched = RecentArrivals()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._child = child
        self._begun_at = 0.0
        found = None if folder is None else read_file(folder)
        self._cluster, self._hindsight = "", Hindsight()
        self.expected: Expected | None = None
        self.last: LastForecast | None = None
        if found is not None:
            self._cluster, self.expected, self._hindsight = found
        self.status = ForecastStatus(at=None if self.expected is None else self.expected.at)

    def cycle(self, report: CycleReport) -> ForecastStatus:
        """Take in a cycle, and begin a forecast when it is time. Never raises: it is in status."""
        try:
            if report.snapshot is not None:
                self._take_in(report, report.snapshot)
        except BUGS as error:
            self._log.error("forecast_fault", exc_info=error)
            self._note(trouble=f"{type(error).__name__}: {error}")
        return self.status

    def _take_in(self, report: CycleReport, seen: Snapshot) -> None:
        with self._guard:
            if self._cluster != seen.cluster:
                self._cluster, self.expected, self._hindsight = seen.cluster, None, Hindsight()
            self._hindsight.look(seen)
            self._note()
        now = float(seen.taken_at)
        is_due = self._thread is None or not self._thread.is_alive()
        is_due = is_due and not 0 <= now - self._begun_at < self._every_s
        running = self._of_running(seen) if is_due else {}
        context = report.context
        self._watched.look(seen, {**context.run_times, **running} if running else context.run_times)
        if is_due and not report.why(HealthState.CLOCK_OFF):
            self._begun_at = now
            # what is not written moves no job: then Slurm's own order is the one that counts
            decision = report.decision if report.mode is HealthState.LIVE else None
            arrivals = self._watched.arrivals(seen, context.run_times)
            self._thread = threading.Thread(
                target=self._make,
                args=(seen, context, decision, running, arrivals),
                name="forecast",
                daemon=True,
            )
            self._thread.start()

    def fresh(self, now: float) -> Expected | None:
        """The last forecast; None = none of the last FRESH_S."""
        found = self.expected
        return found if found is not None and 0 <= now - found.at <= FRESH_S else None

    def close(self) -> None:
        """End a child that is still at it."""
        self._child.close()
        if self._thread is not None:
            self._thread.join(5.0)

    def _make(
        self,
        seen: Snapshot,
        context: Context,
        decision: Decision | None,
        running: RunTimes,
        arrivals: Arrivals,
    ) -> None:
        """In a thread of its own. The guard is held for moments only: a cycle may wait for it."""
        began = time.monotonic()
        try:
            line = present_line(seen, context) if decision is None else proposed_line(decision)
            todo = to_play(line, running, arrivals)
            data = packed(todo)
            raw = told(line, todo.line, waits_of(self._child.run(None, data, WALL_S)))
        except (*BUGS, ChildError) as error:
            if self._child.closed and isinstance(error, ChildError):
                return  # no trouble: the daemon ends
            trouble = f"{type(error).__name__}: {error}"[:200]
            self._log.warning("forecast_failed", detail=trouble)
            self._note(trouble=trouble)
            return
        with self._guard:
            scales = self._hindsight.scales(raw.at)
            self._hindsight.note(raw.starts.values(), seen, scales)
            record = self._hindsight.document()
        starts = {job_id: corrected(one, scales) for job_id, one in raw.starts.items()}
        self.expected = replace(raw, starts=starts)
        self.last = data, scales, decision is None
        self._note(seconds=time.monotonic() - began, trouble="")
        kept = json.dumps(document(seen.cluster, self.expected, record))
        if self._folder is not None:
            try:
                keep_file(self._folder, kept)
            except OSError as error:
                self._log.warning("forecast_not_kept", detail=str(error))

    def _note(self, **changed: Any) -> None:
        past, expected = self._hindsight, self.expected
        starts = {} if expected is None else expected.starts
        self.status = ForecastStatus(
            at=None if expected is None else expected.at,
            jobs=sum(one.median_s is not None for one in starts.values()),
            coverage=past.coverage,
            error_s=past.error_s,
            past=len(past.settled),
            **{"seconds": self.status.seconds, "trouble": self.status.trouble, **changed},
        )


# -- The file -------------------------------------------------------------------------------------


_ROW: Final = attrgetter(*(one.name for one in fields(Start)))


def document(cluster: str, expected: Expected, record: dict[str, Any]) -> dict[str, Any]:
    """What the file holds."""
    return {
        "version": VERSION, "cluster": cluster, "at": expected.at,
        "starts": list(map(_ROW, expected.starts.values())),
        "behind": list(expected.behind), "cannot": list(expected.cannot.items()),
        "record": record,
    }  # fmt: skip


def keep_file(folder: Path, text: str) -> None:
    """Put it in place of the last one, whole. Raises OSError."""
    owner = folder.stat()
    write_whole(
        folder / FILE_NAME,
        text.encode(),
        prepare=lambda file: hand_to_folder_owner(file, owner),
    )


def read_file(folder: Path) -> tuple[str, Expected, Hindsight] | None:
    """Cluster, forecast and record; None = there is none that can be read."""
    path = folder / FILE_NAME
    try:
        data, _ = read_trusted(path, _MOST_BYTES, also=owner_of(folder))
        kept = json.loads(data)
        if kept["version"] != VERSION:
            return None
        starts = [_checked(Start(*row)) for row in kept["starts"]]
        expected = Expected(
            finite(kept["at"]),
            {one.job_id: one for one in starts},
            {job_id: place for place, job_id in enumerate(kept["behind"], start=len(starts) + 1)},
            dict(kept["cannot"]),
        )
        return str(kept["cluster"]), expected, Hindsight.read(kept["record"])
    except (*BUGS, MemoryError, RecursionError):
        return None  # it is made again within minutes


def _checked(start: Start) -> Start:
    """Raises TypeError, ValueError: it is damaged."""
    for seconds in (start.job_id, start.place, start.low_s, start.median_s, start.high_s):
        if seconds is not None:
            finite(seconds)
    return start
