"""Free amounts of nodes: what is taken, restored, and never more than there is."""

import pytest

from rltuned.core.capacity import Capacity
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import Share
from rltuned.domain.units import NodeName
from tests.builders import node, snapshot

WHOLE = Resources(4, 8, 32_000)


def world() -> tuple[Capacity, Share]:
    nodes = [node(gpus=4, cpus=8, mem_mib=32_000)]
    capacity = Capacity.of(snapshot(nodes=nodes))
    (one,) = nodes
    return capacity, Share(NodeName(one.name), WHOLE, one.gpus[0].gpu_type)


def free(capacity: Capacity) -> tuple[int, int, int]:
    return (
        int(capacity.free_gpus.sum()),
        int(capacity.free_cpus.sum()),
        int(capacity.free_mem_mib.sum()),
    )


def test_what_is_taken_is_given_back() -> None:
    capacity, share = world()
    assert free(capacity) == (4, 8, 32_000)
    capacity.take((share,))
    assert free(capacity) == (0, 0, 0)
    assert not capacity.untouched().any()
    with pytest.raises(ValueError, match="is more than is free"):
        capacity.take((share,))
    capacity, share = world()
    capacity.take((share,))
    capacity.give((share,))
    assert free(capacity) == (4, 8, 32_000)
    assert capacity.untouched().all()


def test_free_is_never_more_than_there_is() -> None:
    capacity, share = world()
    capacity.give((share,))
    assert free(capacity) == (8, 16, 64_000)
    capacity.cap()
    assert free(capacity) == (4, 8, 32_000)
