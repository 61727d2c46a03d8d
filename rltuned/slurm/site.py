"""What `scontrol show config` says about the site, as far as reading and writing depend on it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rltuned.domain.priority import PrioritySystem
from rltuned.errors import SnapshotError
from rltuned.slurm.priorities import read_system

_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_PARTITION: Final = re.compile(r"PartitionName=(?P<name>\S+) .*? Exclusive=(?P<exclusive>\S+)")
_FIRST_WITH_LIMIT: Final = (23, 2)
_BUCKET: Final = 30
_REFILL: Final = 2
"""Slurm's defaults of rl_bucket_size and rl_refill_rate."""


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """The settings that change what Slurm's answers mean.

    Attributes:
        cluster: ClusterName.
        version: of slurmctld, such as (22, 5).
        priorities: how slurmctld turns waiting into priority.
        memory_counts: CR_*_Memory: memory is handed out, and a job's figure means something.
        preemption: whether jobs may be preempted.
        increase_only: PriorityFlags=INCR_ONLY: slurmctld lowers no priority when it counts again.
        exclusive_partitions: those that give whole nodes, where sinfo does not show it (26.05).
    """

    cluster: str
    version: tuple[int, int]
    priorities: PrioritySystem
    memory_counts: bool
    preemption: bool
    increase_only: bool = False
    exclusive_partitions: frozenset[str] = frozenset()

    @property
    def multifactor(self) -> bool:
        """priority/multifactor runs, so sprio answers and SiteFactor has an effect."""
        return self.priorities.kind == "multifactor"


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


def read_site(config: Mapping[str, str]) -> SlurmSite:
    """The site behind a parsed configuration.

    Raises:
        SnapshotError: a key that we depend on is missing or cannot be read, or PriorityType is
            neither priority/basic nor priority/multifactor.
    """
    for key in ("ClusterName", "SLURM_VERSION", "SelectTypeParameters", "PreemptType"):
        if key not in config:
            raise SnapshotError(f"scontrol show config: no {key} in the answer")
    version = _VERSION.match(config["SLURM_VERSION"])
    if version is None:
        raise SnapshotError(f"scontrol show config: version {config['SLURM_VERSION'][:40]!r}")
    return SlurmSite(
        cluster=config["ClusterName"],
        version=(int(version[1]), int(version[2])),
        priorities=read_system(config),
        memory_counts="MEMORY" in config["SelectTypeParameters"].upper(),
        preemption=config["PreemptType"] not in {"", "preempt/none"},
        increase_only="INCR_ONLY" in config.get("PriorityFlags", "").upper().split(","),
    )


@dataclass(frozen=True, slots=True)
class RateLimit:
    """slurmctld's limit per user (SlurmctldParameters=rl_enable, 23.02 and later)."""

    bucket: int
    refill: int


def read_rate_limit(config: Mapping[str, str]) -> RateLimit | None:
    """The limit in force; None = there is none."""
    options = config.get("SlurmctldParameters", "").split(",")
    version = _VERSION.match(config.get("SLURM_VERSION", ""))
    release = (int(version[1]), int(version[2])) if version else (0, 0)
    if "rl_enable" not in options or release < _FIRST_WITH_LIMIT:
        return None
    said = dict(option.split("=", 1) for option in options if "=" in option)

    def number(name: str, default: int) -> int:
        text = said.get(name, "")
        return int(text) if text.isdigit() else default

    return RateLimit(number("rl_bucket_size", _BUCKET), number("rl_refill_rate", _REFILL))
