"""The priority that the simulated Slurm gives a job by itself.

`fcfs` is priority/basic: every new job stands just below the one before. `multifactor` is
priority/multifactor with age, size and partition (the associations that fair share would need are
not in a trace): a weighted sum that grows while the job waits.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from rltuned.domain.cluster import Resources
from rltuned.domain.priority import PrioritySystem

FIRST_PRIORITY = 4_294_901_759
"""What priority/basic gives the first job; later ones get one less each (slurm.conf(5))."""


class Whole(NamedTuple):
    """All that a cluster has; nothing is counted as one, so that shares exist."""

    gpus: int
    cpus: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Natural:
    """Weights as in slurm.conf, in points; max_age_s: of the full age factor. favor_small: size
    counts for the small jobs. size_of: `gpus`: the share of the GPUs; `nodes`: mean share of nodes
    and CPUs, as in Slurm. base: of every job; own: of each, by its number from 1 (fair share, QOS
    ...).
    """

    kind: Literal["fcfs", "multifactor"] = "fcfs"
    age_weight: int = 10_000
    size_weight: int = 1_000
    partition_weight: int = 1_000
    max_age_s: float = 7 * 86_400.0
    favor_small: bool = False
    size_of: Literal["gpus", "nodes"] = "gpus"
    own: tuple[int, ...] = ()
    base: int = 0

    def priority(
        self, *, number: int, waited_s: float, size_share: float, partition_share: float
    ) -> int:
        """At least 1, as 0 would hold the job. number: in submit order, from 1. size_share: of the
        cluster, 0..1. partition_share: its factor as a part of the largest, 0..1.
        """
        if self.kind == "fcfs":
            return max(1, FIRST_PRIORITY - number + 1)
        size = 1.0 - size_share if self.favor_small else size_share
        points = (
            self.base
            + (self.own[number - 1] if self.own else 0)
            + self.age_weight * min(1.0, waited_s / self.max_age_s)
            + self.size_weight * size
            + self.partition_weight * partition_share
        )
        return max(1, int(points))

    @property
    def system(self) -> PrioritySystem:
        """The same as a scheduler reads it."""
        if self.kind == "fcfs":
            return PrioritySystem("basic")
        return PrioritySystem(
            "multifactor", ages=True, age_weight=self.age_weight, max_age_s=self.max_age_s
        )

    def size(self, asked: Resources, nodes: int | None, whole: Whole) -> float:
        """How much of the cluster a request is, 0..1."""
        if self.size_of == "gpus":
            return asked.gpus / max(1, whole.gpus)
        share = (nodes or 1) / max(1, whole.nodes) + asked.cpus / max(1, whole.cpus)
        return min(1.0, share / 2)


AGE_ONLY = Natural(
    kind="multifactor",
    age_weight=31_536_000,
    size_weight=0,
    partition_weight=0,
    max_age_s=31_536_000.0,
    base=10_000_000,
)
"""A site that orders by age alone, a point for every second: first come, first served. The base
leaves room for delays."""
