"""How the site's own Slurm orders its queue, as far as a replay can play it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rltuned.errors import SnapshotError
from rltuned.slurm.commands import Commands
from rltuned.slurm.priorities import read_system, value, weight
from rltuned.slurm.site import parse_config
from rltuned.slurm.values import absent

_OTHERS: Final = ("FairShare", "QOS", "Assoc")


@dataclass(frozen=True, slots=True)
class Weights:
    """PriorityWeight* and what belongs to it.

    Attributes:
        basic: priority/basic: first come, first served, and no weight counts.
        age, size, partition: points at the factor's full value.
        max_age_s: a job that has waited so long has the full age factor.
        favor_small: PriorityFavorSmall.
        others: further things that count on this site, in Slurm's words ("FairShare 10000").
    """

    basic: bool
    age: int = 0
    size: int = 0
    partition: int = 0
    max_age_s: float = math.inf
    favor_small: bool = False
    others: tuple[str, ...] = ()


def read_weights(config: Mapping[str, str]) -> Weights:
    """The weights in a parsed configuration.

    Raises:
        SnapshotError: a key is missing or cannot be read, or the priority plugin is another one.
    """
    system = read_system(config)
    if system.kind == "basic":
        return Weights(basic=True)
    counts = [(name, weight(config, name)) for name in _OTHERS]
    told = [f"{name} {points}" for name, points in counts if points]
    tres = config.get("PriorityWeightTRES", "")
    told += [f"TRES {tres[:120]}"] if not absent(tres) else []
    flags = config.get("PriorityFlags", "")
    told += [f"flags {flags[:120]}"] if not absent(flags) else []
    plugin = system.site_factor_plugin
    told += [f"site factor of {plugin[:60]}"] if plugin else []
    return Weights(
        basic=False,
        age=system.age_weight,
        size=weight(config, "JobSize"),
        partition=weight(config, "Partition"),
        max_age_s=system.max_age_s,
        favor_small=value(config, "PriorityFavorSmall").lower() == "yes",
        others=tuple(told),
    )


def ask_weights(commands: Commands, cluster: str) -> Weights:
    """The weights of a cluster, by one `scontrol show config`.

    Raises:
        BackendError: scontrol failed.
        SnapshotError: its answer lacks something, or is another cluster's.
    """
    config = parse_config(commands.ask("scontrol", "show", "config").stdout)
    name = value(config, "ClusterName")
    if name != cluster:
        raise SnapshotError(f"Slurm here is cluster {name[:60]!r}, the record is of {cluster!r}")
    return read_weights(config)
