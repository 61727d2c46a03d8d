"""What the daemon learns of run times: each look becomes submissions, starts and ends, in order.

The memory is filled once from sacct, in the background, or taken from the file that the last daemon
left and brought up to date from sacct. Nothing here stops a cycle: an error costs the predictions,
is logged and counted, and the memory is made again from what the disk has.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from rltuned.core.capacity import Capacity
from rltuned.core.limits import LimitMemory
from rltuned.core.memory import Job, JobKey, RunTimeMemory, SizeOf, gpus_of, key_of, partitions_of
from rltuned.core.pools import Sizes
from rltuned.daemon.logger import Log
from rltuned.domain.jobs import JobRun, RunNews
from rltuned.domain.snapshot import NO_CONTEXT, Context, RunTime, Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import JournalError, RltunedError
from rltuned.journal.store import LEARNED_FILE, Learned, keep_learned, read_learned
from rltuned.policies.files import read_archive
from rltuned.policies.predictor import feed, replay

SAVED_EVERY_S: Final = 600.0
FIRST_WAIT_S: Final = 3.0
"""So long the first look waits for sacct; a small site then has its predictions at once."""
STRIKES: Final = 3
"""So many errors, and there are no predictions until the next start."""
BUGS: Final = (
    ArithmeticError, AttributeError, LookupError, OSError, RltunedError, TypeError, ValueError,
)  # fmt: skip
"""What a bug here raises: it must cost no more than predictions. Anything else is the loop's."""
HISTORY_S: Final = 30 * 86_400.0
"""So far back sacct is asked."""
_NO_NEWS: Final = RunNews()
_MOST_BYTES: Final = 128 * 1024 * 1024
"""Of what was learned, unpacked: a full table has 30 MiB."""

History = Callable[[float, float], list[JobRun] | None]
"""Jobs that ended by themselves between two Unix times; None = no slurmdbd. See SlurmBackend."""


class Source(StrEnum):
    """Where the memory of this process began."""

    LOADING = "loading"
    """sacct is being asked: there are no predictions yet."""
    LOOKS = "looks"
    """Empty: the daemon's own looks alone."""
    SACCT = "sacct"
    FILE = "file"
    """The last daemon's file, with what sacct has since then."""
    OFF = "off"
    """Too many errors: there are no predictions."""


@dataclass(frozen=True, slots=True)
class RunTimesStatus:
    """For metrics and the status page. ends: jobs that it has learned from. error: mean |ln(run /
    predicted)| of the last ends; None = none was predicted. limit_share: what a limit counts in a
    plan. faults: errors of this process.
    """

    source: Source = Source.LOADING
    ends: int = 0
    kinds: int = 0
    error: float | None = None
    limit_share: float | None = None
    faults: int = 0
    trouble: str = ""


class RunTimeLearner:
    """Feeds a memory with what is seen, and keeps it on the disk. make: an empty memory. folder: of
    the journal; None = nothing is kept. history: asks sacct; None = it is not asked.
    salt: fingerprint of the salt of the kinds, for the file.
    """

    def __init__(
        self,
        make: Callable[[], RunTimeMemory],
        folder: Path | None,
        log: Log,
        *,
        history: History | None = None,
        salt: str = "",
    ) -> None:
        self._make, self._folder, self._log = make, folder, log
        self._history = history
        self._salt = salt
        self._loader: threading.Thread | None = None
        self._loaded: tuple[RunTimeMemory, Source, str] | None = None
        self._memory: RunTimeMemory | None = None
        self._waiting: list[JobRun] = []  # ended, and not fed to a memory yet
        self._cluster, self._seen_at, self._saved_at = "", 0.0, 0.0
        self._size_of: SizeOf = gpus_of
        self.status = RunTimesStatus()

    @property
    def memory(self) -> RunTimeMemory | None:
        """What can be asked for predictions; None = nothing yet, or no more."""
        return self._memory

    def look(
        self, seen: Snapshot, runs: RunNews = _NO_NEWS, context: Context = NO_CONTEXT
    ) -> Context:
        """Take in one look; the context with predictions. Never raises: faults are in status."""
        try:
            if self.status.source is not Source.OFF:
                self._size_of = _sizes(seen)
                self._waiting += runs.ended
                if self._is_ready(seen):
                    self._feed(seen, runs)
                    self._save(float(seen.taken_at))
                    return self._predicted(seen, context)
        except BUGS as error:
            self._fault(error)
        return context

    def of_running(self, seen: Snapshot) -> dict[JobId, RunTime]:
        """What is predicted of the whole runs of those that run."""
        memory = self._memory
        return memory.predicted(seen.running) if memory is not None and memory.is_known else {}

    def exchange(self, make: Callable[[], RunTimeMemory]) -> None:
        """Predict with another network from now on; what was learned stays."""
        self._make = make
        if self._memory is not None:
            self._memory.logits = make().logits

    def close(self) -> None:
        if self._memory is not None:
            self._save(self._seen_at + SAVED_EVERY_S)

    # -- the beginning ----------------------------------------------------------------------------

    def _is_ready(self, seen: Snapshot) -> bool:
        """Whether there is a memory of this cluster; the first call begins to make it."""
        if self._cluster != seen.cluster:
            self._cluster, self._memory, self._loaded = seen.cluster, None, None
            self._waiting = []
            at = float(seen.taken_at)
            self._loader = threading.Thread(
                target=self._load, args=(seen.cluster, at), name="run-times", daemon=True
            )
            self._loader.start()
            self._loader.join(FIRST_WAIT_S)
        if self._memory is None and self._loaded is not None:
            (memory, source, trouble), self._loaded = self._loaded, None
            self._memory, self._saved_at = memory, float(seen.taken_at)
            self._note(source=source, trouble=trouble)
            counts = {"ends": memory.ends, "kinds": len(memory)}
            self._log.info("run_times", source=source.value, **counts, trouble=trouble)
        return self._memory is not None

    def _empty(self) -> RunTimeMemory:
        memory = self._make()
        memory.size_of = self._size_of
        return memory

    def _load(self, cluster: str, now: float) -> None:
        """In a thread of its own: the file, then sacct; an error leaves what there is."""
        memory, since, why = self._empty(), now - HISTORY_S, list[str]()
        source = Source.LOOKS
        try:
            kept_at = self._restore(memory, cluster, now)
            if kept_at is not None:
                source, since = Source.FILE, max(since, kept_at)
        except (*BUGS, MemoryError) as error:
            why.append(f"what was learned is not used: {str(error) or type(error).__name__}")
            memory = self._empty()
        try:
            ended = None if self._history is None else self._history(since, now)
            if ended:
                replay(memory, ended)
            if ended is not None and source is Source.LOOKS:
                source = Source.SACCT
        except RltunedError as error:
            why.append(str(error))
        except BUGS as error:
            why.append(f"{type(error).__name__}: {error}")
            memory, source = self._empty(), Source.LOOKS
        if threading.current_thread() is self._loader:  # else another cluster is seen by now
            self._loaded = memory, source, "; ".join(why)

    def _restore(self, memory: RunTimeMemory, cluster: str, now: float) -> float | None:
        """Take over what the last file holds; when it was written. None = there is none."""
        found = None if self._folder is None else read_learned(self._folder)
        if found is None:
            return None
        about, body = found
        if (about.cluster, about.salt) != (cluster, self._salt) or about.seen_at > now:
            raise JournalError("it belongs to another cluster, salt or time")
        memory.restore(read_archive(Path(LEARNED_FILE), body, _MOST_BYTES))
        return about.seen_at

    # -- each look --------------------------------------------------------------------------------

    def _feed(self, seen: Snapshot, runs: RunNews) -> None:
        memory = self._memory
        if memory is None:
            return
        memory.size_of = self._size_of
        ended, self._waiting = self._waiting, []
        here: dict[JobKey, Job] = {key_of(job): job for job in seen.pending}
        here |= {key_of(job): job for job in seen.running}
        gone = (*runs.undecided, *(run.job for run in ended))
        memory.keep(here.keys() | {key_of(job) for job in gone})
        feed(memory, *memory.news(here), ended)
        memory.follow(here.values())
        self._seen_at = float(seen.taken_at)
        self._note()

    def _predicted(self, seen: Snapshot, context: Context) -> Context:
        memory = self._memory
        if memory is None:
            return context
        predicted = memory.predicted(seen.pending) if memory.is_known else {}
        return replace(context, run_times=predicted, limit_use=memory.limit_use)

    def _note(self, **changed: Any) -> None:
        memory = self._memory
        if memory is not None:
            error = None if math.isnan(memory.error) else float(memory.error)
            changed |= {"ends": memory.ends, "kinds": len(memory), "error": error}
            changed["limit_share"] = memory.limit_share
        self.status = replace(self.status, **changed)

    def _save(self, now: float) -> None:
        """Every SAVED_EVERY_S; a disk that cannot take it is logged and tried again then."""
        if (
            self._memory is None
            or self._folder is None
            or 0 <= now - self._saved_at < SAVED_EVERY_S
        ):
            return
        self._saved_at = now
        about = Learned(cluster=self._cluster, salt=self._salt, seen_at=self._seen_at)
        try:
            keep_learned(self._folder, about, self._memory.to_bytes())
        except JournalError as error:
            self._log.warning("run_times_not_kept", detail=str(error))
            self._note(trouble=str(error))

    def _fault(self, error: Exception) -> None:
        """Begin again with what the disk has, or not at all after STRIKES."""
        self._log.error("run_times_fault", exc_info=error)
        faults = self.status.faults + 1
        self._memory, self._cluster = None, ""
        self.status = RunTimesStatus(
            source=Source.OFF if faults >= STRIKES else Source.LOADING,
            faults=faults,
            trouble=f"{type(error).__name__}: {error}",
        )


class LimitUseLearner:
    """In place of predictions, where they are switched off: what jobs use of their limits, by the
    daemon's own looks alone.
    """

    def __init__(self) -> None:
        self._limits = LimitMemory()

    @property
    def status(self) -> None:
        """There is no memory."""
        return

    def look(
        self, seen: Snapshot, runs: RunNews = _NO_NEWS, context: Context = NO_CONTEXT
    ) -> Context:
        """Take in one look; the context with what was learned."""
        size_of = _sizes(seen)
        for run in runs.ended:
            job = run.job
            size = size_of(job.request, partitions_of(job))
            user = hash(job.user) if job.user else None
            self._limits.note(user, run.run_s, job.request.time_limit_s, size)
        return replace(context, limit_use=self._limits.use)

    def of_running(self, _: Snapshot) -> dict[JobId, RunTime]:
        """Nothing is predicted."""
        return {}

    def close(self) -> None:
        """Nothing is kept."""


def _sizes(seen: Snapshot) -> SizeOf:
    return Sizes(Capacity.of(seen)).of
