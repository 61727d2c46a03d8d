"""GPUs, work and waits of one cycle, added up: for the page, the metrics and the journal.

No sum names a job or a user.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final, Literal

from rltuned.core.decide import Decision
from rltuned.core.features import StateMatrix, encode
from rltuned.core.pools import waiting_tasks
from rltuned.core.select import Reservations, cannot_start
from rltuned.daemon.canary.monitor import CanaryStatus
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot

GpuState = Literal["used", "free", "down"]
GPU_STATES: Final[tuple[GpuState, ...]] = ("used", "free", "down")
MOST_WAITS: Final = 200
"""Waits that are kept of one cycle; of more, evenly chosen ones."""
NO_TYPE: Final = "gpu"
"""How GPUs without a type are named."""


@dataclass(frozen=True, slots=True)
class Sums:
    """gpus: by state and type; down = on nodes that start no jobs. Of the jobs that could start:
    wanted: GPUs, by the first partition that a job names; backlog_s: by it too, seconds of expected
    work for the GPUs that they could run on; waiting: their number, by core/pools.waiting_tasks;
    longest_s: the longest wait. work_s: of all for all GPUs; None = not known. waits_s: of the jobs
    that started since the last cycle. off: share of the partitions in an off block.
    """

    gpus: Mapping[tuple[GpuState, str], int]
    wanted: Mapping[str, int]
    waiting: int
    longest_s: float
    backlog_s: Mapping[str, float] = field(default_factory=dict)
    work_s: float | None = None
    waits_s: tuple[float, ...] = ()
    started: int = 0
    off: float = 0.0

    def in_state(self, state: GpuState) -> int:
        return sum(count for (one, _), count in self.gpus.items() if one == state)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(sorted({name for _, name in self.gpus}))

    def document(self) -> dict[str, Any]:
        """What the journal's row of a cycle keeps."""
        return {
            **{state: self.in_state(state) for state in GPU_STATES},
            "wanted": sum(self.wanted.values()),
            "waiting": self.waiting,
            "longest_s": round(self.longest_s),
            "work_s": None if self.work_s is None else round(self.work_s),
            "waits_s": [round(wait_s) for wait_s in self.waits_s],
            "started": self.started,
            "off": self.off,
        }


def sums_of(
    seen: Snapshot | None, decision: Decision | None, verdict: CanaryStatus | None
) -> Sums | None:
    """None = nothing was seen."""
    if seen is None:
        return None
    line = in_line(seen)
    counts = waiting_tasks(line, seen.room_in_arrays()).astype(int).tolist()
    matrices = _matrices(seen, line, decision)
    waits_s = (
        [run.wait_s for run in verdict.runs.started if run.wait_s is not None] if verdict else []
    )
    blocks = verdict.blocks if verdict else {}
    return Sums(
        gpus=_gpus(seen),
        wanted=_wanted(line, counts),
        waiting=sum(counts),
        longest_s=max((job.waited_s(seen.taken_at) for job in line), default=0.0),
        backlog_s=_backlog_s(matrices),
        work_s=_work_s(seen, matrices),
        waits_s=tuple(_some(sorted(waits_s))),
        started=len(waits_s),
        off=round(len(verdict.off) / len(blocks), 3) if verdict and blocks else 0.0,
    )


def in_line(seen: Snapshot) -> list[PendingJob]:
    """The jobs that wait for nodes, and for nothing else."""
    reservations = Reservations(seen)
    return [job for job in seen.pending if cannot_start(job, reservations) is None]


def tasks(job: PendingJob) -> int:
    """How many jobs the record stands for."""
    return 1 if job.array is None else max(1, job.array.tasks)


def _gpus(seen: Snapshot) -> Mapping[tuple[GpuState, str], int]:
    found: Counter[tuple[GpuState, str]] = Counter()
    for node in seen.nodes:
        for gpus in node.gpus:
            name = gpus.gpu_type or NO_TYPE
            found["used", name] += gpus.total - gpus.free
            found["free", name] += gpus.free if node.schedulable else 0
            found["down", name] += 0 if node.schedulable else gpus.free
    return found


def _wanted(line: Sequence[PendingJob], counts: Sequence[int]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for job, count in zip(line, counts, strict=True):
        found[job.partitions[0]] += job.request.size.gpus * count
    return found


def _matrices(
    seen: Snapshot, line: Iterable[PendingJob], decision: Decision | None
) -> tuple[StateMatrix, ...]:
    """The ranked jobs, and those that rltuned leaves alone, as all of them in an off block: their
    work waits too. Empty = nothing was decided.
    """
    if decision is None:
        return ()
    ranked = {job.job_id for job in decision.matrix.jobs}
    rest = tuple(job for job in line if job.job_id not in ranked)
    return (decision.matrix, encode(rest, seen, decision.context)) if rest else (decision.matrix,)


def _backlog_s(matrices: Iterable[StateMatrix]) -> Mapping[str, float]:
    found: Counter[str] = Counter()
    for matrix in matrices:
        most: dict[str, float] = {}
        for job, backlog_s in zip(matrix.jobs, matrix.backlog_s.tolist(), strict=True):
            name = job.partitions[0]
            most[name] = max(most.get(name, 0.0), backlog_s)
        found.update(most)
    return found


def _work_s(seen: Snapshot, matrices: Sequence[StateMatrix]) -> float | None:
    usable = sum(g.total for node in seen.nodes if node.schedulable for g in node.gpus)
    if not matrices or not usable:
        return None
    return sum(float(m.work.sum()) for m in matrices) / usable


def _some(waits_s: list[float]) -> list[float]:
    return waits_s[:: max(1, ceil(len(waits_s) / MOST_WAITS))]
