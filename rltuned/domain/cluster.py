"""Nodes, partitions and the amounts they hold; hostlists, which name nodes."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rltuned.domain.units import GpuType, NodeName, UnixTime


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of GPUs, CPUs and memory. Never negative."""

    gpus: int = 0
    cpus: int = 0
    mem_mib: int = 0

    def __post_init__(self) -> None:
        if self.gpus < 0 or self.cpus < 0 or self.mem_mib < 0:
            raise ValueError(f"negative resources: {self}")

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(
            self.gpus + other.gpus, self.cpus + other.cpus, self.mem_mib + other.mem_mib
        )

    def __sub__(self, other: "Resources") -> "Resources":
        """Take other away. Raises ValueError: other does not fit in self."""
        return Resources(
            self.gpus - other.gpus, self.cpus - other.cpus, self.mem_mib - other.mem_mib
        )

    def fits_in(self, other: "Resources") -> bool:
        return self.gpus <= other.gpus and self.cpus <= other.cpus and self.mem_mib <= other.mem_mib


@dataclass(frozen=True, slots=True)
class GpuCount:
    """GPUs of one type on one node."""

    gpu_type: GpuType
    total: int
    free: int

    def __post_init__(self) -> None:
        if not 0 <= self.free <= self.total:
            raise ValueError(f"free GPUs outside 0..total: {self}")


@dataclass(frozen=True, slots=True)
class Node:
    """One node as `sinfo` shows it.

    `schedulable` is False for nodes on which Slurm starts no ordinary job now: down, drained,
    draining (MIXED+DRAIN too), failing, in maintenance or reserved, or not responding. A PLANNED
    node is schedulable: backfill has only planned a job there.
    """

    name: NodeName
    gpus: tuple[GpuCount, ...]
    total: Resources
    free: Resources
    schedulable: bool
    partitions: tuple[str, ...]
    state: str = ""
    features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.free.fits_in(self.total):
            raise ValueError(f"node {self.name}: free {self.free} exceeds total {self.total}")
        if sum(g.total for g in self.gpus) != self.total.gpus:
            raise ValueError(f"node {self.name}: GPU types do not add up to {self.total.gpus}")
        if sum(g.free for g in self.gpus) != self.free.gpus:
            raise ValueError(f"node {self.name}: free GPUs by type do not add up")
        if len({g.gpu_type for g in self.gpus}) != len(self.gpus):
            raise ValueError(f"node {self.name}: a GPU type is listed twice")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition. max_time_s, default_time_s: inf = UNLIMITED, None = not set."""

    name: str
    default: bool = False
    up: bool = True
    max_time_s: float | None = None
    default_time_s: float | None = None
    priority_tier: int = 1
    priority_factor: int = 1
    oversubscribe: str = "NO"


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation, to come or in force. start_at: of TIME_FLOAT it moves on with time. end_at:
    inf = it never ends. kept: amounts over all its nodes; None = it keeps them whole. users,
    accounts: as Slurm lists them, "-bob" for all but bob; empty = not by them. others: it is for
    groups, QOS or partitions too. flags: in capitals.
    """

    name: str
    start_at: UnixTime
    end_at: UnixTime
    nodes: tuple[NodeName, ...]
    kept: Resources | None = None
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    others: bool = False
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.end_at < self.start_at:
            raise ValueError(f"reservation {self.name} ends before it starts")


MAX_HOSTS: Final = 1_000_000
"""A hostlist that stands for more is a mistake or an attack."""
_PLAIN: Final = re.compile(r"[\w.-]+")
_RANGE: Final = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def expand_hosts(text: str, *, most: int = MAX_HOSTS) -> tuple[str, ...]:
    """Names of a hostlist in its order; leading zeros are kept, several brackets multiply. Raises
    ValueError: it is malformed, or names more than `most`.
    """
    if _PLAIN.fullmatch(text):
        return (text,)
    names: list[str] = []
    for item in split_outside(text):
        names.extend(_expand_one(item, most))
        if len(names) > most:
            raise ValueError(f"hostlist of more than {most} names")
    return tuple(names)


def split_outside(text: str, brackets: str = "[]") -> Iterator[str]:
    """What stands between the commas outside brackets. Raises ValueError: they do not match."""
    inside, first = False, 0
    for at, sign in enumerate(text):
        if sign in brackets:
            if inside == (sign == brackets[0]):
                raise ValueError(f"hostlist or GRES {text[:200]!r}: brackets do not match")
            inside = not inside
        elif sign == "," and not inside:
            yield text[first:at]
            first = at + 1
    if inside:
        raise ValueError(f"hostlist or GRES {text[:200]!r}: brackets do not match")
    yield text[first:]


def _expand_one(item: str, most: int) -> Iterable[str]:
    if not item:
        raise ValueError("hostlist with an empty name")
    choices: list[Sequence[str]] = [
        _expand_ranges(part, most) if index % 2 else [part]
        for index, part in enumerate(re.split(r"\[([^\[\]]*)\]", item))
    ]
    if math.prod(len(c) for c in choices) > most:
        raise ValueError(f"hostlist of more than {most} names")
    return ("".join(combination) for combination in itertools.product(*choices))


def _expand_ranges(text: str, most: int) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"hostlist: {part!r} is no range")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low) or int(high) - int(low) > most:
            raise ValueError(f"hostlist: range {part!r} is too long or runs backwards")
        numbers.extend(str(n).zfill(len(low)) for n in range(int(low), int(high) + 1))
    return numbers
