"""What `scontrol show config` says about the site, as far as reading and writing depend on it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rltuned.errors import SnapshotError

_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_PARTITION: Final = re.compile(r"PartitionName=(?P<name>\S+) .*? Exclusive=(?P<exclusive>\S+)")


@dataclass(frozen=True, slots=True)
class Site:
    """The settings that change what Slurm's answers mean.

    Attributes:
        cluster: ClusterName.
        version: of slurmctld, such as (22, 5).
        multifactor: priority/multifactor runs, so sprio answers and SiteFactor has an effect.
        memory_counts: CR_*_Memory: memory is handed out, and a job's figure means something.
        preemption: whether jobs may be preempted.
        all_factors_shown: sprio's columns that we read hold every weighted factor of this site, so
            a line of zeros with a priority is one that was set directly.
        exclusive_partitions: those that give whole nodes, where sinfo does not show it (26.05).
    """

    cluster: str
    version: tuple[int, int]
    multifactor: bool
    memory_counts: bool
    preemption: bool
    all_factors_shown: bool
    exclusive_partitions: frozenset[str] = frozenset()


def parse_config(text: str) -> dict[str, str]:
    """The "Key = value" lines of `scontrol show config`; "(null)" becomes empty."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() and not line.startswith(" "):
            found.setdefault(key.strip(), value.strip().replace("(null)", ""))
    return found


def read_exclusive_partitions(text: str) -> frozenset[str]:
    """The partitions with Exclusive=NODE in `scontrol -o show partitions` of 26.05.

    Raises:
        SnapshotError: a line is not one of a partition, or does not tell.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _PARTITION.match(line)
        if match is None:
            raise SnapshotError(f"scontrol show partitions: {line[:80]!r} is no partition")
        found[match["name"]] = match["exclusive"]
    return frozenset(name for name, exclusive in found.items() if exclusive == "NODE")


def read_site(config: Mapping[str, str]) -> Site:
    """The site behind a parsed configuration.

    Raises:
        SnapshotError: a key that we depend on is missing, or the version cannot be read.
    """
    for key in (
        "ClusterName",
        "SLURM_VERSION",
        "PriorityType",
        "SelectTypeParameters",
        "PreemptType",
    ):
        if key not in config:
            raise SnapshotError(f"scontrol show config: no {key} in the answer")
    version = _VERSION.match(config["SLURM_VERSION"])
    if version is None:
        raise SnapshotError(f"scontrol show config: version {config['SLURM_VERSION'][:40]!r}")
    return Site(
        cluster=config["ClusterName"],
        version=(int(version[1]), int(version[2])),
        multifactor=config["PriorityType"] == "priority/multifactor",
        memory_counts="MEMORY" in config["SelectTypeParameters"].upper(),
        preemption=config["PreemptType"] not in {"", "preempt/none"},
        all_factors_shown=config.get("PriorityWeightTRES") == ""
        and config.get("PriorityWeightAssoc") == "0",
    )
