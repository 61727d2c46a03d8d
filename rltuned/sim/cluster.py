"""The cluster file (version 1): which nodes there are and which partitions they serve."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from rltuned.domain.cluster import GpuCount, Node, Partition, Resources, expand_hosts
from rltuned.domain.units import GpuType, NodeName
from rltuned.errors import TraceError
from rltuned.files import refuse_device

MAX_NODES_PER_ENTRY = 100_000
_Name = Annotated[str, Field(min_length=1)]
_Count = Annotated[int, Field(ge=0)]


class _PartitionTable(BaseModel, extra="forbid", strict=True):
    name: _Name
    default: bool = False
    max_time_s: Annotated[float, Field(gt=0)] | None = None
    priority_factor: _Count = 1
    oversubscribe: Annotated[
        str, StringConstraints(to_upper=True, pattern=r"(?i)^(NO|YES|FORCE|EXCLUSIVE)(:|$)")
    ] = "NO"


class _NodeTable(BaseModel, extra="forbid", strict=True):
    name: _Name
    gpu_type: str = ""
    gpus: _Count = 0
    cpus: _Count
    mem_mib: _Count
    partitions: list[_Name] = []


class _File(BaseModel, extra="forbid", strict=True):
    name: str = ""
    nodes: Annotated[list[_NodeTable], Field(min_length=1)]
    partitions: list[_PartitionTable] = []


class Whole(NamedTuple):
    """All that a cluster has."""

    gpus: int
    cpus: int
    nodes: int


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
    def whole(self) -> Whole:
        return Whole(self.gpus, sum(n.total.cpus for n in self.nodes), len(self.nodes))

    @property
    def default_partition(self) -> str:
        """The partition of a job that names none: the default one, else the first."""
        for partition in self.partitions:
            if partition.default:
                return partition.name
        return self.partitions[0].name


def read_cluster(path: Path) -> Cluster:
    """Read a cluster TOML. Raises TraceError: names the file and the field."""
    try:
        refuse_device(path)
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is not UTF-8 text: {error}") from error
    return parse_cluster(text, str(path), path.stem)


def parse_cluster(text: str, source: str, name: str) -> Cluster:
    """As `read_cluster`, for the text of a file; source stands in the messages."""
    try:
        tables = _File.model_validate(tomllib.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        at = "".join(f"[{p + 1}]" if isinstance(p, int) else f": {p}" for p in first["loc"])
        raise TraceError(f"{source}{at}: {first['msg']}") from error
    # also numbers of thousands of digits, and deep nesting
    except (ValueError, RecursionError, MemoryError) as error:
        raise TraceError(f"{source}: not TOML: {error}") from error
    partitions = _partitions(tables.partitions, source)
    nodes = _nodes(tables.nodes, source, [p.name for p in partitions])
    if not partitions:
        names = dict.fromkeys(p for n in nodes for p in n.partitions)
        partitions = tuple(Partition(p, default=i == 0) for i, p in enumerate(names))
    return Cluster(tables.name or name, nodes, partitions)


def _partitions(tables: Sequence[_PartitionTable], source: str) -> tuple[Partition, ...]:
    names = [table.name for table in tables]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise TraceError(f"{source}: partitions[{position + 1}]: name {name!r} stands twice")
    if sum(table.default for table in tables) > 1:
        raise TraceError(f"{source}: partitions: more than one default")
    return tuple(Partition(**table.model_dump()) for table in tables)


def _nodes(tables: Sequence[_NodeTable], source: str, declared: list[str]) -> tuple[Node, ...]:
    found: dict[str, Node] = {}
    for position, table in enumerate(tables, 1):
        where = f"{source}: nodes[{position}]"
        members = tuple(table.partitions or declared or ("main",))
        for member in members:
            if declared and member not in declared:
                raise TraceError(f"{where}: partitions: no [[partitions]] named {member!r}")
        try:
            names = expand_hosts(table.name, most=MAX_NODES_PER_ENTRY)
        except ValueError as error:
            raise TraceError(f"{where}: name: {error}") from error
        total = Resources(table.gpus, table.cpus, table.mem_mib)
        for name in names:
            if name in found:
                raise TraceError(f"{where}: name: node {name} stands twice")
            found[name] = idle_node(name, GpuType(table.gpu_type), total, members)
    return tuple(found[name] for name in sorted(found))


def idle_node(name: str, gpu_type: GpuType, total: Resources, partitions: tuple[str, ...]) -> Node:
    """A node on which nothing runs."""
    gpus = (GpuCount(gpu_type, total.gpus, total.gpus),) if total.gpus else ()
    return Node(NodeName(name), gpus, total, total, True, partitions, "IDLE")


# Clusters known by name, so that a comparison needs no file.


def uniform(*groups: tuple[str, int, str, int, int], mem_mib: int = 60_000, limit: str = "") -> str:
    """TOML of node groups (prefix, count, GPU type, GPUs, CPUs), mem_mib per GPU, in one partition;
    limit: its line for the longest one.
    """
    text = f'[[partitions]]\nname = "gpu"\ndefault = true\n{limit}\n'
    for prefix, count, gpu_type, gpus, cpus in groups:
        digits = len(str(count))
        text += (
            f'\n[[nodes]]\nname = "{prefix}[{"1".zfill(digits)}-{count}]"\n'
            f'gpu_type = "{gpu_type}"\ngpus = {gpus}\ncpus = {cpus}\n'
            f'mem_mib = {gpus * mem_mib}\npartitions = ["gpu"]\n'
        )
    return text


PRESETS = {
    # RLTune's: 13 GPUs of three types on five nodes
    "testbed": uniform(
        ("p", 2, "p100", 4, 16),
        ("k", 2, "k80", 2, 8),
        ("m", 1, "m40", 1, 4),
        mem_mib=16_000,
        limit="max_time_s = 86400",
    ),
    # the slice of 192 GPUs that RLTune's repository simulates
    "philly-192": uniform(("a", 16, "p100", 2, 12), ("b", 20, "p100", 8, 48)),
    # all of Philly: 321 nodes with 2 GPUs, 231 with 8 (Jeon et al., ATC'19)
    "philly-2490": uniform(("a", 321, "p100", 2, 12), ("b", 231, "p100", 8, 48)),
    # Helios Venus: 135 nodes with 8 GPUs (Hu et al., SC'21)
    "helios-1080": uniform(("v", 135, "v100", 8, 48)),
    # a tenth of Alibaba PAI's typed machines (Weng et al., NSDI'22)
    "pai-674": uniform(
        ("h", 10, "V100", 8, 96),
        ("j", 14, "V100M32", 8, 96),
        ("m", 28, "MISC", 8, 96),
        ("p", 80, "P100", 2, 64),
        ("t", 49, "T4", 2, 96),
    ),
}
"""Name -> cluster TOML."""


def preset(name: str) -> Cluster:
    """A cluster by name. Raises TraceError: there is none of that name."""
    if name not in PRESETS:
        raise TraceError(f"no cluster named {name!r}; there are {', '.join(PRESETS)}")
    return parse_cluster(PRESETS[name], f"preset {name}", name)


def cluster_named(name: str) -> Cluster:
    """A cluster file, or a preset when there is no such file. Raises TraceError."""
    path = Path(name)
    # a name without a folder or an ending is meant as a preset's
    by_name = not path.exists() and path.name == name and not path.suffix
    return preset(name) if by_name else read_cluster(path)
