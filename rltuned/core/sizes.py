"""How large a job is: what it takes away from others."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rltuned.core.capacity import Capacity
from rltuned.core.pools import units_of
from rltuned.domain.jobs import Request

FloatArray = NDArray[np.float64]

MOST_OF_A_NODE: Final = 0.5
"""A job that asks for more of a node's CPUs or memory than this makes GPUs unusable to others."""


class Sizes:
    """What jobs take away from others, in GPUs, on one cluster; for a job without GPUs on nodes
    that have none, in nodes.

    A job takes the GPUs that it asks for. An exclusive one takes all of its nodes. One that asks
    for more than half of a node's CPUs or memory takes that part of the node's GPUs, as no other
    job can use them; a job without GPUs takes its part whatever it is.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._nodes: dict[tuple[tuple[str, ...], tuple[int, ...]], FloatArray] = {}

    def of(self, request: Request, partitions: tuple[str, ...]) -> float:
        """GPUs, at least 1."""
        asked = request.size
        units, cpus, mem_mib, most_gpus, most_cpus, most_mem = self._node(request, partitions)
        fewest = (asked.gpus / most_gpus, asked.cpus / most_cpus, asked.mem_mib / most_mem)
        width = request.nodes or max(1, *(int(np.ceil(part)) for part in fewest))
        part = max(asked.cpus / cpus, asked.mem_mib / mem_mib) / width
        if request.exclusive:
            part = 1.0
        elif asked.gpus and part <= MOST_OF_A_NODE:
            part = 0.0
        return float(max(asked.gpus, width * units * min(part, 1.0), 1.0))

    def _node(self, request: Request, partitions: tuple[str, ...]) -> FloatArray:
        """(6,) mean GPUs, CPUs and MiB of a node that the job could run on, and the most of each.
        Where no node has GPUs, one node is one unit.
        """
        capacity = self._capacity
        key = partitions, capacity.accepted(request)
        if key not in self._nodes:
            has = units_of(*key, capacity) > 0
            if not has.any():
                has = np.ones(len(capacity.names), dtype=bool)
            gpus = capacity.total_gpus.sum(axis=0)[has]
            columns = (gpus, capacity.total_cpus[has], capacity.total_mem_mib[has])
            table = [np.mean(c) if len(c) else 0.0 for c in columns]
            table += [np.max(c, initial=0) for c in columns]
            if not table[0]:
                table[0] = 1.0
            self._nodes[key] = np.maximum(np.array(table, dtype=np.float64), [1e-9] * 3 + [1.0] * 3)
        return self._nodes[key]
