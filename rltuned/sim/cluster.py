"""The cluster file (version 1): which nodes there are and which partitions they serve."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltuned.domain.cluster import GpuCount, Node, Partition, Resources
from rltuned.domain.hostlist import expand_hosts
from rltuned.domain.units import GpuType, NodeName
from rltuned.errors import TraceError

NODE_KEYS = frozenset({"name", "gpu_type", "gpus", "cpus", "mem_mib", "partitions"})
PARTITION_KEYS = frozenset({"name", "default", "max_time_s", "priority_factor", "oversubscribe"})
OVERSUBSCRIBE = ("NO", "YES", "FORCE", "EXCLUSIVE")
MAX_NODES_PER_ENTRY = 100_000


@dataclass(frozen=True, slots=True)
class Cluster:
    """Idle hardware: every node free and schedulable, in name order; partitions in file order."""

    name: str
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]

    @property
    def gpus(self) -> int:
        return sum(n.total.gpus for n in self.nodes)

    @property
    def default_partition(self) -> str:
        """The partition of a job that names none: the default one, else the first."""
        for partition in self.partitions:
            if partition.default:
                return partition.name
        return self.partitions[0].name


def read_cluster(path: Path) -> Cluster:
    """Read a cluster TOML.

    Raises:
        TraceError: names the file and the field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    return parse_cluster(text, str(path), path.stem)


def parse_cluster(text: str, source: str, name: str) -> Cluster:
    """As `read_cluster`, for the text of a file; source stands in the messages."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TraceError(f"{source}: not TOML: {error}") from error
    unknown = sorted(set(data) - {"nodes", "partitions", "name"})
    if unknown:
        raise TraceError(f"{source}: unknown key {unknown[0]!r} (nodes, partitions, name)")
    partitions = _partitions(_tables(data, "partitions", source), source)
    nodes = _nodes(_tables(data, "nodes", source), source, [p.name for p in partitions])
    if not nodes:
        raise TraceError(f"{source}: no [[nodes]]")
    if not partitions:
        names = dict.fromkeys(p for n in nodes for p in n.partitions)
        partitions = tuple(Partition(p, default=i == 0) for i, p in enumerate(names))
    return Cluster(str(data.get("name", name)), nodes, partitions)


def _tables(data: Mapping[str, Any], key: str, source: str) -> list[Mapping[str, Any]]:
    tables = data.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise TraceError(f"{source}: {key} must be written as [[{key}]] tables")
    return tables


@dataclass(frozen=True, slots=True)
class _Fields:
    """One table of the file, read field by field with its place in every message."""

    table: Mapping[str, Any]
    where: str

    def known(self, keys: frozenset[str]) -> "_Fields":
        unknown = sorted(set(self.table) - keys)
        if unknown:
            raise TraceError(f"{self.where}: unknown key {unknown[0]!r}; known: {sorted(keys)}")
        return self

    def text(self, key: str, default: str | None = None) -> str:
        value = self.table.get(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise TraceError(f"{self.where}: {key} must be a text, not {value!r}")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self.table.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise TraceError(f"{self.where}: {key} must be a whole number >= 0, not {value!r}")
        return value

    def flag(self, key: str) -> bool:
        value = self.table.get(key, False)
        if not isinstance(value, bool):
            raise TraceError(f"{self.where}: {key} must be true or false, not {value!r}")
        return value

    def seconds(self, key: str) -> float | None:
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise TraceError(f"{self.where}: {key} must be seconds > 0, not {value!r}")
        return float(value)

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise TraceError(f"{self.where}: {key} must be a list of texts, not {value!r}")
        return tuple(value)


def _partitions(tables: Iterable[Mapping[str, Any]], source: str) -> tuple[Partition, ...]:
    found: dict[str, Partition] = {}
    for position, table in enumerate(tables, 1):
        fields = _Fields(table, f"{source}: partitions[{position}]").known(PARTITION_KEYS)
        name = fields.text("name")
        oversubscribe = fields.text("oversubscribe", "NO").upper()
        if oversubscribe.split(":")[0] not in OVERSUBSCRIBE:
            raise TraceError(f"{fields.where}: oversubscribe must be one of {OVERSUBSCRIBE}")
        if name in found:
            raise TraceError(f"{fields.where}: name {name!r} stands twice")
        found[name] = Partition(
            name=name,
            default=fields.flag("default"),
            max_time_s=fields.seconds("max_time_s"),
            priority_factor=fields.count("priority_factor", 1),
            oversubscribe=oversubscribe,
        )
    if sum(p.default for p in found.values()) > 1:
        raise TraceError(f"{source}: partitions: more than one default")
    return tuple(found.values())


def _nodes(
    tables: Iterable[Mapping[str, Any]], source: str, declared: list[str]
) -> tuple[Node, ...]:
    found: dict[str, Node] = {}
    for position, table in enumerate(tables, 1):
        fields = _Fields(table, f"{source}: nodes[{position}]").known(NODE_KEYS)
        members = fields.texts("partitions") or tuple(declared) or ("main",)
        for member in members:
            if declared and member not in declared:
                raise TraceError(f"{fields.where}: partitions: no [[partitions]] named {member!r}")
        total = Resources(fields.count("gpus", 0), fields.count("cpus"), fields.count("mem_mib"))
        gpu_type = GpuType(fields.text("gpu_type", ""))
        for name in _names(fields):
            if name in found:
                raise TraceError(f"{fields.where}: name: node {name} stands twice")
            found[name] = idle_node(name, gpu_type, total, members)
    return tuple(found[name] for name in sorted(found))


def _names(fields: _Fields) -> tuple[str, ...]:
    try:
        return expand_hosts(fields.text("name"), most=MAX_NODES_PER_ENTRY)
    except ValueError as error:
        raise TraceError(f"{fields.where}: name: {error}") from error


def idle_node(name: str, gpu_type: GpuType, total: Resources, partitions: tuple[str, ...]) -> Node:
    """A node on which nothing runs."""
    gpus = (GpuCount(gpu_type, total.gpus, total.gpus),) if total.gpus else ()
    return Node(NodeName(name), gpus, total, total, True, partitions, "IDLE")
