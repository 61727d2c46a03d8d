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
    """Feeds a memory with what is seen, and keeps it on the disk. make: an empty memory; None =
    nothing is predicted, and what jobs use of their limits is learned by the looks alone. folder:
    of the journal; None = nothing is kept. history: asks sacct; None = it is not asked. salt:
    fingerprint of the salt of the kinds, for the file.
    """

    def __init__(
        self,
        make: Callable[[], RunTimeMemory] | None,
        folder: Path | None,
        log: Log,
        *,
        history: History | None = None,
        salt: str = "",
    ) -> None:
        self._make, self._folder, self._log = make, folder, log
        self._history, self._salt = history, salt
        self._loader: threading.Thread | None = None
        self._loaded: tuple[RunTimeMemory, Source, str] | None = None
        self._limits, self.predicts = LimitMemory(), make is not None
        self.memory: RunTimeMemory | None = None  # what can be asked for predictions
        self._waiting: list[JobRun] = []  # ended, and not fed to a memory yet
        self._cluster, self._seen_at, self._saved_at = "", 0.0, 0.0
        self._size_of: SizeOf = gpus_of
        self.status = RunTimesStatus(Source.OFF if make is None else Source.LOADING)

    def look(
        self, seen: Snapshot, runs: RunNews = _NO_NEWS, context: Context = NO_CONTEXT
    ) -> Context:
        """Take in one look; the context with predictions. Never raises: faults are in status."""
        self._size_of = Sizes(Capacity.of(seen)).of
        if self._make is None:
            for run in runs.ended:
                user = hash(run.job.user) if run.job.user else None
                size = self._size_of(run.job.request, partitions_of(run.job))
                self._limits.note(user, run.run_s, run.job.request.time_limit_s, size)
            return replace(context, limit_use=self._limits.use)
        try:
            if self.status.source is not Source.OFF:
                self._waiting += runs.ended
                memory = self._ready(self._make, seen)
                if memory is not None:
                    self._feed(memory, seen, runs)
                    self._save(memory, float(seen.taken_at))
                    known = memory.predicted(seen.pending) if memory.is_known else {}
                    return replace(context, run_times=known, limit_use=memory.limit_use)
        except BUGS as error:
            self._fault(error)
        return context

    def of_running(self, seen: Snapshot) -> dict[JobId, RunTime]:
        """What is predicted of the whole runs of those that run."""
        memory = self.memory
        return memory.predicted(seen.running) if memory is not None and memory.is_known else {}

    def exchange(self, make: Callable[[], RunTimeMemory]) -> None:
        """Predict with another network from now on; what was learned stays."""
        if self._make is not None:
            self._make = make
            if self.memory is not None:
                self.memory.logits = make().logits

    def close(self) -> None:
        if self.memory is not None:
            self._save(self.memory, self._seen_at + SAVED_EVERY_S)

    # -- the beginning ----------------------------------------------------------------------------

    def _ready(self, make: Callable[[], RunTimeMemory], seen: Snapshot) -> RunTimeMemory | None:
        """The memory of this cluster; the first call begins to make it. None = it is not ready."""
        if self._cluster != seen.cluster:
            self._cluster, self.memory, self._loaded = seen.cluster, None, None
            self._waiting = []
            self._loader = threading.Thread(
                target=self._load, args=(make, seen.cluster, float(seen.taken_at)),
                name="run-times", daemon=True,
            )  # fmt: skip
            self._loader.start()
            self._loader.join(FIRST_WAIT_S)
        if self.memory is None and self._loaded is not None:
            (self.memory, source, trouble), self._loaded = self._loaded, None
            self._saved_at = float(seen.taken_at)
            self._note(source=source, trouble=trouble)
            counts = {"ends": self.memory.ends, "kinds": len(self.memory)}
            self._log.info("run_times", source=source.value, **counts, trouble=trouble)
        return self.memory

    def _load(self, make: Callable[[], RunTimeMemory], cluster: str, now: float) -> None:
        """In a thread of its own: the file, then sacct; an error leaves what there is."""
        memory, source, since, why = self._empty(make), Source.LOOKS, now - HISTORY_S, list[str]()
        try:
            if (kept_at := self._restored(memory, cluster, now)) is not None:
                source, since = Source.FILE, max(since, kept_at)
        except (*BUGS, MemoryError) as error:
            why.append(f"what was learned is not used: {str(error) or type(error).__name__}")
            memory = self._empty(make)
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
            memory, source = self._empty(make), Source.LOOKS
        if threading.current_thread() is self._loader:  # else another cluster is seen by now
            self._loaded = memory, source, "; ".join(why)

    def _empty(self, make: Callable[[], RunTimeMemory]) -> RunTimeMemory:
        memory = make()
        memory.size_of = self._size_of
        return memory

    def _restored(self, memory: RunTimeMemory, cluster: str, now: float) -> float | None:
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

    def _feed(self, memory: RunTimeMemory, seen: Snapshot, runs: RunNews) -> None:
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

    def _note(self, **changed: Any) -> None:
        if (memory := self.memory) is not None:
            error = None if math.isnan(memory.error) else float(memory.error)
            changed |= {"ends": memory.ends, "kinds": len(memory), "error": error}
            changed["limit_share"] = memory.limit_share
        self.status = replace(self.status, **changed)

    def _save(self, memory: RunTimeMemory, now: float) -> None:
        """Every SAVED_EVERY_S; a disk that cannot take it is logged and tried again then."""
        if self._folder is None or 0 <= now - self._saved_at < SAVED_EVERY_S:
            return
        self._saved_at = now
        about = Learned(cluster=self._cluster, salt=self._salt, seen_at=self._seen_at)
        try:
            keep_learned(self._folder, about, memory.to_bytes())
        except JournalError as error:
            self._log.warning("run_times_not_kept", detail=str(error))
            self._note(trouble=str(error))

    def _fault(self, error: Exception) -> None:
        """Begin again with what the disk has, or not at all after STRIKES."""
        self._log.error("run_times_fault", exc_info=error)
        faults, self.memory, self._cluster = self.status.faults + 1, None, ""
        source = Source.OFF if faults >= STRIKES else Source.LOADING
        self.status = RunTimesStatus(
            source=source, faults=faults, trouble=f"{type(error).__name__}: {error}"
        )
