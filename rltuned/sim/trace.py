"""Traces: jobs with their true run times, and the one file format that holds them (version 1).

A job's true run time lives here and in nothing that a policy can see.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache

from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Request
from rltuned.domain.units import GpuType


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. submit_s: since its epoch. duration_s: true run time without a limit.
    gpu_types: empty = any. cpus, mem_mib: None = unknown; such a job takes none. nodes: None = the
    fewest. status: in the source's words; never used to simulate. name: without digits.
    """

    job_id: str
    submit_s: float
    duration_s: float
    gpus: int
    time_limit_s: float = math.inf
    gpu_types: tuple[str, ...] = ()
    cpus: int | None = None
    mem_mib: int | None = None
    nodes: int | None = None
    partition: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""
    exclusive: bool = False
    status: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if not math.isfinite(self.submit_s):
            raise ValueError(f"submit_s must be a number of seconds, not {self.submit_s}")
        if not (self.duration_s > 0 and math.isfinite(self.duration_s)):
            raise ValueError(f"duration_s must be seconds > 0, not {self.duration_s}")
        if not self.time_limit_s > 0:
            raise ValueError(f"time_limit_s must be seconds > 0 or empty, not {self.time_limit_s}")
        if self.nodes is not None and self.nodes < 1:
            raise ValueError(f"nodes must be at least 1 or empty, not {self.nodes}")
        if self.gpus < 0 or (self.cpus or 0) < 0 or (self.mem_mib or 0) < 0:
            raise ValueError("gpus, cpus and mem_mib cannot be negative; unknown is empty")

    def request(self) -> Request:
        """What it asks of a cluster. CPUs and memory that are not known never bind; a job without
        GPUs takes at least the one CPU that Slurm gives every job.
        """
        return _request(
            self.gpus,
            self.gpu_types,
            self.cpus or 0,
            self.mem_mib or 0,
            self.nodes,
            self.exclusive,
            self.time_limit_s,
        )


@lru_cache(maxsize=65_536)
def _request(  # noqa: PLR0917 - the cache is keyed by place
    gpus: int,
    gpu_types: tuple[str, ...],
    cpus: int,
    mem_mib: int,
    nodes: int | None,
    exclusive: bool,
    time_limit_s: float,
) -> Request:
    """Jobs that ask for the same share one object: most traces have few different ones."""
    return Request(
        total=Resources(gpus, cpus if gpus else max(1, cpus), mem_mib),
        time_limit_s=time_limit_s,
        gpu_types=tuple(GpuType(t) for t in gpu_types),
        nodes=nodes,
        exclusive=exclusive,
    )


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that is no usable job; line counts from 1 (or the record's number in JSON)."""

    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in submit order, and the notes (source, licence, what is synthetic, seed ...). bad: rows
    of the file that are left out.
    """

    jobs: tuple[TraceJob, ...]
    notes: dict[str, str] = field(default_factory=dict)
    bad: tuple[Bad, ...] = ()

    def __post_init__(self) -> None:
        for earlier, later in zip(self.jobs, self.jobs[1:], strict=False):
            if later.submit_s < earlier.submit_s:
                raise ValueError(f"job {later.job_id} is submitted before the job above it")
