"""Jobs that wait for each other: what Slurm says of one job, and what is kept of a whole group."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal

from rltuned.domain.units import JobId

AFTER_START: Final = frozenset({"after"})
"""Kinds of edges that hold no longer once the parent has started."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """Which jobs one job waits for. parents: ids with the kind of the edge in Slurm's word
    (`afterok`). whole: the edges say all of it, each must hold, and on success.
    """

    parents: tuple[tuple[JobId, str], ...] = ()
    whole: bool = True


class JobPhase(StrEnum):
    """How far a job of a group has come."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    """Slurm shows it no more, whether it ran or was cancelled."""


@dataclass(frozen=True, slots=True)
class GroupJob:
    """A job or a whole array in a group; None = not known, or not yet.

    parents: the kind of the edge by the parent's id, satisfied edges too. run_s: expected, by
    `source`. high_s: the predictor's 90% quantile. most_s: by its limit. never: Slurm says that its
    dependency can never be satisfied. started_at, ended_at: Unix times of the first start seen, and
    of the first look without it.
    """

    parents: Mapping[int, str] = field(default_factory=dict)
    whole: bool = True
    user: str = ""
    phase: JobPhase = JobPhase.WAITING
    run_s: float | None = None
    high_s: float | None = None
    most_s: float | None = None
    source: Literal["predicted", "limit", "unknown"] = "unknown"
    never: bool = False
    started_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class GroupStore:
    """All groups of a cluster. jobs: by id, or the array's."""

    jobs: Mapping[int, GroupJob] = field(default_factory=dict)
    seen_at: float = 0.0
