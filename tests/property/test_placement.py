"""A placement takes what was asked, never more than there is, and agrees with the survey."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.capacity import Capacity
from rltuned.core.features import encode
from rltuned.core.placement import PlacementRule, place
from rltuned.core.pools import shapes_of, survey
from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Snapshot
from tests.builders import job, node, request, snapshot, sure
from tests.property import worlds

RULES: tuple[PlacementRule, ...] = ("pack", "spread", "first")


@given(worlds.snapshots(), st.sampled_from(RULES))
def test_what_is_placed_is_the_request_on_usable_nodes_of_its_partition(
    world: Snapshot, rule: PlacementRule
) -> None:
    capacity = Capacity.of(world)
    by_name = {n.name: n for n in world.nodes}
    for pending in world.pending:
        found = place(pending, capacity, rule)
        if found is None:
            continue
        wanted = pending.request
        on = [by_name[s.node] for s in found.shares]
        assert len({n.name for n in on}) == len(on)
        assert all(n.schedulable and set(n.partitions) & set(pending.partitions) for n in on)
        assert wanted.nodes in (None, len(on))
        assert len({s.gpu_type for s in found.shares}) == 1
        if wanted.exclusive:
            assert all(n.free == n.total for n in on)
            assert all(s.taken.cpus == n.total.cpus for s, n in zip(found.shares, on, strict=True))
        else:
            total = Resources()
            for share in found.shares:
                total += share.taken
            assert total == wanted.total
            spread = [s.taken.gpus for s in found.shares]
            assert max(spread) - min(spread) <= 1
        if wanted.gpu_types and wanted.total.gpus:
            assert found.shares[0].gpu_type in wanted.gpu_types


@given(worlds.snapshots())
def test_placing_a_whole_queue_never_overdraws_a_node(world: Snapshot) -> None:
    capacity = Capacity.of(world)
    before = capacity.copy()
    placed = []
    for pending in world.pending:
        found = place(pending, capacity)
        if found is not None:
            capacity.take(found.shares)  # raises when it overdraws
            placed.append(found)
    for found in placed:
        capacity.give(found.shares)
    assert np.array_equal(capacity.free.of_type, before.free.of_type)
    assert np.array_equal(capacity.free.cpus, before.free.cpus)
    assert np.array_equal(capacity.free.mem_mib, before.free.mem_mib)


@given(worlds.snapshots())
def test_the_survey_of_the_queue_says_what_placing_one_by_one_says(world: Snapshot) -> None:
    capacity = Capacity.of(world)
    found = survey(shapes_of(world.pending, capacity), world, capacity)
    one_by_one = [float(place(j, capacity) is not None) for j in world.pending]
    assert found.fits.tolist() == one_by_one
    assert ((found.ways > 0) == (found.fits > 0)).all()


@given(worlds.snapshots())
def test_every_feature_is_finite_and_within_its_range(world: Snapshot) -> None:
    values = encode(world.pending, world).values
    assert np.isfinite(values).all()
    assert (values >= 0).all()
    assert (values <= 1).all()


@given(worlds.snapshots(), st.randoms(use_true_random=False))
def test_features_do_not_depend_on_the_order_of_the_rows(world: Snapshot, shuffler: object) -> None:
    order = list(range(len(world.pending)))
    shuffler.shuffle(order)  # type: ignore[attr-defined]
    chosen = tuple(world.pending[i] for i in order)
    assert np.array_equal(encode(chosen, world).values, encode(world.pending, world).values[order])


def test_cpus_widen_a_job_that_needs_several_nodes_anyway() -> None:
    world = snapshot(
        job(1, gpus=8, cpus=64, mem_mib=8_000), nodes=[node(f"p{i}") for i in range(1, 5)]
    )
    capacity = Capacity.of(world)
    found = sure(place(world.pending[0], capacity))
    assert [s.taken for s in found.shares] == [Resources(2, 16, 2_000)] * 4
    assert survey(shapes_of(world.pending, capacity), world, capacity).ways.tolist() == [1.0]


def nodes_of(world: tuple[Node, ...], asks: PendingJob, rule: PlacementRule = "pack") -> list[str]:
    found = place(asks, Capacity.of(snapshot(nodes=world)), rule)
    return [] if found is None else [f"{s.node}:{s.taken.gpus}" for s in found.shares]


SMALL = (
    node("p1", gpus=4, free_gpus=2),
    node("p2", gpus=4, free_gpus=4),
    node("k1", gpu_type="k80", gpus=2, cpus=8),
    node("k2", gpu_type="k80", gpus=2, cpus=8),
)


@pytest.mark.parametrize(
    ("fields", "pack", "spread"),
    [
        ({"gpus": 1}, ["k1:1"], ["p2:1"]),
        ({"gpus": 2}, ["k1:2"], ["p2:2"]),
        ({"gpus": 2, "gpu_types": ("p100",)}, ["p1:2"], ["p2:2"]),
        # three GPUs fit on one p100 node, so two k80 nodes are not used
        ({"gpus": 3}, ["p2:3"], ["p2:3"]),
        ({"gpus": 6, "gpu_types": ("p100",)}, [], []),
        ({"gpus": 4, "gpu_types": ("k80",)}, ["k1:2", "k2:2"], ["k1:2", "k2:2"]),
        # five on two p100 nodes are 3 + 2: the larger share goes where it fits
        ({"gpus": 5}, ["p2:3", "p1:2"], ["p2:3", "p1:2"]),
        ({"gpus": 0, "cpus": 8}, ["k1:0"], ["p2:0"]),
        ({"gpus": 9}, [], []),
        # one GPU on two nodes: the other node is of the type as well
        (
            {"asks": request(gpus=1, gpu_types=("k80",), nodes=2)},
            ["k1:1", "k2:0"],
            ["k1:1", "k2:0"],
        ),
        # two nodes have the GPUs, but only four would have the CPUs, and there are not so many
        ({"gpus": 8, "gpu_types": ("p100",), "cpus": 64}, [], []),
        ({"gpus": 1, "cpus": 17}, [], []),
        ({"gpus": 1, "required_nodes": ("p1",)}, [], []),
    ],
)
def test_placements_by_hand(fields: dict[str, object], pack: list[str], spread: list[str]) -> None:
    asks = job(**fields)  # type: ignore[arg-type]
    assert nodes_of(SMALL, asks) == pack
    assert nodes_of(SMALL, asks, "spread") == spread


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"gpus": 1}, ["k1:1"]),
        ({"gpus": 1, "gpu_types": ("p100",)}, ["p1:1"]),
        ({"gpus": 3}, ["p2:3"]),
        ({"gpus": 4, "gpu_types": ("k80",)}, ["k1:2", "k2:2"]),
    ],
)
def test_first_fit_goes_by_name(fields: dict[str, object], where: list[str]) -> None:
    assert nodes_of(SMALL, job(**fields), "first") == where  # type: ignore[arg-type]
