"""The daemon's memory of run times: it learns from jobs that end and predicts for those that wait.

It holds running numbers per kind of job (core/run_times) under salted digests, in a table of fixed
size: when that is full, the kinds whose last submission lies furthest back make room. Nothing in it
names a user or a job.
"""

import io
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from rltuned.core import run_times as runs
from rltuned.core.backlog import ALLOWED, LONGEST_S, note_use, use_of
from rltuned.core.features import LIMIT_FULL_S, planning_limit_s
from rltuned.domain.jobs import EndedJob, PendingJob, RunningJob
from rltuned.domain.snapshot import RunTime
from rltuned.domain.units import JobId

KINDS_MOST: Final = 150_000
"""20 MiB of numbers, and as much for their digests; twice that while room is made."""
KEPT_SHARE: Final = 0.75
"""Of the kinds, what a full table keeps."""
_USER, _TWIN = runs.KEYS.index("user"), runs.KEYS.index("twin")

Logits = Callable[[runs.Float32Array], runs.FloatArray]
"""(n, INPUTS) -> (n, BINS): the predictor's network."""
Job = PendingJob | RunningJob | EndedJob
JobKey = tuple[int, float]
"""Job id and submit time: Slurm hands out ids again."""


@dataclass(slots=True)
class _Known:
    """A job that waits or runs: kinds, prediction, its kin's errors until then. shown: the last
    answer, until a job of its user ends. taught: how many had, then.
    """

    slots: runs.IntArray
    limit_s: float
    predicted: runs.FloatArray
    before: runs.FloatArray
    started_s: float = math.nan
    shown: RunTime | None = None
    taught: int = 0


class RunTimeMemory:
    """What is known of run times, and of the jobs that wait or run now. error: mean |ln(run /
    predicted)| of about the last hundred ends; NaN = none was predicted.
    """

    def __init__(
        self,
        logits: Logits,
        *,
        salt: bytes = b"",
        most: int = KINDS_MOST,
        keys: Collection[str] = runs.KEYS,
    ) -> None:
        """Empty. salt: of the digests, at most 64 bytes. most: kinds remembered. keys: of KEYS."""
        self.logits, self._salt, self._keys = logits, salt, frozenset(keys)
        self._stats = np.zeros((most, runs.FIELDS))
        self._limits = np.zeros(runs.LIMIT_SUMS)
        self._use = np.zeros(2)
        self._slot_of: dict[int, int] = {}
        self._jobs: dict[JobKey, _Known] = {}
        self._taught: dict[int, int] = {}  # ends by hash of the user, to whom all kin belong
        self.ends, self.error = 0, math.nan

    def __len__(self) -> int:
        return len(self._slot_of)

    @property
    def limit_share(self) -> float:
        """What a limit counts in the plan of a job submitted now; see core/run_times."""
        return runs.limit_share(self._limits)

    @property
    def limit_use(self) -> float | None:
        """What jobs use of their limits, by GPU time; None = none has ended."""
        return use_of(self._use) if self._use[ALLOWED] > 0 else None

    def submit(self, jobs: Sequence[Job]) -> None:
        """Predict for jobs that are not known yet, in the order given: of submission."""
        new = [job for job in jobs if key_of(job) not in self._jobs]
        inputs = np.zeros((len(new), runs.INPUTS), dtype=np.float32)
        for job, row in zip(new, inputs, strict=True):
            self._jobs[key_of(job)] = self._meet(job, row)
        found = self.logits(inputs) if new else ()
        for job, logits in zip(new, found, strict=True):
            known = self._jobs[key_of(job)]
            runs.summarize(np.asarray(logits, dtype=np.float64), known.limit_s, known.predicted)
            known.predicted[runs.LIMIT_SHARE] = self.limit_share

    def start(self, jobs: Sequence[RunningJob]) -> None:
        """Those of the jobs that did not run before do now."""
        self.submit(jobs)
        for job in jobs:
            known = self._jobs[key_of(job)]
            if math.isnan(known.started_s):
                known.started_s = float(job.started_at)
                runs.note_start(self._stats, known.slots, known.started_s)

    def end(self, jobs: Sequence[EndedJob]) -> None:
        """The jobs ran to their end, in the order given. Those never seen before teach as well."""
        self.submit(jobs)
        for job in jobs:
            known = self._jobs.pop(key_of(job), None)
            if known is None:
                continue  # the same end twice
            self._stop(known)
            error = runs.error_of(job.run_s, known.predicted)
            runs.note_end(self._stats, known.slots, job.run_s, known.limit_s, error)
            runs.note_limit(self._limits, job.run_s, known.limit_s)
            note_ended(self._use, job)
            self.ends += 1
            self._taught[hash(job.user)] = self._taught.get(hash(job.user), 0) + 1
            share = max(0.01, 1.0 / self.ends)
            before = abs(error) if math.isnan(self.error) else self.error
            self.error = before + share * (abs(error) - before)

    def keep(self, jobs: Collection[JobKey]) -> None:
        """Forget the jobs that neither wait nor run any more, and teach nothing."""
        for gone in [key for key in self._jobs if key not in jobs]:
            self._stop(self._jobs.pop(gone))

    def predicted(self, jobs: Iterable[PendingJob]) -> dict[JobId, RunTime]:
        """What is predicted of jobs that wait, without those never submitted to this memory."""
        found: dict[JobId, RunTime] = {}
        for job in jobs:
            known = self._jobs.get(key_of(job))
            if known is None:
                continue
            taught = self._taught.get(hash(job.user), 0)
            if known.shown is None or known.taught != taught:
                known.shown, known.taught = self._shown(known), taught
            found[job.job_id] = known.shown
        return found

    def _shown(self, known: _Known) -> RunTime:
        limit_s, predicted = known.limit_s, known.predicted
        shift = runs.kin_shift(self._stats, known.slots, known.before)
        quantiles = (runs.quantile(predicted, place, shift, limit_s) for place in range(3))
        low_s, median_s, high_s = (_whole(math.expm1(x * runs.LOG_FULL)) for x in quantiles)
        user = int(known.slots[_USER])
        return RunTime(
            plan_s=_whole(runs.plan_s(predicted, shift, limit_s)),
            mean_s=_whole(runs.mean_s(predicted, shift, limit_s)),
            low_s=low_s,
            median_s=median_s,
            high_s=high_s,
            ends=int(self._stats[user, runs.COUNT]) if user >= 0 else 0,
        )

    def to_bytes(self) -> bytes:
        """The kinds, without the jobs: those are seen again at the next look."""
        digests = np.array(list(self._slot_of), dtype=np.int64)
        stats = self._stats[list(self._slot_of.values())].copy()
        # what runs is counted again when it is seen again
        stats[:, runs.RUNNING : runs.RUNNING + 2] = 0.0
        buffer = io.BytesIO()
        totals = np.array([self.ends, self.error])
        np.savez_compressed(
            buffer,
            digests=digests,
            stats=stats,
            limits=self._limits,
            totals=totals,
            use=self._use,
        )
        return buffer.getvalue()

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what to_bytes kept. Raises ValueError: another release or size."""
        names, none = ("digests", "stats", "limits", "totals"), np.zeros(0)
        digests, stats, limits, totals = found = [arrays.get(name, none) for name in names]
        fits = stats.shape == (len(digests), runs.FIELDS) and totals.shape == (2,)
        fits = fits and limits.shape == (runs.LIMIT_SUMS,) and bool(np.isfinite(limits).all())
        fits = fits and len(np.unique(digests)) == len(digests) <= len(self._stats)
        if not fits or not np.isfinite(stats).all():
            shown = (f"{n} {one.shape}" for n, one in zip(names, found, strict=True))
            raise ValueError(f"arrays of another shape, or not finite: {', '.join(shown)}")
        self._slot_of = {digest: slot for slot, digest in enumerate(digests.tolist())}
        self._stats[: len(digests)] = stats
        self._limits = limits.copy()
        use = arrays.get("use", np.zeros(2))  # release 0.2.0 kept none
        self._use = use.copy() if use.shape == (2,) and np.isfinite(use).all() else np.zeros(2)
        self.ends, self.error = int(totals[0]), float(totals[1])

    def _meet(self, job: Job, row: runs.Float32Array) -> _Known:
        """Describe a job as it is submitted; row: (INPUTS,) to fill."""
        at_s = float(job.submitted_at or 0.0)
        slots = self._slots(job, at_s)
        limit_s = min(planning_limit_s(job.request.time_limit_s), LIMIT_FULL_S)
        known = _Known(slots, limit_s, np.zeros(runs.SUMMARY), np.zeros((len(runs.KIN), 2)))
        runs.describe(self._stats, slots, at_s, limit_s, float(job.request.size.gpus), row)
        runs.errors_of(self._stats, slots, known.before)
        runs.note_submit(self._stats, slots, at_s)
        return known

    def _stop(self, known: _Known) -> None:
        if not math.isnan(known.started_s):
            runs.note_stop(self._stats, known.slots, known.started_s)

    def _slots(self, job: Job, at_s: float) -> runs.IntArray:
        """(KEYS,) rows of the table; the burst is that of its twins."""
        if len(self._slot_of) + len(runs.KEYS) > len(self._stats):
            self._make_room()
        slots = np.full(len(runs.KEYS), -1, dtype=np.int64)
        for place, (key, kind) in enumerate(kinds_of(job).items()):
            if kind is None or key not in self._keys:
                continue
            shared = kind
            if key == "burst" and slots[_TWIN] >= 0:
                shared = (*kind, self._burst(int(slots[_TWIN]), at_s))
            digest = self._digest(key, shared)
            slots[place] = self._slot_of.setdefault(digest, len(self._slot_of))
        return slots

    def _burst(self, twin: int, at_s: float) -> float:
        """When the burst began that a twin submitted now belongs to."""
        if at_s - self._stats[twin, runs.SUBMITTED] > runs.BURST_S:
            self._stats[twin, runs.BURST] = at_s
        return float(self._stats[twin, runs.BURST])

    def _digest(self, key: str, kind: tuple[object, ...]) -> int:
        text = "\0".join((key, *map(str, kind)))
        made = blake2b(text.encode("utf-8", "replace"), digest_size=8, key=self._salt)
        return int.from_bytes(made.digest(), "big", signed=True)

    def _make_room(self) -> None:
        """Forget the kinds of the oldest submissions; jobs that wait or run keep theirs."""
        used = np.array(list(self._slot_of.values()))
        digests = np.array(list(self._slot_of), dtype=np.int64)
        recent = self._stats[used, runs.SUBMITTED]
        in_use = np.zeros(len(self._stats), dtype=bool)
        for known in self._jobs.values():
            in_use[known.slots[known.slots >= 0]] = True
        recent[in_use[used]] = math.inf
        kept = np.sort(np.argsort(-recent, kind="stable")[: int(len(used) * KEPT_SHARE)])
        place = np.full(len(self._stats) + 1, -1, dtype=np.int64)
        place[used[kept]] = np.arange(len(kept))
        stats = np.zeros_like(self._stats)
        stats[: len(kept)] = self._stats[used[kept]]
        self._stats = stats
        self._slot_of = dict(zip(digests[kept].tolist(), range(len(kept)), strict=True))
        for known in self._jobs.values():
            known.slots, known.shown = place[known.slots], None


def note_ended(use: runs.FloatArray, job: EndedJob) -> None:
    """Note in the sums (2,) of core/backlog what a job used of its limit."""
    request = job.request
    length_s = min(planning_limit_s(request.time_limit_s), LONGEST_S)
    note_use(use, job.run_s, length_s, float(max(request.size.gpus, 1)))


def _whole(seconds: float) -> float:
    """Whole seconds, one at least: a journal keeps them of every job."""
    return float(max(1, round(seconds)))


def key_of(job: Job) -> JobKey:
    """What tells jobs apart."""
    return job.job_id, job.submitted_at or 0.0


def kinds_of(job: Job) -> dict[str, tuple[object, ...] | None]:
    """Each of KEYS, in their order, with what jobs of its kind share; None = not known."""
    request, user, kinds = job.request, job.user, job.kinds
    gpus, limit_s = request.size.gpus, request.time_limit_s
    partition = job.partitions[0] if isinstance(job, PendingJob) else job.partition
    if isinstance(job, PendingJob):
        array = job.array.array_job_id if job.array is not None else None
    else:
        array = job.array_job_id

    def of_user(*values: object) -> tuple[object, ...] | None:
        return (user, *values) if user and all(values) else None

    twin = (user, job.account, partition, gpus, limit_s)
    return {
        "all": (),
        "gpus": (gpus,),
        "gpus_limit": None if limit_s is None or math.isinf(limit_s) else (gpus, limit_s),
        "account": (job.account,) if job.account else None,
        "account_gpus": (job.account, gpus) if job.account else None,
        "user": of_user(),
        "user_gpus": (user, gpus) if user else None,
        "twin": twin,
        "burst": twin,
        "partition": of_user(partition),
        "qos": of_user(job.qos),
        "gpu_type": of_user(request.gpu_types),
        "array": None if array is None else (array,),
        "name": of_user(kinds.name),
        "command": of_user(kinds.command),
        "work_dir": of_user(kinds.work_dir),
        "submit_line": of_user(kinds.submit_line),
    }
