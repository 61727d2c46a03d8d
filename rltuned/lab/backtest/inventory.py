"""Nodes and partitions from `scontrol -o show node` and `show partition`, live or saved in a file.

One line per record, or without -o several that begin with a space, `Key=value` with a space
between; text that people write (Reason, Comment) stands behind what is read here, and of two keys
of one name the first counts. A record that cannot be read costs itself.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.units import GpuType, NodeName
from rltuned.errors import SnapshotError
from rltuned.slurm.nodes import gpus_by_type, is_schedulable
from rltuned.slurm.values import absent, parse_gres, parse_limit_s

T = TypeVar("T")

_FIELD: Final = re.compile(r"(?:^| )([A-Za-z_]+)=(\S*)")
_NEVER: Final = frozenset({"FUTURE"})
"""States of nodes that are not there yet."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record of a file that cannot be read. what: `node`, `partition`; line: where it begins."""

    source: str
    what: str
    line: int
    why: str


class _Kind(NamedTuple, Generic[T]):
    """What a file holds. first: the key with which a record begins."""

    source: str
    what: str
    first: str
    made_of: Callable[[dict[str, str]], T]


def read_nodes_shown(text: str, source: str, bad: list[BadRecord]) -> tuple[Node, ...]:
    """All nodes, idle, in the answer's order; schedulable is as now. bad: takes records that cannot
    be read. Raises SnapshotError: there is none that can.
    """
    return tuple(_read(text, _Kind(source, "node", "NodeName", _node), bad))


def read_partitions_shown(text: str, source: str, bad: list[BadRecord]) -> tuple[Partition, ...]:
    """All partitions, in the order of the answer. As read_nodes_shown."""
    return tuple(_read(text, _Kind(source, "partition", "PartitionName", _partition), bad))


def _read(text: str, kind: _Kind[T], bad: list[BadRecord]) -> Iterator[T]:
    names: set[str] = set()
    wrong: list[BadRecord] = []
    for number, record in _records(text):
        fields: dict[str, str] = {}
        for key, value in _FIELD.findall(record):
            fields.setdefault(key, value)
        if fields.get("State", "").split("+")[0].rstrip("*~#!%$@^-") in _NEVER:
            continue
        try:
            found = _made(record, fields, kind, names)
        except ValueError as error:
            wrong.append(BadRecord(kind.source, kind.what, number, str(error)))
        else:
            names.add(fields[kind.first])
            yield found
    bad += wrong
    if not names:
        first = f":{wrong[0].line}: {wrong[0].why}" if wrong else f": no {kind.what} in it"
        raise SnapshotError(f"{kind.source}{first}; save `scontrol -o show {kind.what}`")


def _made(record: str, fields: dict[str, str], kind: _Kind[T], names: set[str]) -> T:
    if not record.startswith(f"{kind.first}="):
        raise ValueError(f"does not begin with {kind.first}=: {record[:60]!r}")
    name = f"{kind.what} {fields[kind.first]}"
    if fields[kind.first] in names:
        raise ValueError(f"{name} stands twice")
    try:
        return kind.made_of(fields)
    except KeyError as error:
        raise ValueError(f"{name}: no {error}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _records(text: str) -> Iterator[tuple[int, str]]:
    """Each record in one line, and where it begins."""
    held: list[str] = []
    at = 0
    for number, line in enumerate(text.splitlines(), 1):
        if held and line[:1] in {" ", "\t"}:
            held.append(line.strip())
            continue
        if held:
            yield at, " ".join(held)
        held, at = [line] if line.strip() else [], number
    if held:
        yield at, " ".join(held)


def _node(fields: dict[str, str]) -> Node:
    counts = gpus_by_type(parse_gres(fields.get("Gres", "")))
    gpus = tuple(GpuCount(GpuType(kind), n, n) for kind, n in counts.items())
    # without what jobs do not get: CoreSpecCount, MemSpecLimit
    cpus, memory = int(fields.get("CPUEfctv", fields["CPUTot"])), int(fields["RealMemory"])
    memory -= min(memory, int(fields.get("MemSpecLimit", "0")))
    total = Resources(sum(counts.values()), cpus, memory)
    named = fields.get("Partitions", "")
    state = fields["State"]
    return Node(
        name=NodeName(fields["NodeName"]),
        gpus=gpus,
        total=total,
        free=total,
        schedulable=is_schedulable(state),
        partitions=() if absent(named) else tuple(sorted(named.split(","))),
        state=state,
    )


def _partition(fields: dict[str, str]) -> Partition:
    whole = fields.get("Exclusive", "").upper() in {"NODE", "YES"}
    return Partition(
        name=fields["PartitionName"],
        default=fields.get("Default", "NO") == "YES",
        up=fields.get("State", "UP") == "UP",
        max_time_s=parse_limit_s(fields["MaxTime"]),
        default_time_s=parse_limit_s(fields.get("DefaultTime", "")),
        priority_tier=int(fields["PriorityTier"]),
        priority_factor=int(fields["PriorityJobFactor"]),
        oversubscribe="EXCLUSIVE" if whole else fields["OverSubscribe"],
    )
