"""How the site's own Slurm orders its queue, as far as a replay can play it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rltuned.errors import SnapshotError
from rltuned.slurm.commands import Commands
from rltuned.slurm.site import parse_config
from rltuned.slurm.values import absent, parse_limit_s, parse_number

BASIC: Final = "priority/basic"
MULTIFACTOR: Final = "priority/multifactor"
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
    kind = _value(config, "PriorityType")
    if kind == BASIC:
        return Weights(basic=True)
    if kind != MULTIFACTOR:
        raise SnapshotError(f"scontrol show config: PriorityType {kind[:60]!r} is not known")
    max_age_s = _max_age_s(_value(config, "PriorityMaxAge"))
    counts = [(name, _weight(config, name)) for name in _OTHERS]
    told = [f"{name} {weight}" for name, weight in counts if weight]
    tres = config.get("PriorityWeightTRES", "")
    told += [f"TRES {tres[:120]}"] if not absent(tres) else []
    flags = config.get("PriorityFlags", "")
    told += [f"flags {flags[:120]}"] if not absent(flags) else []
    plugin = config.get("PrioritySiteFactorPlugin", "")
    told += [f"site factor of {plugin[:60]}"] if not absent(plugin) else []
    return Weights(
        basic=False,
        age=_weight(config, "Age"),
        size=_weight(config, "JobSize"),
        partition=_weight(config, "Partition"),
        max_age_s=max_age_s,
        favor_small=_value(config, "PriorityFavorSmall").lower() == "yes",
        others=tuple(told),
    )


def _value(config: Mapping[str, str], key: str) -> str:
    if key not in config:
        raise SnapshotError(f"scontrol show config: no {key} in the answer")
    return config[key]


def _weight(config: Mapping[str, str], name: str) -> int:
    key = f"PriorityWeight{name}"
    try:
        return parse_number(_value(config, key))
    except ValueError as error:
        raise SnapshotError(f"scontrol show config: {key}: {error}") from None


def _max_age_s(text: str) -> float:
    try:
        found = parse_limit_s(text)
    except ValueError as error:
        raise SnapshotError(f"scontrol show config: PriorityMaxAge: {error}") from None
    if found is None:
        raise SnapshotError(f"scontrol show config: PriorityMaxAge: {text[:40]!r} is no time")
    return found


def ask_weights(commands: Commands, cluster: str) -> Weights:
    """The weights of a cluster, by one `scontrol show config`.

    Raises:
        BackendError: scontrol failed.
        SnapshotError: its answer lacks something, or is another cluster's.
    """
    config = parse_config(commands.ask("scontrol", "show", "config").stdout)
    name = _value(config, "ClusterName")
    if name != cluster:
        raise SnapshotError(f"Slurm here is cluster {name[:60]!r}, the record is of {cluster!r}")
    return read_weights(config)
