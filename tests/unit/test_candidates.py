"""Candidate placements of one job, by example."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltuned.core.capacity import Capacity
from rltuned.core.milp.candidates import Candidate, CandidateGenerator, PlacementKind, SearchBounds
from rltuned.core.milp.costs import CostModel
from rltuned.domain.cluster import Node
from rltuned.domain.jobs import Request
from tests.builders import node, request, snapshot
from tests.property import worlds

ALL = SearchBounds(most=1_000, max_patterns=10_000)


def ways(
    nodes: list[Node],
    asks: Request,
    lens: CostModel | None = None,
    bounds: SearchBounds = ALL,
    turn: int = 0,
) -> tuple[Candidate, ...]:
    capacity = Capacity.of(snapshot(nodes=nodes))
    member = capacity.members_of(("gpu",))
    return CandidateGenerator(capacity, lens or CostModel(), bounds).candidates(asks, member, turn)


def on(way: Candidate) -> str:
    return "+".join(f"{s.node}:{s.taken.gpus}" for s in way.shares)


def test_packing_and_spreading_come_first() -> None:
    found = ways([node("a", free_gpus=2), node("b", free_gpus=1), node("c")], request(gpus=1))
    assert [(w.kind, on(w)) for w in found] == [
        (PlacementKind.PACK, "b:1"),
        (PlacementKind.SPREAD, "c:1"),
        (PlacementKind.MIX, "a:1"),
    ]


def test_alike_nodes_count_once_and_turns_part_ways() -> None:
    alike = [node(f"n{i}") for i in range(5)]
    assert [on(w) for w in ways(alike, request(gpus=2))] == ["n0:2"]
    assert [on(w) for w in ways(alike, request(gpus=2), turn=3)] == ["n0:2", "n3:2"]


def test_every_accepted_type_is_tried_and_the_scarce_one_costs() -> None:
    nodes = [node("a", gpu_type="a100"), node("k", gpu_type="k80")]
    found = ways(nodes, request(gpus=1), CostModel(pressure=(0.9, 0.1, 0.0)))
    assert {on(w): round(w.cost.waste, 6) for w in found} == {"a:1": 0.8, "k:1": 0.0}


def test_how_free_gpus_are_valued_follows_the_queue_and_the_cluster() -> None:
    nodes = [node("a", gpu_type="a100", gpus=4, free_gpus=1), node("k", gpu_type="k80", gpus=4)]
    capacity = Capacity.of(snapshot(nodes=nodes))
    asked = [request(gpus=n, cpus=4 * n, mem_mib=500 * n) for n in (1, 2, 4)]
    found = CostModel.of([*asked, request(gpus=0, cpus=64)], capacity)
    assert (found.cpus_per_gpu, found.mem_mib_per_gpu) == (4.0, 500.0)
    shares = dict(zip(capacity.gpu_types, found.pressure, strict=False))
    assert shares == {"a100": 0.75, "k80": 0.0}
    assert CostModel.of([request(gpus=0)], capacity).mem_mib_per_gpu == 0.0


def test_a_share_without_gpus_is_on_a_node_of_the_type_too() -> None:
    nodes = [node("a1", gpu_type="a100"), node("a2", gpu_type="a100"), node("k", gpu_type="k80")]
    found = ways(nodes, request(gpus=1, nodes=2))
    assert {on(w) for w in found} == {"a1:1+a2:0"}


def test_a_job_gets_the_fewest_nodes() -> None:
    nodes = [node(f"n{i}") for i in range(3)]
    assert {len(w.shares) for w in ways(nodes, request(gpus=8))} == {2}
    assert {len(w.shares) for w in ways(nodes, request(gpus=4))} == {1}


def test_larger_shares_go_where_there_is_room() -> None:
    found = ways([node("a", free_gpus=1), node("b", free_gpus=2)], request(gpus=3, nodes=2))
    assert [on(w) for w in found] == ["b:2+a:1"]


def test_filling_a_gap_is_cheaper_than_breaking_a_node() -> None:
    found = {on(w): w for w in ways([node("a", free_gpus=1), node("b", free_gpus=3)], request())}
    assert found["a:1"].cost.fragmentation < found["b:1"].cost.fragmentation


def test_gpus_left_without_cpus_are_scraps() -> None:
    lens = CostModel(cpus_per_gpu=4.0)
    nodes = [node("a", free_cpus=16, free_gpus=3), node("b", free_cpus=8, free_gpus=3)]
    found = {on(w): w.cost.fragmentation for w in ways(nodes, request(cpus=8), lens)}
    assert found["a:1"] < found["b:1"] + 1  # both known
    left_a, left_b = (2 - 2 * 2 / 4) / 4, (2 - 0.0) / 4
    before_a, before_b = (3 - 9 / 4) / 4, (3 - 4 / 4) / 4
    assert found["a:1"] == pytest.approx(left_a - before_a)
    assert found["b:1"] == pytest.approx(left_b - before_b)


def test_idle_nodes_are_named() -> None:
    found = {on(w): w.opens for w in ways([node("a", free_gpus=2), node("b")], request())}
    assert found == {"a:1": (), "b:1": (1,)}


def test_an_exclusive_job_takes_idle_nodes_whole() -> None:
    found = ways([node("a", free_gpus=3), node("b")], request(gpus=1, exclusive=True))
    assert [(w.kind, on(w)) for w in found] == [(PlacementKind.WHOLE, "b:4")]
    assert found[0].cost.fragmentation == pytest.approx(3 / 4)


def test_bounds_keep_both_ends() -> None:
    nodes = [node(f"n{i:02}", gpus=30, free_gpus=i + 1) for i in range(30)]
    found = ways(nodes, request(gpus=1), bounds=SearchBounds(most=4, max_patterns=8))
    assert [on(w) for w in found][:2] == ["n00:1", "n29:1"]
    assert len(found) == 4


def test_somebody_elses_nodes_get_the_same_price() -> None:
    nodes = [node("a", free_gpus=2), node("b", free_gpus=1), node("c")]
    capacity = Capacity.of(snapshot(nodes=nodes))
    member = capacity.members_of(("gpu",))
    whole = CandidateGenerator(capacity, CostModel(), ALL).candidates(request(), member)
    narrow = CandidateGenerator(capacity, CostModel(), SearchBounds(most=1))
    for way in whole:
        priced = narrow.costed(request(), way.shares)
        assert priced.cost == pytest.approx(way.cost)
        assert priced.opens == way.opens


@settings(deadline=None)
@given(worlds.nodes(), worlds.requests)
def test_every_way_fits_and_prices_are_bounded(nodes: tuple[Node, ...], asks: Request) -> None:
    capacity = Capacity.of(snapshot(nodes=nodes))
    member = capacity.members_of(("gpu",))
    lens = CostModel(cpus_per_gpu=2.0, mem_mib_per_gpu=4_000.0, pressure=(0.3, 1.0, 0.0, 0.0))
    for way in CandidateGenerator(capacity, lens, SearchBounds()).candidates(asks, member, turn=1):
        spent = capacity.copy()
        spent.take(way.shares)  # raises when it overdraws
        names = [s.node for s in way.shares]
        assert len(set(names)) == len(names)
        assert all(member[capacity.index[n]] and capacity.usable[capacity.index[n]] for n in names)
        assert np.isfinite(way.cost).all()
        assert max(map(abs, way.cost)) <= 1.0
        if not asks.exclusive:
            assert sum(s.taken.gpus for s in way.shares) == asks.total.gpus


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 3), st.integers(0, 8))
def test_nothing_is_left_out(free: list[int], width: int, gpus: int) -> None:
    """As many ways as there are different node sets, alike nodes being one."""
    nodes = [node(f"n{i}", free_gpus=f, free_cpus=10 + f) for i, f in enumerate(free)]
    asks = request(gpus=gpus, cpus=0, mem_mib=0, nodes=width)
    low, larger = divmod(gpus, width)
    possible = set()
    for some in itertools.combinations(sorted(free), width):
        if min(some) >= low and sum(f > low for f in some) >= larger:
            possible.add(some)
    if low + (larger > 0) > 4:
        possible = set()
    found = {tuple(sorted(free[int(s.node[1:])] for s in w.shares)) for w in ways(nodes, asks)}
    assert found == possible
