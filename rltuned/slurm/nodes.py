"""sinfo's rows -> nodes and partitions."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import GpuType, NodeName
from rltuned.errors import SnapshotError
from rltuned.slurm.columns import NodeRow
from rltuned.slurm.hardware import KeptBack, without_kept
from rltuned.slurm.strings import Gres, parse_gres
from rltuned.slurm.values import absent, parse_limit_s, parse_memory_mib, resources_of

_OPEN_STATES: Final = frozenset({"idle", "mixed", "allocated"})
_HARMLESS_FLAGS: Final = frozenset(
    {
        "planned", "cloud", "powered_down", "powering_up", "power_up", "completing", "dynamic_norm",
        "reboot_requested",
    }
)  # fmt: skip
"""Flags under which Slurm still starts jobs. Any other, also one that is unknown here,
makes the node one that rltuned places nothing on: drain, fail, maint, reserved, power_down,
powering_down, reboot_issued, not_responding ..."""
_POWERING_UP: Final = _HARMLESS_FLAGS | {"not_responding"}
"""A node that powers up answers when it is up, and takes jobs before."""
_HARMLESS_MARKS: Final = "-~#@"
_MARKS: Final = "*~#!%$@^-+"
_CPUS: Final = re.compile(r"([0-9]+)/([0-9]+)/([0-9]+)/([0-9]+)")
_NOTHING_KEPT: Final[Mapping[str, KeptBack]] = MappingProxyType({})
_SHARING: Final = frozenset({"shard", "mps"})


KnownNodes = dict[str, tuple[NodeRow, tuple[str, ...], Node]]
"""Nodes by name, each with the row and the partitions that it was read from."""


def read_nodes(
    rows: Iterable[list[str]],
    exclusive: frozenset[str] = frozenset(),
    kept: Mapping[str, KeptBack] = _NOTHING_KEPT,
    known: KnownNodes | None = None,
) -> tuple[tuple[Node, ...], tuple[Partition, ...], tuple[Unreadable, ...]]:
    """Nodes, partitions, and what cannot be read, from sinfo -N, a row per pair. exclusive:
    partitions that are EXCLUSIVE whatever sinfo says. kept: what jobs do not get. known: of the
    cycle before; what is read is added. Raises SnapshotError: no node can be read.
    """
    known = {} if known is None else known
    first: dict[str, NodeRow] = {}
    members: dict[str, list[str]] = {}
    partitions: dict[str, Partition] = {}
    bad: dict[str, Unreadable] = {}
    for raw in rows:
        row = NodeRow._make(raw)
        name = row.partition.removesuffix("*")
        first.setdefault(row.nodelist, row)
        listed = members.setdefault(row.nodelist, [])
        if absent(name):
            continue
        listed.append(name)
        if name in partitions or name in bad:
            continue
        whole = row._replace(oversubscribe="EXCLUSIVE") if name in exclusive else row
        try:
            partitions[name] = _partition(name, whole)
        except ValueError as error:
            bad[name] = Unreadable("partition", name, str(error))
    nodes, odd = [], []
    for name, row in first.items():
        try:
            nodes.append(_read_once(known, without_kept(row, kept), tuple(sorted(members[name]))))
        except ValueError as error:
            odd.append(Unreadable("node", name, str(error)))
    if odd and not nodes:
        raise SnapshotError(f"sinfo: node {odd[0].name}: {odd[0].why}")
    return tuple(nodes), tuple(partitions.values()), (*bad.values(), *odd)


def _partition(name: str, row: NodeRow) -> Partition:
    return Partition(
        name=name,
        default=row.partition.endswith("*"),
        up=row.available == "up",
        max_time_s=parse_limit_s(row.time),
        default_time_s=parse_limit_s(row.defaulttime),
        priority_tier=int(row.prioritytier),
        priority_factor=int(row.priorityjobfactor),
        oversubscribe=row.oversubscribe,
    )


def _read_once(known: KnownNodes, row: NodeRow, partitions: tuple[str, ...]) -> Node:
    """The node as it is known from such a row. Raises ValueError."""
    before = known.get(row.nodelist)
    if before is None or before[:2] != (row, partitions):
        known[row.nodelist] = before = (row, partitions, _node(row, partitions))
    return before[2]


def _node(row: NodeRow, partitions: tuple[str, ...]) -> Node:
    cpus = _CPUS.fullmatch(row.cpusstate)
    if cpus is None:
        raise ValueError(f"{row.cpusstate!r} are no CPU counts")
    allocated, all_cpus = int(cpus[1]), int(cpus[4])
    memory = parse_memory_mib(row.memory)
    gpus = _gpus(row.gres, row.gresused)
    total = resources_of(sum(g.total for g in gpus), all_cpus, memory)
    # With OverSubscribe=FORCE more may be handed out than there is: then nothing is free.
    free = Resources(
        sum(g.free for g in gpus),
        max(0, all_cpus - allocated),
        max(0, memory - parse_memory_mib(row.allocmem)),
    )
    return Node(
        name=NodeName(row.nodelist),
        gpus=gpus,
        total=total,
        free=free,
        schedulable=is_schedulable(row.statecomplete),
        partitions=partitions,
        state=row.statecomplete.upper(),
        features=() if absent(row.features_act) else tuple(row.features_act.split(",")),
    )


@lru_cache(maxsize=1024)
def is_schedulable(state: str) -> bool:
    """Whether Slurm starts ordinary jobs on a node in this statecomplete ("idle+planned")."""
    bare = state.lower().rstrip(_MARKS)
    if set(state[len(bare) :]) - set(_HARMLESS_MARKS):
        return False
    base, *flags = bare.split("+")
    harmless = _POWERING_UP if "powering_up" in flags else _HARMLESS_FLAGS
    return base in _OPEN_STATES and harmless.issuperset(flags)


@lru_cache(maxsize=4096)  # many nodes say the same words, and again a minute later
def _gpus(gres: str, gres_used: str) -> tuple[GpuCount, ...]:
    """GPUs by type with how many are free; shards and MPS are not GPUs, but they occupy some."""
    used = parse_gres(gres_used)
    totals = gpus_by_type(parse_gres(gres))
    busy = gpus_by_type(used)
    if totals and not any(g.name == "gpu" for g in used):
        raise ValueError("it has GPUs, but how many are in use is not shown")
    for kind in busy.keys() - totals.keys():
        if busy[kind] == 0:
            continue
        if len(totals) != 1:
            raise ValueError(f"GPUs of type {kind!r} are in use, but it has none of that type")
        only = next(iter(totals))
        busy[only] = busy.get(only, 0) + busy[kind]
    shared = sum(_shared_devices(g, sum(totals.values())) for g in used if g.name in _SHARING)
    counts = []
    for kind, total in totals.items():
        free = max(0, total - busy.get(kind, 0))
        lent = min(free, shared)
        shared -= lent
        counts.append(GpuCount(GpuType(kind), total, free - lent))
    return tuple(counts)


def gpus_by_type(items: tuple[Gres, ...]) -> dict[str, int]:
    """How many GPUs of each type a GRES list names."""
    counts: dict[str, int] = {}
    for item in items:
        if item.name == "gpu":
            counts[item.type] = counts.get(item.type, 0) + item.count
    return counts


def _shared_devices(item: Gres, all_gpus: int) -> int:
    """GPUs lent as shards or MPS: "IDX:0,2" or "1/4,0/4" by release; else all count as lent."""
    if item.count == 0:
        return 0
    detail = item.detail.removeprefix("IDX:")
    parts = detail.split(",")
    if all(re.fullmatch(r"[0-9]+/[0-9]+", p) for p in parts):
        return sum(not p.startswith("0/") for p in parts)
    if all(re.fullmatch(r"[0-9]+(-[0-9]+)?", p) for p in parts):
        ends = [p.split("-") for p in parts]
        return sum(int(e[-1]) - int(e[0]) + 1 for e in ends)
    return all_gpus
