"""What keeps nodes from a job: reservations that it would run into, and running jobs that have
nodes for their user alone.

Slurm starts a job on a reserved node only if its time limit ends before the reservation begins. A
job that names no reservation is let into none, but a magnetic one in force. What `--exclusive=user`
runs on is free for that user alone; `mcs` and `topo`, whose labels are not read, for nobody.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.domain.cluster import Reservation
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, NodeName

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

_OF_USER: Final = "exclusive=user"
_OF_NOBODY: Final = frozenset({"exclusive=mcs", "exclusive=topo"})
_HOUR_S: Final = 3_600.0
_EVERY_S: Final[Mapping[str, float]] = {
    "HOURLY": _HOUR_S,
    "DAILY": 24 * _HOUR_S,
    "WEEKDAY": 24 * _HOUR_S,
    "WEEKEND": 24 * _HOUR_S,
    "WEEKLY": 7 * 24 * _HOUR_S,
}
"""Seconds between two of a reservation that comes again; those of some days count for all days."""


@dataclass(frozen=True, slots=True, eq=False)
class Keeper:
    """What keeps nodes from jobs, in seconds from the look. nodes: columns of those that it keeps
    whole. part: columns of which it keeps some GPUs and CPUs. every_s: it comes again; 0 = it does
    not. moves: it lies as far ahead at any time. runs: the jobs whose ends end it; none = it is a
    reservation.
    """

    nodes: tuple[int, ...]
    part: Mapping[int, tuple[int, int]]
    start_s: float
    end_s: float
    every_s: float = 0.0
    moves: bool = False
    runs: tuple[JobId, ...] = ()
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()

    def window(self, at_s: float) -> tuple[float, float]:
        """Start and end of the one that counts at a time."""
        if self.moves:
            return at_s + self.start_s, math.inf
        if not self.every_s or at_s < self.end_s:
            return self.start_s, self.end_s
        later_s = self.every_s * (math.floor((at_s - self.end_s) / self.every_s) + 1)
        return self.start_s + later_s, self.end_s + later_s

    def lets_in(self, user: str, account: str) -> bool:
        listed = (self.users, user), (self.accounts, account)
        return any(names for names, _ in listed) and all(
            name in names for names, name in listed if names
        )


class Keepers:
    """The keepers of a snapshot. A set of them is a number: bit i is that of the i-th."""

    def __init__(self, snapshot: Snapshot, index: Mapping[NodeName, int], cpus: IntArray) -> None:
        now = float(snapshot.taken_at)
        self._width = len(cpus)
        reserved = (_of_reservation(one, index, cpus, now) for one in snapshot.reservations)
        self.keepers = (*(k for k in reserved if k is not None), *_of_runs(snapshot.running, index))
        self._known: dict[int, tuple[BoolArray, IntArray, IntArray]] = {}
        self._met: dict[float, int] = {}
        self._open: dict[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self.keepers)

    def open_to(self, job: PendingJob) -> int:
        """The keepers that let a job in."""
        who = job.user, job.account
        if who not in self._open:
            into = (1 << at for at, one in enumerate(self.keepers) if one.lets_in(*who))
            self._open[who] = sum(into)
        return self._open[who]

    def of(self, job: PendingJob) -> int:
        """What keeps nodes from a job now."""
        if not self.keepers:
            return 0
        limit_s = math.inf if job.request.time_limit_s is None else job.request.time_limit_s
        if limit_s not in self._met:
            self._met[limit_s] = self.met(0.0, limit_s) | self.going(0.0, {})
        return self._met[limit_s] & ~self.open_to(job)

    def met(self, at_s: float, limit_s: float) -> int:
        """The reservations that a job would run into that starts at a time and takes all of its
        limit.
        """
        found = 0
        for at, one in enumerate(self.keepers):
            if not one.runs:
                start_s, end_s = one.window(at_s)
                found |= (at_s < end_s and start_s < at_s + limit_s) << at
        return found

    def going(self, at_s: float, ends_s: Mapping[JobId, float]) -> int:
        """The keepers of which a job runs at a time. ends_s: of running jobs; others do not end."""
        found = 0
        for at, one in enumerate(self.keepers):
            found |= any(ends_s.get(run, math.inf) > at_s for run in one.runs) << at
        return found

    def next_end_s(self, at_s: float) -> float:
        """When the next reservation that is in force, or to come, ends."""
        ends = (one.window(at_s)[1] for one in self.keepers if not one.runs)
        return min((end_s for end_s in ends if end_s > at_s), default=math.inf)

    def nodes(self, some: int) -> BoolArray:
        """(N,) which nodes a set keeps whole."""
        return self._table(some)[0]

    def parts(self, some: int) -> tuple[IntArray, IntArray]:
        """(N,) GPUs and CPUs that a set keeps of other nodes."""
        return self._table(some)[1:]

    def _table(self, some: int) -> tuple[BoolArray, IntArray, IntArray]:
        found = self._known.get(some)
        if found is None:
            whole = np.zeros(self._width, dtype=bool)
            gpus, cpus = (np.zeros(self._width, dtype=np.int64) for _ in range(2))
            for at, one in enumerate(self.keepers):
                if some >> at & 1:
                    whole[list(one.nodes)] = True
                    for column, (of_gpus, of_cpus) in one.part.items():
                        gpus[column] += of_gpus
                        cpus[column] += of_cpus
            found = self._known[some] = whole, gpus, cpus
        return found


def _of_reservation(
    one: Reservation, index: Mapping[NodeName, int], cpus: IntArray, now: float
) -> Keeper | None:
    """None = it keeps no node that is shown, or is over."""
    columns = tuple(index[name] for name in one.nodes if name in index)
    every_s = max((_EVERY_S.get(flag, 0.0) for flag in one.flags), default=0.0)
    if not columns or (one.end_at <= now and not every_s):
        return None
    # how much of which node it keeps is not shown: of each as much as it can be
    is_part = one.kept is not None and one.kept.cpus < cpus[list(columns)].sum()
    part = {}
    if is_part and one.kept is not None:
        part = {c: (one.kept.gpus, min(one.kept.cpus, int(cpus[c]))) for c in columns}
    draws = "MAGNETIC" in one.flags and one.start_at <= now and not one.others
    named = [*one.users, *one.accounts]
    draws = draws and not any(name.startswith("-") for name in named)
    return Keeper(
        () if part else columns,
        part,
        one.start_at - now,
        one.end_at - now,
        every_s,
        moves="TIME_FLOAT" in one.flags,
        users=one.users if draws else (),
        accounts=one.accounts if draws else (),
    )


def _of_runs(running: tuple[RunningJob, ...], index: Mapping[NodeName, int]) -> list[Keeper]:
    found: dict[tuple[int, str], list[JobId]] = defaultdict(list)
    for run in running:
        words = run.request.outside
        if _OF_USER in words or not _OF_NOBODY.isdisjoint(words):
            user = run.user if _OF_USER in words else ""
            for share in run.shares:
                if share.node in index:
                    found[index[share.node], user].append(run.job_id)
    return [
        Keeper((column,), {}, -math.inf, math.inf, runs=tuple(runs), users=(user,) if user else ())
        for (column, user), runs in found.items()
    ]
