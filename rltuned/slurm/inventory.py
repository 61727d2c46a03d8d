"""Nodes and partitions from `scontrol -o show node` and `show partition`, live or saved in a file.

One line per record, `Key=value` with a space between; text that people write (Reason, Comment)
stands behind what is read here, and of two keys of one name the first counts.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.units import GpuType, NodeName
from rltuned.errors import SnapshotError
from rltuned.slurm.nodes import gpus_by_type, is_schedulable
from rltuned.slurm.strings import parse_gres
from rltuned.slurm.values import absent, parse_limit_s

T = TypeVar("T")

_FIELD: Final = re.compile(r"(?:^| )([A-Za-z_]+)=(\S*)")
_NEVER: Final = frozenset({"FUTURE"})
"""States of nodes that are not there yet."""


def read_nodes_shown(text: str, source: str) -> tuple[Node, ...]:
    """All nodes, idle, in the answer's order; schedulable is as now. Raises SnapshotError."""
    return tuple(_read(text, source, "node", "NodeName", _node))


def read_partitions_shown(text: str, source: str) -> tuple[Partition, ...]:
    """All partitions, in the order of the answer. Raises SnapshotError: names the line."""
    return tuple(_read(text, source, "partition", "PartitionName", _partition))


def _read(
    text: str, source: str, what: str, first: str, made_of: Callable[[dict[str, str]], T]
) -> Iterator[T]:
    count = 0
    for number, fields in _records(text, source, first):
        if fields.get("State", "").split("+")[0].rstrip("*~#!%$@^-") in _NEVER:
            continue
        count += 1
        try:
            yield made_of(fields)
        except (KeyError, ValueError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise SnapshotError(f"{source}:{number}: {what} {fields[first]}: {why}") from error
    if not count:
        raise SnapshotError(f"{source}: no {what} in it; save `scontrol -o show {what}`")


def _records(text: str, source: str, first: str) -> Iterator[tuple[int, dict[str, str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        fields: dict[str, str] = {}
        for key, value in _FIELD.findall(line):
            fields.setdefault(key, value)
        if not line.startswith(f"{first}="):
            raise SnapshotError(
                f"{source}:{number}: does not begin with {first}=: {line[:60]!r}; save it with -o"
            )
        yield number, fields


def _node(fields: dict[str, str]) -> Node:
    counts = gpus_by_type(parse_gres(fields.get("Gres", "")))
    gpus = tuple(GpuCount(GpuType(kind), n, n) for kind, n in counts.items())
    total = Resources(sum(counts.values()), int(fields["CPUTot"]), int(fields["RealMemory"]))
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
