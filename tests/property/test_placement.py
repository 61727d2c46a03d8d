"""A placement takes what was asked, never more than there is, and agrees with the survey."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.capacity import Capacity
from rltuned.core.features import encode
from rltuned.core.placement import PlacementRule, place
from rltuned.core.pools import shapes_of, survey
from rltuned.domain.cluster import Node, Resources
from rltuned.domain.jobs import PendingJob, Request
from rltuned.domain.snapshot import Snapshot
from tests.builders import job, node, request, snapshot, sure
from tests.examples import examples
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


@examples(400, whole=5_000)
@given(worlds.snapshots(), st.sampled_from(RULES))
def test_every_job_goes_where_a_naive_scheduler_puts_it(world: Snapshot, rule: str) -> None:
    """Node by node, with dicts, from the rules of docs/simulator.md."""
    capacity = Capacity.of(world)
    for pending in world.pending:
        found = place(pending, capacity, rule)  # type: ignore[arg-type]
        taken = None if found is None else [(s.node, s.taken) for s in found.shares]
        assert taken == naively(pending, world, rule)


def naively(asks: PendingJob, world: Snapshot, rule: str) -> list[tuple[str, Resources]] | None:
    wanted, need, best = asks.request, asks.request.total, []
    mine = [n for n in world.nodes if set(n.partitions) & set(asks.partitions)]
    types = wanted.gpu_types or sorted({g.gpu_type for n in mine for g in n.gpus})
    by_type = {
        kind: [
            n for n in mine if kind is None or any(g.gpu_type == kind and g.total for g in n.gpus)
        ]
        for kind in (types if need.gpus else (None,))
    }
    counts = {kind: naive_count(wanted, nodes) for kind, nodes in by_type.items()}
    fewest = min((count for count in counts.values() if count), default=None)
    for kind, count in counts.items():
        if count is None or count != fewest:
            continue
        now = [n for n in by_type[kind] if n.schedulable and naive_room(wanted, count, n, "free")]
        if wanted.exclusive:
            now = [n for n in now if n.free == n.total]
        sign = {"pack": 1, "spread": -1, "first": 0}[rule]
        now.sort(key=lambda n: (sign * n.free.gpus, n.name))
        larger = need.gpus % count
        big = [n for n in now if n.free.gpus > need.gpus // count][:larger]
        chosen = (big + [n for n in now if n not in big])[:count]
        if len(chosen) == count and len(big) == larger:
            idle = sign * sum(n.free.gpus for n in chosen)
            best.append((idle, sorted(n.name for n in chosen), chosen))
    if not best or fewest is None:
        return None
    nodes = min(best, key=lambda one: one[:2])[2]
    if wanted.exclusive:
        gpus = [n.total.gpus if need.gpus else 0 for n in nodes]  # idle GPUs stay nobody's
        whole = (
            Resources(g, n.total.cpus, n.total.mem_mib) for g, n in zip(gpus, nodes, strict=True)
        )
        return list(zip((n.name for n in nodes), whole, strict=True))
    amounts = need.gpus, need.cpus, need.mem_mib
    even = [[x // fewest + (at < x % fewest) for x in amounts] for at in range(fewest)]
    return [(n.name, Resources(*each)) for n, each in zip(nodes, even, strict=True)]


def naive_count(wanted: Request, nodes: list[Node]) -> int | None:
    """The fewest of these nodes that could carry it idle. What one node has the GPUs for is not
    split for its CPUs or memory.
    """
    need, most = wanted.total, len(nodes)
    counts = [wanted.nodes] if wanted.nodes else list(range(1, most + 1))
    if not wanted.nodes and need.gpus:
        counts = list(range(1, min(need.gpus, most) + 1))
        if any(n.total.gpus >= need.gpus for n in nodes):
            counts = [1]
    for count in counts:
        could = [n for n in nodes if naive_room(wanted, count, n, "total")]
        big = [n for n in could if n.total.gpus > need.gpus // count]
        if len(could) >= count and len(big) >= need.gpus % count:
            return count
    return None


def naive_room(wanted: Request, count: int, on: Node, which: str) -> bool:
    """Whether a node has room for a smaller share."""
    has, need = getattr(on, which), wanted.total
    cpus, mem_mib = math.ceil(need.cpus / count), math.ceil(need.mem_mib / count)
    return bool(has.cpus >= cpus and has.mem_mib >= mem_mib and has.gpus >= need.gpus // count)


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
