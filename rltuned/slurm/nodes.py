"""sinfo's rows -> nodes and partitions, with what sinfo does not say; and reservations.

A node's specialised cores and memory (CoreSpecCount, MemSpecLimit) are in sinfo's totals, and no
job gets them. Cloud nodes that are powered down are hidden unless PrivateData=cloud; asked for by
its name alone, sinfo shows such a node.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from rltuned.domain.cluster import GpuCount, Node, Partition, Reservation, Resources
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import GpuType, NodeName, UnixTime
from rltuned.errors import SnapshotError
from rltuned.slurm.columns import NODE_COLUMNS, Marks, NodeRow
from rltuned.slurm.run import Commands
from rltuned.slurm.values import (
    Gres,
    absent,
    expand_hosts,
    parse_epoch,
    parse_gres,
    parse_limit_s,
    parse_memory_mib,
    parse_tres,
    resources_of,
)
from rltuned.text import one_line

MOST_ASKED: Final = 40
"""Hidden nodes that are asked for at one look, each by a sinfo of its own."""
KNOWN_S: Final = 300.0
"""How long what a hidden node has is believed. It may be drained meanwhile."""
_NAME: Final = re.compile(r"NodeName=(\S+)")
_CPUS_KEPT: Final = re.compile(r" CPUEfctv=([0-9]+) CPUTot=([0-9]+)")
_MEMORY: Final = re.compile(r" MemSpecLimit=([0-9]+)")
_PARTITION: Final = re.compile(r"PartitionName=(\S+)")
_NODES: Final = re.compile(r" Nodes=(\S+)")


def read_kept_back(lines: Iterable[str]) -> dict[str, tuple[int, int]]:
    """CPUs and MiB that no job gets, by node, from `scontrol -o show nodes`; those that keep
    nothing are left out.
    """
    found: dict[str, tuple[int, int]] = {}
    for line in lines:
        name, cpus, memory = _NAME.match(line), _CPUS_KEPT.search(line), _MEMORY.search(line)
        kept_cpus = max(0, int(cpus[2]) - int(cpus[1])) if cpus else 0
        if name and (kept_cpus or memory):
            found[name[1]] = kept_cpus, int(memory[1]) if memory else 0
    return found


def read_partitions(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """All nodes of all partitions, and the partitions with Exclusive=NODE (26.05), from `scontrol
    -o show partitions`. Raises SnapshotError.
    """
    names, exclusive = set[str](), set[str]()
    for line in filter(None, text.splitlines()):
        partition, nodes = _PARTITION.match(line), _NODES.search(line)
        if partition is None:
            raise SnapshotError(f"scontrol show partitions: {line[:80]!r} is no partition")
        try:
            names.update(expand_hosts(nodes[1]) if nodes else ())
        except ValueError as error:
            raise SnapshotError(f"scontrol show partitions: {error}") from error
        if " Exclusive=NODE" in line:
            exclusive.add(partition[1])
    return frozenset(names), frozenset(exclusive)


class HiddenNodes:
    """Remembers from look to look what powered-down cloud nodes have. new_marks: of one call."""

    def __init__(self, commands: Commands, new_marks: Callable[[], Marks]) -> None:
        self._commands = commands
        self._new_marks = new_marks
        self._known: dict[str, tuple[list[list[str]], float]] = {}
        """Of each node its rows, one for each partition, and when it was asked for."""

    def beside(
        self,
        rows: Iterable[list[str]],
        names: frozenset[str],
        now: float,
        odd: list[Unreadable],
    ) -> Iterator[list[str]]:
        """The rows of sinfo, and those of the nodes among `names` that it does not show. odd: takes
        what is not known yet. Raises BackendError, SnapshotError.
        """
        shown = set[str]()
        for row in rows:
            shown.add(row[0])
            yield row
        hidden = sorted(names - shown)
        known = {name: self._known[name] for name in hidden if name in self._known}
        due = [n for n in hidden if n not in known or not 0 <= now - known[n][1] < KNOWN_S]
        due.sort(key=lambda name: known[name][1] if name in known else -math.inf)
        for name in due[:MOST_ASKED]:
            marks = self._new_marks()
            words = ("--local", "-a", "-N", "-n", name, "-O", marks.columns(NODE_COLUMNS))
            answer = self._commands.call("sinfo", *words)
            # none where Slurm has no such node that it would start
            known[name] = list(marks.rows(answer, len(NODE_COLUMNS), [])), now
        for found, _ in known.values():
            yield from found
        if unknown := len(hidden) - len(known):
            why = f"{unknown} that are powered down are not known yet: asked for from look to look"
            odd.append(Unreadable("node", "", why))
        self._known = known


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
_NOTHING_KEPT: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({})
_SHARING: Final = frozenset({"shard", "mps"})


def read_nodes(
    rows: Iterable[list[str]],
    exclusive: frozenset[str] = frozenset(),
    kept: Mapping[str, tuple[int, int]] = _NOTHING_KEPT,
) -> tuple[tuple[Node, ...], tuple[Partition, ...], tuple[Unreadable, ...]]:
    """Nodes, partitions, and what cannot be read, from sinfo -N, a row per pair. exclusive:
    partitions that are EXCLUSIVE whatever sinfo says. kept: what jobs do not get. Raises
    SnapshotError: no node can be read.
    """
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
            nodes.append(_node(row, tuple(sorted(members[name])), *kept.get(name, (0, 0))))
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


@lru_cache(16_384)  # most nodes say the same a minute later: an eighth of a cycle of 256 jobs
def _node(row: NodeRow, partitions: tuple[str, ...], kept_cpus: int, kept_mib: int) -> Node:
    cpus = _CPUS.fullmatch(row.cpusstate)
    if cpus is None:
        raise ValueError(f"{row.cpusstate!r} are no CPU counts")
    allocated, all_cpus = int(cpus[1]), max(0, int(cpus[4]) - kept_cpus)
    memory = max(0, parse_memory_mib(row.memory) - kept_mib)
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


_FIELD: Final = re.compile(r"(?<!\S)([A-Za-z]+)=(\S*)")


def read_reservations(
    lines: Iterable[str],
) -> tuple[tuple[Reservation, ...], tuple[Unreadable, ...]]:
    """Those that keep nodes, and what cannot be read: a line costs its own reservation."""
    found: dict[str, Reservation] = {}
    bad: list[Unreadable] = []
    for line in lines:
        if not line.strip() or line.startswith("No reservations in the system"):
            continue
        shown = dict(reversed(_FIELD.findall(line)))  # of two the first: a comment stands last
        name = shown.get("ReservationName", "")
        try:
            if not line.startswith("ReservationName=") or not name or name in found:
                raise ValueError(f"{one_line(line, 120)!r} is no reservation")  # noqa: TRY301
            one = _reservation(name, shown)
        except (KeyError, ValueError) as error:
            why = f"no {error.args[0]}" if isinstance(error, KeyError) else str(error)
            bad.append(Unreadable("reservation", one_line(name, 40), why))
            continue
        if one.nodes:
            found[name] = one
    return tuple(found.values()), tuple(bad)


def _reservation(name: str, shown: dict[str, str]) -> Reservation:
    start, end = parse_epoch(shown["StartTime"]), parse_epoch(shown["EndTime"])
    if start is None:
        raise ValueError("no start")
    tres = parse_tres(shown["TRES"])
    typed = sum(count for resource, count in tres.items() if resource.startswith("gres/gpu:"))
    gpus = max(typed, tres.get("gres/gpu", 0))
    return Reservation(
        name=name,
        start_at=start,
        end_at=UnixTime(math.inf) if end is None else end,
        nodes=expand_hosts(shown["Nodes"]),
        kept=resources_of(gpus, tres["cpu"], 0) if "cpu" in tres else None,
        users=_listed(shown["Users"]),
        accounts=_listed(shown["Accounts"]),
        others=any(_listed(shown.get(key, "")) for key in ("Groups", "QOS", "AllowedPartitions")),
        flags=tuple(sorted(_listed(shown["Flags"].upper()))),
    )


def _listed(text: str) -> tuple[str, ...]:
    return () if absent(text) else tuple(text.split(","))
