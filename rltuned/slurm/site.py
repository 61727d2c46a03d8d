"""What `scontrol show config` says about the site, as far as reading and writing depend on it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rltuned.errors import SnapshotError
from rltuned.slurm.values import absent

_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_PARTITION: Final = re.compile(r"PartitionName=(?P<name>\S+) .*? Exclusive=(?P<exclusive>\S+)")
_MULTIFACTOR: Final = "priority/multifactor"
_WEIGHT: Final = "PriorityWeight"
_WHOLE: Final = re.compile(r"(?:^|=)(\d+)")
_FIRST_WITH_LIMIT: Final = (23, 2)
_BUCKET: Final = 30
_REFILL: Final = 2
"""Slurm's defaults of rl_bucket_size and rl_refill_rate."""


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
        increase_only: PriorityFlags=INCR_ONLY: the priorities of a job of several partitions never
            go down again.
        exclusive_partitions: those that give whole nodes, where sinfo does not show it (26.05).
    """

    cluster: str
    version: tuple[int, int]
    multifactor: bool
    memory_counts: bool
    preemption: bool
    all_factors_shown: bool
    increase_only: bool = False
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
        increase_only="INCR_ONLY" in config.get("PriorityFlags", "").upper().split(","),
    )


@dataclass(frozen=True, slots=True)
class Priorities:
    """How Slurm orders its queue, for people.

    Attributes:
        kind: PriorityType; "" = not known.
        weights: name of a factor -> its weight, those that count.
        plugin: PrioritySiteFactorPlugin; "" = none.
    """

    kind: str = ""
    weights: Mapping[str, str] = field(default_factory=dict)
    plugin: str = ""

    @property
    def site_factor_works(self) -> bool:
        """Whether what we add to a job's sum counts, and stays."""
        return self.kind == _MULTIFACTOR and not self.plugin

    @property
    def span(self) -> int:
        """The largest sum that the factors can come to, all parts of PriorityWeightTRES counted."""
        return sum(int(n) for text in self.weights.values() for n in _WHOLE.findall(text))

    @property
    def advice(self) -> str:
        """Which write mode fits, and why."""
        if self.site_factor_works:
            return "multifactor runs here, so site factors are written: QOS and fair share stay."
        if self.plugin:
            return f"{self.plugin} sets site factors here, so Priority= is written."
        return f"{self.kind or 'This queue'} knows no site factors, so Priority= is written."

    def __str__(self) -> str:
        if self.kind != _MULTIFACTOR:
            return self.kind or "not known"
        told = ", ".join(f"{name} {weight}" for name, weight in self.weights.items())
        return f"{self.kind}, weights: {told or 'all 0'}"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """slurmctld's limit per user (SlurmctldParameters=rl_enable, 23.02 and later)."""

    bucket: int
    refill: int


def read_priorities(config: Mapping[str, str]) -> Priorities:
    """PriorityType, the weights that are not 0, and who else writes site factors."""
    weights = {
        key.removeprefix(_WEIGHT): value
        for key, value in config.items()
        if key.startswith(_WEIGHT) and value not in {"", "0"}
    }
    plugin = config.get("PrioritySiteFactorPlugin", "")
    if absent(plugin) or plugin.endswith("/none"):
        plugin = ""
    return Priorities(config.get("PriorityType", ""), weights, plugin)


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
