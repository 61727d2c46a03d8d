"""The cluster as arrays: what every node has, what is free on it, and which jobs it may serve.

Nodes stand in snapshot order (by name). GPU types are rows: a node with two types (MIG slices
beside whole GPUs) has amounts in two rows. The last row is always zero and stands for "no GPU":
jobs that ask for none are placed through it on any node.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rltuned.core.cluster import Amounts, BoolArray, IntArray, amounts, capped, copied, less
from rltuned.domain.cluster import Node, Reservation, Resources
from rltuned.domain.jobs import PendingJob, Request, RunningJob, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import GpuType, JobId, NodeName

# What keeps nodes from a job: reservations that it would run into, and running jobs that have
# nodes for their user alone.
#
# Slurm starts a job on a reserved node only if its time limit ends before the reservation begins. A
# job that names no reservation is let into none, but a magnetic one in force. What
# `--exclusive=user` runs on is free for that user alone; `mcs` and `topo`, whose labels are not
# read, for nobody.


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


# Constraints of jobs on the features of nodes, as far as a forecast plays them.


_WORD: Final = r"[A-Za-z0-9_.:+-]+"
_ALL: Final = re.compile(rf"{_WORD}(?:&{_WORD})*")
_ANY: Final = re.compile(rf"{_WORD}(?:\|{_WORD})*")
_CONSTRAINT: Final = "constraint="
_LICENCES: Final = "licenses="


def why_outside(outside: Sequence[str]) -> str:
    """Why a job that asks for more than GPUs, CPUs and memory is not played; empty = it is."""
    for words in outside:
        value = words.partition("=")[2]
        if words.startswith(_LICENCES):
            return f"it needs licences ({value}), and how many are free is not known"
        if not words.startswith(_CONSTRAINT):
            return f"it asks for what is not modelled ({words})"
        if not _sets(value):
            return f"its constraint is not understood ({value}): only a, a&b and a|b are"
    return ""


def allowed(outside: Sequence[str], nodes: Sequence[Node]) -> BoolArray:
    """(N,) nodes that a job's constraint accepts; one that is not understood accepts all."""
    found = np.ones(len(nodes), dtype=bool)
    for words in outside:
        sets = _sets(words.removeprefix(_CONSTRAINT)) if words.startswith(_CONSTRAINT) else []
        if sets:
            found &= [any(one.issubset(node.features) for one in sets) for node in nodes]
    return found


def _sets(text: str) -> list[frozenset[str]]:
    """Features of which a node needs all of one set; empty = not understood.

    Matching OR, counts and parentheses choose nodes together, which a lane does not.
    """
    if _ALL.fullmatch(text):
        return [frozenset(text.split("&"))]
    return [frozenset({one}) for one in text.split("|")] if _ANY.fullmatch(text) else []


@dataclass(slots=True)
class Capacity:
    """One cluster: what its N nodes have and what is free, and what keeps nodes from whom."""

    names: tuple[NodeName, ...]
    gpu_types: tuple[GpuType, ...]
    total: Amounts
    free: Amounts
    usable: BoolArray  # (N,) Slurm starts jobs here now
    members: dict[str, BoolArray]  # partition -> (N,)
    index: dict[NodeName, int]  # name -> column
    rows: dict[GpuType | None, int]  # type -> row
    kept: Keepers  # what keeps nodes from some jobs
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Capacity":
        nodes = snapshot.nodes
        types = tuple(sorted({g.gpu_type for n in nodes for g in n.gpus}))
        has = np.zeros((len(types) + 1, len(nodes)), dtype=np.int64)
        free = np.zeros_like(has)
        row_of: dict[GpuType | None, int] = {t: i for i, t in enumerate(types)}
        for column, node in enumerate(nodes):
            for gpu in node.gpus:
                has[row_of[gpu.gpu_type], column] = gpu.total
                free[row_of[gpu.gpu_type], column] = gpu.free
        total = amounts(has, *_ints([n.total for n in nodes]))
        index = {n.name: i for i, n in enumerate(nodes)}
        return cls(
            names=tuple(n.name for n in nodes),
            gpu_types=types,
            total=total,
            free=amounts(free, *_ints([n.free for n in nodes])),
            usable=np.array([n.schedulable for n in nodes], dtype=bool),
            members=_members(nodes),
            index=index,
            rows=row_of,
            kept=Keepers(snapshot, index, total.cpus),
            nodes=nodes,
        )

    def copy(self) -> "Capacity":
        """A copy whose free amounts can be spent without touching this one's."""
        return replace(self, free=copied(self.free))

    def members_of(self, partitions: tuple[str, ...]) -> BoolArray:
        """(N,) nodes that belong to any of the partitions, to be read; unknown ones have none."""
        if len(partitions) == 1 and partitions[0] in self.members:
            return self.members[partitions[0]]
        member = np.zeros(len(self.names), dtype=bool)
        for name in partitions:
            if name in self.members:
                member |= self.members[name]
        return member

    def without(self, some: int) -> "Capacity":
        """The same, to be read, for a job from which this set of `kept` keeps nodes."""
        if not some:
            return self
        gpus, cpus = self.kept.parts(some)
        return replace(
            self, usable=self.usable & ~self.kept.nodes(some), free=less(self.free, gpus, cpus)
        )

    def wanted_by(self, job: PendingJob) -> BoolArray:
        """(N,) nodes of its partitions that its constraint and its own list of nodes leave it; none
        where one that it needs takes no jobs.
        """
        member = self.members_of(job.partitions)
        if job.request.outside:
            member = member & allowed(job.request.outside, self.nodes)
        if job.excluded_nodes:
            member = member & ~np.isin(self.names, job.excluded_nodes)
        if job.required_nodes:
            named = member & np.isin(self.names, job.required_nodes)
            if int((named & self.usable).sum()) < len(set(job.required_nodes)):
                return np.zeros_like(member)
            if (job.request.nodes or 1) <= len(set(job.required_nodes)):
                member = named
        return member

    def accepted(self, request: Request) -> tuple[int, ...]:
        """Rows of the GPU types that a request accepts; the zero row for a job without GPUs."""
        if request.total.gpus == 0:
            return (len(self.gpu_types),)
        if not request.gpu_types:
            return tuple(range(len(self.gpu_types)))
        return tuple(i for i, t in enumerate(self.gpu_types) if t in request.gpu_types)

    def take(self, shares: tuple[Share, ...]) -> None:
        """Spend what a placement takes. Raises ValueError: it takes more than is free."""
        for share in shares:
            column, row = self._cell(share)
            _add(self.free, column, row, share.taken, -1)
            left = self.free.of_type[row, column], self.free.cpus[column], self.free.mem_mib[column]
            if min(left) < 0:
                raise ValueError(f"node {share.node}: {share.taken} is more than is free")

    def give(self, shares: tuple[Share, ...]) -> None:
        for share in shares:
            _add(self.free, *self._cell(share), share.taken, 1)

    def cap(self) -> None:
        """Free at most what there is: what jobs hold need not add up to what nodes show as used."""
        self.free = capped(self.free, self.total)

    def row_on(self, share: Share, column: int) -> int:
        """Row of the GPUs of a share; an untyped one counts as the type the node has most of."""
        if share.taken.gpus == 0:
            return len(self.gpu_types)
        row = self.rows.get(share.gpu_type)
        if row is not None:
            return row
        return int(self.total.of_type[:, column].argmax())

    def _cell(self, share: Share) -> tuple[int, int]:
        column = self.index[share.node]
        return column, self.row_on(share, column)


def _add(free: Amounts, column: int, row: int, taken: Resources, sign: int) -> None:
    free.of_type[row, column] += sign * taken.gpus
    free.gpus[column] += sign * taken.gpus
    free.cpus[column] += sign * taken.cpus
    free.mem_mib[column] += sign * taken.mem_mib


def _ints(of_nodes: Sequence[Resources]) -> IntArray:
    """(2, N) CPUs and memory."""
    table = [(one.cpus, one.mem_mib) for one in of_nodes]
    return np.array(table, dtype=np.int64).reshape(-1, 2).T.copy()


def _members(nodes: tuple[Node, ...]) -> dict[str, BoolArray]:
    members: dict[str, BoolArray] = {}
    for column, node in enumerate(nodes):
        for name in node.partitions:
            if name not in members:
                members[name] = np.zeros(len(nodes), dtype=bool)
            members[name][column] = True
    return members
