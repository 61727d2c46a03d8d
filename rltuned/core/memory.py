"""The daemon's memory of run times: it learns from jobs that end and predicts for those that wait.

It holds running numbers per kind of job (core/run_times) in a table of fixed size, and what is
known of time limits (core/limits). Nothing in it names a user or a job.
"""

import io
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from rltuned.core import run_times as runs
from rltuned.core.cluster import BoolArray
from rltuned.core.features import LIMIT_FULL_S, planning_limit_s
from rltuned.core.limits import LimitMemory
from rltuned.domain.jobs import JobRun, PendingJob, Request, RunningJob
from rltuned.domain.kinds import Kinds
from rltuned.domain.snapshot import RunTime
from rltuned.domain.units import GpuType, JobId

# What a job is predicted by: what it asks for, and the kinds that it belongs to by that.


Job = PendingJob | RunningJob
JobKey = tuple[int, float]
"""Job id and submit time: Slurm hands out ids again."""


class Asked(NamedTuple):
    """What a job is predicted by. gpus: as it asks for them. array: its number; None = none.
    limit_s: None = not known. request, partitions: what its size follows from.
    """

    user: str
    account: str
    partition: str
    qos: str
    gpus: int
    gpu_types: tuple[GpuType, ...]
    limit_s: float | None
    array: JobId | None
    kinds: Kinds
    request: Request
    partitions: tuple[str, ...]

    @property
    def planned_s(self) -> float:
        """The limit as a number."""
        return min(planning_limit_s(self.limit_s), LIMIT_FULL_S)


def key_of(job: Job) -> JobKey:
    """What tells jobs apart."""
    return job.job_id, job.submitted_at or 0.0


def partitions_of(job: Job) -> tuple[str, ...]:
    """That it waits in, or ran in."""
    return job.partitions if isinstance(job, PendingJob) else (job.partition,)


def asked_of(job: Job) -> Asked:
    """What a job is predicted by."""
    request, partitions = job.request, partitions_of(job)
    if isinstance(job, PendingJob):
        array = None if job.array is None else job.array.array_job_id
    else:
        array = job.array_job_id
    of_user = job.user, job.account, partitions[0], job.qos
    size = request.size.gpus, request.gpu_types, request.time_limit_s
    return Asked(*of_user, *size, array, job.kinds, request, partitions)


def kinds_of(asked: Asked) -> dict[str, tuple[object, ...] | None]:
    """Each of KEYS, in their order, with what jobs of its kind share; None = not known."""
    user, account, partition, qos, gpus, gpu_types, limit_s, array, kinds, *_ = asked

    def of_user(*values: object) -> tuple[object, ...] | None:
        return (user, *values) if user and all(values) else None

    twin = (user, account, partition, gpus, limit_s)
    return {
        "all": (),
        "gpus": (gpus,),
        "gpus_limit": (gpus, limit_s) if limit_s and limit_s < LIMIT_FULL_S else None,
        "account": (account,) if account else None,
        "account_gpus": (account, gpus) if account else None,
        "user": of_user(),
        "user_gpus": (user, gpus) if user else None,
        "twin": twin,
        "burst": twin,
        "partition": of_user(partition),
        "qos": of_user(qos),
        "gpu_type": of_user(gpu_types),
        "array": None if array is None else (array,),
        "name": of_user(kinds.name),
        "command": of_user(kinds.command),
        "work_dir": of_user(kinds.work_dir),
        "submit_line": of_user(kinds.submit_line),
    }


# The kinds of jobs that a memory of run times knows: rows of running numbers under salted digests.
#
# The table has a fixed size. When it is full, kinds of which no job has ended make room, then of
# the users who have the most kinds those whose last submission lies furthest back: no user takes
# the room of others. Nothing in it names a user or a job.


KINDS_MOST: Final = 150_000
"""24 MiB of numbers, and as much for their digests; twice that while room is made."""
KEPT_SHARE: Final = 0.75
"""Of the kinds, what a full table keeps."""
NOBODY: Final = 0
"""In place of a user's digest, where kinds are shared or the user is not known."""
_LONG_AGO: Final = 1_000.0
"""After so many shares of others, nothing of a user's share is left."""


class KindTable:
    """stats: (most, FIELDS) of core/run_times, a row for each kind."""

    def __init__(self, most: int, salt: bytes) -> None:
        """Empty. salt: of the digests, at most 64 bytes."""
        self.stats = np.zeros((most, runs.FIELDS))
        self._salt = salt
        self._owners = np.zeros(most, dtype=np.int64)
        self._rows: dict[int, int] = {}
        self._clock = 0.0  # of new kinds: later than any share of one that was forgotten

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        """Whether the kinds of one more job might not fit."""
        return len(self._rows) + runs.SLOTS > len(self.stats)

    def digest(self, key: str, kind: tuple[object, ...]) -> int:
        text = "\0".join((key, *map(str, kind)))
        made = blake2b(text.encode("utf-8", "replace"), digest_size=8, key=self._salt)
        return int.from_bytes(made.digest(), "big", signed=True)

    def user(self, name: str) -> int:
        """What stands for a user."""
        return self.digest("user", (name,)) if name else NOBODY

    def row(self, digest: int, owner: int) -> int:
        """Of a kind; a new one is its owner's and empty."""
        row = self._rows.get(digest)
        if row is None:
            row = self._rows[digest] = len(self._rows)
            self._owners[row] = owner
            self.stats[row, runs.CLOCK] = self._clock
        return row

    def make_room(self, in_use: BoolArray) -> runs.IntArray:
        """Forget kinds. in_use: (most,) those of jobs that wait or run, which their user keeps the
        longest. Returns (most + 1,): the new rows of old ones, -1 = forgotten.
        """
        self._clock = self._later()
        used = np.array(list(self._rows.values()))
        digests = np.array(list(self._rows), dtype=np.int64)
        recent, owners = self.stats[used, runs.SUBMITTED], self._owners[used]
        recent[in_use[used]] = math.inf
        rank = _places_within(owners, recent)
        rank[(self.stats[used, runs.COUNT] == 0) & ~in_use[used]] = len(used)
        kept = np.sort(np.argsort(rank, kind="stable")[: int(len(used) * KEPT_SHARE)])
        place = np.full(len(self.stats) + 1, -1, dtype=np.int64)
        place[used[kept]] = np.arange(len(kept))
        stats, owned = np.zeros_like(self.stats), np.zeros_like(self._owners)
        stats[: len(kept)], owned[: len(kept)] = self.stats[used[kept]], owners[kept]
        self.stats, self._owners = stats, owned
        self._rows = dict(zip(digests[kept].tolist(), range(len(kept)), strict=True))
        return place

    def _later(self) -> float:
        return float(self.stats[:, runs.CLOCK].max(initial=0.0)) + _LONG_AGO

    def arrays(self) -> dict[str, np.ndarray]:
        """What `restore` takes, without what runs: that is counted when it is seen again."""
        rows = list(self._rows.values())
        stats = self.stats[rows]
        stats[:, runs.RUNNING : runs.RUNNING + 2] = 0.0
        digests = np.array(list(self._rows), dtype=np.int64)
        return {"digests": digests, "owners": self._owners[rows], "stats": stats}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` gave. Raises ValueError: another release or size."""
        names, none = ("digests", "owners", "stats"), np.zeros(0)
        digests, owners, stats = found = [arrays.get(name, none) for name in names]
        fits = stats.shape == (len(digests), runs.FIELDS) and owners.shape == digests.shape
        fits = fits and len(np.unique(digests)) == len(digests) <= len(self.stats)
        if not fits or not np.isfinite(stats).all():
            shown = (f"{n} {one.shape}" for n, one in zip(names, found, strict=True))
            raise ValueError(f"arrays of another shape, or not finite: {', '.join(shown)}")
        self._rows = {digest: row for row, digest in enumerate(digests.tolist())}
        self.stats[: len(digests)], self._owners[: len(digests)] = stats, owners
        self._clock = self._later()


def _places_within(owners: runs.IntArray, recent: runs.FloatArray) -> runs.IntArray:
    """(n,) the place of each among those of its owner, the most recent first."""
    order = np.lexsort((-recent, owners))
    begins = np.flatnonzero(np.append(True, np.diff(owners[order]) != 0))
    sizes = np.diff(begins, append=len(owners))
    found = np.empty(len(owners), dtype=np.int64)
    found[order] = np.arange(len(owners)) - np.repeat(begins, sizes)
    return found


_USER: Final = runs.KEYS.index("user")
_ARRAY: Final = runs.KEYS.index("array")

LEAST_ENDS: Final = 30
"""Until so many of the site's jobs have ended, those of one user counting for no more than all
others' together, orders go by limits: a guess from other clusters alone orders jobs worse than
their limits do. From about here on it orders them better in most of the parts of four public traces
that were tried (docs/results.md)."""
SizeOf = Callable[[Request, tuple[str, ...]], float]
"""What a request takes away from others in these partitions, in GPUs; see core/pools."""
Logits = Callable[[runs.Float32Array], runs.FloatArray]
"""(n, INPUTS) -> (n, BINS): the predictor's network."""


@dataclass(slots=True)
class _Known:
    """A job that waits or runs: what it asks for, its kinds, what the predictor read of it and
    answered, its kin's errors until then. earlier: the last submission of each kind before it.
    shown: the last answer, until a job of its user ends. learned: how many had, then.
    """

    asked: Asked
    slots: runs.IntArray
    inputs: runs.Float32Array
    predicted: runs.FloatArray
    before: runs.FloatArray
    earlier: runs.FloatArray
    started_s: float = math.nan
    shown: RunTime | None = None
    learned: int = 0


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
        """Empty. salt: of the digests, at most 64 bytes. most: kinds remembered. keys: of KEYS.
        size_of may be set to what knows the nodes.
        """
        self.logits, self._keys = logits, frozenset(keys)
        self.size_of: SizeOf = gpus_of
        self._kinds, self._limits = KindTable(most, salt), LimitMemory()
        self._jobs: dict[JobKey, _Known] = {}
        self._learned: dict[int, int] = {}  # ends by hash of the user, to whom all kin belong
        self.ends, self.error = 0, math.nan

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def is_known(self) -> bool:
        """Whether enough jobs of this site have ended to go by what is predicted."""
        return self._limits.ends >= LEAST_ENDS

    @property
    def limit_share(self) -> float:
        """What a limit counts in the plan of a job submitted now; see core/limits."""
        return self._limits.share

    @property
    def limit_use(self) -> float | None:
        """What jobs use of their limits, by GPU time; None = none has ended."""
        return self._limits.use

    def submit(self, jobs: Sequence[Job]) -> None:
        """Predict for jobs that are not known yet, in the order given: of submission."""
        met: list[_Known] = []
        for job in jobs:
            if key_of(job) not in self._jobs:
                several = isinstance(job, PendingJob) and job.array is not None
                known = self._meet(asked_of(job), _came_s(job), several=several)
                self._jobs[key_of(job)] = known
                known.predicted[runs.LIMIT_SHARE] = self.limit_share
                met.append(known)
        self._predict(met)

    def news(self, jobs: Mapping[JobKey, Job]) -> tuple[list[Job], list[RunningJob]]:
        """Those that are not known yet, and those of which the start is not."""
        met = [(job, self._jobs.get(key)) for key, job in jobs.items()]
        began = (
            job
            for job, known in met
            if isinstance(job, RunningJob) and (known is None or math.isnan(known.started_s))
        )
        return [job for job, known in met if known is None], list(began)

    def follow(self, jobs: Iterable[Job]) -> None:
        """Predict again for the known jobs that ask for something else by now: as if it had been
        theirs from the beginning, for all that is known of those kinds now.
        """
        met: list[_Known] = []
        for job in jobs:
            known = self._jobs.get(key_of(job))
            if known is not None and (asked := _asks_now(known, job)) != known.asked:
                self._meet_again(known, asked, _came_s(job))
                met.append(known)
        self._predict(met)

    def start(self, jobs: Sequence[RunningJob]) -> None:
        """Those of the jobs that did not run before do now."""
        self.submit(jobs)
        for job in jobs:
            known = self._jobs[key_of(job)]
            if math.isnan(known.started_s):
                known.started_s = float(job.started_at)
                runs.note_start(self._stats, known.slots, known.started_s)

    def end(self, ended: Sequence[JobRun]) -> None:
        """The jobs ran to their end, in the order given. Those never seen before count as well."""
        self.submit([run.job for run in ended])
        for run in ended:
            job = run.job
            known = self._jobs.pop(key_of(job), None)
            if known is None:
                continue  # the same end twice
            self._stop(known)
            error = runs.error_of(run.run_s, known.predicted)
            limit_s = known.asked.planned_s
            runs.note_end(self._stats, known.slots, run.run_s, limit_s, error)
            size = self.size_of(job.request, partitions_of(job))
            user = self._kinds.user(job.user) if job.user else None
            self._limits.note(user, run.run_s, job.request.time_limit_s, size)
            self.ends += 1
            self._learned[hash(job.user)] = self._learned.get(hash(job.user), 0) + 1
            share = max(0.01, 1.0 / self.ends)
            before = abs(error) if math.isnan(self.error) else self.error
            self.error = before + share * (abs(error) - before)

    def keep(self, jobs: Collection[JobKey]) -> None:
        """Forget the jobs that neither wait nor run any more, and learn nothing from them."""
        for gone in [key for key in self._jobs if key not in jobs]:
            self._stop(self._jobs.pop(gone))

    def predicted(self, jobs: Iterable[Job]) -> dict[JobId, RunTime]:
        """What is predicted of whole run times, without jobs never submitted to this memory."""
        found: dict[JobId, RunTime] = {}
        for job in jobs:
            known = self._jobs.get(key_of(job))
            if known is None:
                continue
            learned = self._learned.get(hash(job.user), 0)
            if known.shown is None or known.learned != learned:
                known.shown, known.learned = self._shown(known), learned
            found[job.job_id] = known.shown
        return found

    def _shown(self, known: _Known) -> RunTime:
        limit_s, predicted = known.asked.planned_s, known.predicted
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
        totals = np.array([self.ends, self.error])
        buffer = io.BytesIO()
        arrays = self._kinds.arrays() | self._limits.arrays() | {"totals": totals}
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        return buffer.getvalue()

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what to_bytes kept. Raises ValueError: another release or size."""
        totals = arrays.get("totals", np.zeros(0))
        if totals.shape != (2,):
            raise ValueError(f"totals of another shape: {totals.shape}")
        self._limits.restore(arrays)
        self._kinds.restore(arrays)
        self.ends, self.error = int(totals[0]), float(totals[1])

    def _meet(self, asked: Asked, at_s: float, *, several: bool) -> _Known:
        """Describe a job as it is submitted; an array, as all but the first of so many jobs are."""
        known = _Known(
            asked=asked,
            slots=self._slots(asked, at_s),
            inputs=np.zeros(runs.INPUTS, dtype=np.float32),
            predicted=np.zeros(runs.SUMMARY),
            before=np.zeros((len(runs.KIN), 2)),
            earlier=np.zeros(runs.SLOTS),
        )
        self._describe(known, at_s)
        if several:
            earlier, slots = known.earlier, known.slots.copy()
            slots[_ARRAY] = -1  # other jobs have no such kind
            runs.note_submit(self._stats, slots, at_s)
            self._describe(known, at_s)
            known.earlier = earlier
        runs.note_submit(self._stats, known.slots, at_s)
        return known

    def _meet_again(self, known: _Known, asked: Asked, at_s: float) -> None:
        """Describe a known job as what it asks for now; its other kinds stay as it met them."""
        was = replace(known, inputs=known.inputs.copy(), before=known.before.copy())
        self._stop(known)
        slots = self._slots(asked, at_s)
        same = slots == known.slots
        self._withdraw(known, ~same, at_s)
        known.asked, known.slots, known.shown = asked, slots, None
        self._describe(known, at_s)
        of_kinds = same[: len(runs.KEYS)]
        _of_kinds(known.inputs)[of_kinds] = _of_kinds(was.inputs)[of_kinds]
        known.before[same[runs.KIN]] = was.before[same[runs.KIN]]
        known.earlier[same] = was.earlier[same]
        new = slots[~same & (slots >= 0)]
        # others of these kinds may have been submitted since
        self._stats[new, runs.SUBMITTED] = np.maximum(self._stats[new, runs.SUBMITTED], at_s)
        if not math.isnan(known.started_s):
            runs.note_start(self._stats, slots, known.started_s)

    def _withdraw(self, known: _Known, left: BoolArray, at_s: float) -> None:
        """It was not submitted to the kinds that it has left, if none was since. left: (SLOTS,)."""
        for slot, earlier_s in zip(known.slots[left], known.earlier[left], strict=True):
            if slot >= 0 and self._stats[slot, runs.SUBMITTED] == at_s:
                self._stats[slot, runs.SUBMITTED] = earlier_s

    def _describe(self, known: _Known, at_s: float) -> None:
        asked, slots = known.asked, known.slots
        size = self.size_of(asked.request, asked.partitions) if asked.gpus else 0.0
        runs.describe(self._stats, slots, at_s, asked.planned_s, size, known.inputs)
        runs.errors_of(self._stats, slots, known.before)
        known.earlier = np.where(slots >= 0, self._stats[slots, runs.SUBMITTED], 0.0)

    def _predict(self, met: Sequence[_Known]) -> None:
        found = self.logits(np.stack([known.inputs for known in met])) if met else ()
        for known, logits in zip(met, found, strict=True):
            planned_s = known.asked.planned_s
            runs.summarize(np.asarray(logits, dtype=np.float64), planned_s, known.predicted)
            known.predicted[runs.FLOOR] = runs.floor_of(self._stats, known.slots, planned_s)

    def _stop(self, known: _Known) -> None:
        if not math.isnan(known.started_s):
            runs.note_stop(self._stats, known.slots, known.started_s)

    def _slots(self, asked: Asked, at_s: float) -> runs.IntArray:
        """(SLOTS,) rows of the table; the burst is that of its twins."""
        if self._kinds.is_full:
            self._make_room()
        kinds, user = self._kinds, self._kinds.user(asked.user)
        slots = np.full(runs.SLOTS, -1, dtype=np.int64)
        for place, (key, kind) in enumerate(kinds_of(asked).items()):
            if kind is None or key not in self._keys:
                continue
            shared = kind
            if key == "burst" and slots[runs.TWIN] >= 0:
                shared = (*kind, self._burst(int(slots[runs.TWIN]), at_s))
            owner = NOBODY if place < runs.SHARED else user
            slots[place] = kinds.row(kinds.digest(key, shared), owner)
            part = int(runs.PARTS[place]) if place < runs.SHARED and asked.user else 0
            if part >= len(runs.KEYS):
                own = kinds.digest(key, ("part", asked.user, *kind))
                slots[part] = kinds.row(own, user)
        return slots

    def _burst(self, twin: int, at_s: float) -> float:
        """When the burst began that a twin submitted at that time belongs to."""
        kind = self._stats[twin]
        if at_s - kind[runs.SUBMITTED] > runs.BURST_S:
            kind[runs.BURST] = at_s
        elif kind[runs.BURST] - at_s > runs.BURST_S:
            return at_s  # it became a twin after the last burst, and was submitted before
        return float(kind[runs.BURST])

    def _make_room(self) -> None:
        in_use = np.zeros(len(self._stats), dtype=bool)
        for known in self._jobs.values():
            in_use[known.slots[known.slots >= 0]] = True
        place = self._kinds.make_room(in_use)
        for known in self._jobs.values():
            had, known.slots, known.shown = known.slots, place[known.slots], None
            # without the user's part, a job would count as one of no known user
            lost = np.zeros(runs.SLOTS, dtype=bool)
            lost[: runs.SHARED] = (had[runs.PARTS] >= 0) & (known.slots[runs.PARTS] < 0)
            if not math.isnan(known.started_s):
                runs.note_stop(self._stats, known.slots[lost], known.started_s)
            known.slots[lost] = -1

    @property
    def _stats(self) -> runs.FloatArray:
        return self._kinds.stats


def gpus_of(request: Request, _: tuple[str, ...]) -> float:
    """The size of a request where the nodes are not known."""
    return float(max(request.size.gpus, 1))


def _whole(seconds: float) -> float:
    """Whole seconds, one at least: a journal keeps them of every job."""
    return float(max(1, round(seconds)))


def _came_s(job: Job) -> float:
    return float(job.submitted_at or 0.0)


def _asks_now(known: _Known, job: Job) -> Asked:
    """Of a running job only the limit moves: the rest may be what Slurm gave it."""
    if isinstance(job, PendingJob):
        return asked_of(job)
    limit_s = job.request.time_limit_s
    return known.asked if limit_s is None else known.asked._replace(limit_s=limit_s)


def _of_kinds(inputs: runs.Float32Array) -> runs.Float32Array:
    """(KEYS, SIGNS) of the inputs (INPUTS,), where they are."""
    return inputs[runs.REQUEST_SIGNS :].reshape(len(runs.KEYS), runs.SIGNS)
