"""No job is placed where a reservation or another's job keeps the nodes from it; the survey, the
placement and the forecast say the same.
"""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.capacity import Capacity
from rltuned.core.forecast import NO_ARRIVALS, PlayedJob, play_forward
from rltuned.core.line import present_line
from rltuned.core.placement import place
from rltuned.core.pools import shapes_of, survey
from rltuned.core.starts import expected_of
from rltuned.domain.cluster import Reservation, Resources
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import NodeName, UnixTime
from tests.builders import NOW, job, node, request, running, snapshot
from tests.property import worlds

HOUR_S = 3_600.0


def reserved(start_s: float, end_s: float, *nodes: str, **rest: Any) -> Reservation:
    at = UnixTime(NOW + start_s), UnixTime(NOW + end_s)
    return Reservation("one", *at, tuple(map(NodeName, nodes)), **rest)


def alone(on: str, user: str, word: str = "exclusive=user", **rest: Any) -> RunningJob:
    asks = request(outside=(word,), **rest)
    return running(90, node_name=on, user=user, asks=asks)


def limit_s(asked: PendingJob) -> float:
    given_s = asked.request.time_limit_s
    return math.inf if given_s is None else given_s


@st.composite
def reservations(draw: st.DrawFn, number: int, names: tuple[str, ...]) -> Reservation:
    start_s = draw(st.sampled_from((-600.0, 30.0, 3_600.0, 50_000.0)))
    part = st.builds(Resources, gpus=st.integers(0, 2), cpus=st.integers(1, 12))
    return Reservation(
        f"r{number}",
        UnixTime(NOW + start_s),
        UnixTime(NOW + start_s + draw(st.sampled_from((300.0, 7_200.0)))),
        tuple(map(NodeName, draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))),
        draw(st.none() | part),
        users=draw(st.sampled_from(((), ("alice",), ("root",)))),
        flags=draw(st.sampled_from(((), ("DAILY",), ("MAGNETIC",), ("TIME_FLOAT",)))),
    )


@st.composite
def kept_worlds(draw: st.DrawFn) -> Snapshot:
    world = draw(worlds.snapshots())
    names = tuple(n.name for n in world.nodes)
    count = draw(st.integers(1, 3))
    found = [draw(reservations(i, names)) for i in range(count)]
    runs = [alone(draw(st.sampled_from(names)), draw(st.sampled_from(("alice", "bob"))))]
    return snapshot(
        *world.pending,
        nodes=world.nodes,
        runs=runs if draw(st.booleans()) else (),
        reservations=tuple(found),
    )


@given(kept_worlds())
def test_the_survey_says_what_placing_says_and_no_job_stands_on_what_is_kept(
    world: Snapshot,
) -> None:
    capacity = Capacity.of(world)
    found = survey(shapes_of(world.pending, capacity), world, capacity)
    placed = [place(one, capacity) for one in world.pending]
    assert found.fits.tolist() == [float(one is not None) for one in placed]
    for asked, where in zip(world.pending, placed, strict=True):
        nodes = set() if where is None else {share.node for share in where.shares}
        for one in world.reservations:
            ahead_s = one.start_at - NOW
            over = one.end_at <= NOW
            drawn = "MAGNETIC" in one.flags and ahead_s <= 0 and asked.user in one.users
            if one.kept is None and not over and not drawn and limit_s(asked) > ahead_s:
                assert nodes.isdisjoint(one.nodes)
        for run in world.running:
            assert asked.user == run.user or nodes.isdisjoint({s.node for s in run.shares})


def fits(asked: PendingJob, *kept: Reservation, **rest: Any) -> bool:
    world = snapshot(asked, reservations=kept, **{"nodes": [node("p1")], **rest})
    capacity = Capacity.of(world)
    return bool(survey(shapes_of(world.pending, capacity), world, capacity).fits[0])


@pytest.mark.parametrize(
    ("start_s", "end_s", "rest", "so"),
    [
        (2 * HOUR_S, 3 * HOUR_S, {}, True),
        (HOUR_S, 2 * HOUR_S, {}, True),  # the job ends as it begins
        (HOUR_S - 1, 2 * HOUR_S, {}, False),
        (-HOUR_S, 60.0, {}, False),
        (-2 * HOUR_S, -HOUR_S, {}, True),
        (-2 * HOUR_S, -HOUR_S, {"flags": ("DAILY",)}, True),
        (-24 * HOUR_S, -23.5 * HOUR_S, {"flags": ("DAILY",)}, False),
        (1_800.0, HOUR_S, {"flags": ("TIME_FLOAT",)}, False),
        (1_800.0, HOUR_S, {"flags": ("FLEX",), "users": ("alice",)}, False),
        (1_800.0, HOUR_S, {"flags": ("MAGNETIC",), "users": ("alice",)}, False),
        (-60.0, HOUR_S, {"flags": ("MAGNETIC",), "users": ("alice",)}, True),
        (-60.0, HOUR_S, {"flags": ("MAGNETIC",), "users": ("alice",), "others": True}, False),
        (-60.0, HOUR_S, {"flags": ("MAGNETIC",), "users": ("-bob",)}, False),
        (-60.0, HOUR_S, {"flags": ("MAGNETIC",), "accounts": ("lab",)}, True),
        (-60.0, HOUR_S, {"users": ("alice",)}, False),  # a job that does not name it is not in it
        (60.0, HOUR_S, {"kept": Resources(cpus=14)}, True),
        (60.0, HOUR_S, {"kept": Resources(cpus=15)}, False),
        (60.0, HOUR_S, {"kept": Resources(gpus=4, cpus=4)}, False),
    ],
)
def test_a_job_of_an_hour_beside_a_reservation(
    start_s: float, end_s: float, rest: dict[str, Any], so: bool
) -> None:
    assert fits(job(1), reserved(start_s, end_s, "p1", **rest)) is so


@pytest.mark.parametrize(
    ("word", "user", "so"),
    [
        ("exclusive=user", "alice", True),
        ("exclusive=user", "bob", False),
        ("exclusive=user", "", False),
        ("exclusive=mcs", "alice", False),
        ("exclusive=topo", "alice", False),
    ],
)
def test_a_node_that_a_user_has_alone_is_free_for_that_user(word: str, user: str, so: bool) -> None:
    assert fits(job(1), runs=[alone("p1", user, word)]) is so


@pytest.mark.parametrize(
    ("wishes", "so"),
    [
        ({"required_nodes": ("p1",)}, False),
        ({"required_nodes": ("p2",)}, True),
        ({"required_nodes": ("p1", "p2"), "asks": request(nodes=2)}, False),
        ({"required_nodes": ("p2",), "asks": request(gpus=2, nodes=2)}, True),
        ({"excluded_nodes": ("p2", "p3")}, False),
        ({"excluded_nodes": ("p2",)}, True),
        ({"required_nodes": ("gone",)}, False),
        ({"asks": request(outside=("constraint=old",))}, False),
        ({"asks": request(outside=("constraint=new",))}, True),
        ({"asks": request(outside=("constraint=old|new",))}, True),
        ({"asks": request(outside=("constraint=old&new",))}, False),
    ],
)
def test_a_job_with_a_list_of_nodes_or_a_constraint_fits_by_those(
    wishes: dict[str, Any], so: bool
) -> None:
    nodes = [
        node("p1", schedulable=False, features=("old",)),
        node("p2", features=("new",)),
        node("p3"),
    ]
    assert fits(job(1, **wishes), nodes=nodes) is so


def first_start_s(world: Snapshot) -> float:
    return float(play_forward(world, [PlayedJob(world.pending[0], 0.0, None)], {}, draws=6).min())


@pytest.mark.parametrize(
    ("kept", "at_s"),
    [
        (reserved(HOUR_S, 3 * HOUR_S, "p1"), 3 * HOUR_S),
        (reserved(HOUR_S, 3 * HOUR_S, "p1", flags=("DAILY",)), 3 * HOUR_S),
        (reserved(HOUR_S, 3 * HOUR_S, "p1", kept=Resources(cpus=15)), 3 * HOUR_S),
        (reserved(HOUR_S, 3 * HOUR_S, "p1", kept=Resources(cpus=4)), 0.0),
        (reserved(2 * HOUR_S, 3 * HOUR_S, "p1"), 0.0),
        (reserved(HOUR_S, 3 * HOUR_S, "p1", flags=("TIME_FLOAT",)), math.inf),
    ],
)
def test_a_job_of_two_hours_starts_when_the_reservation_is_over(
    kept: Reservation, at_s: float
) -> None:
    asked = job(1, time_limit_s=2 * HOUR_S)
    world = snapshot(asked, nodes=[node("p1")], reservations=(kept,))
    assert first_start_s(world) == at_s


def test_a_short_job_goes_before_a_reservation_that_keeps_the_job_before_it() -> None:
    jobs = job(1, time_limit_s=2 * HOUR_S, priority=2_000), job(2, priority=1_000)
    kept = reserved(HOUR_S, 3 * HOUR_S, "p1")
    line = present_line(snapshot(*jobs, nodes=[node("p1")], reservations=(kept,)))
    starts = expected_of(line, {}, NO_ARRIVALS).starts
    assert [starts[one.job_id].median_s for one in jobs] == [3 * HOUR_S, 0.0]


def test_a_node_comes_free_for_others_when_the_job_that_has_it_alone_ends() -> None:
    run = alone("p1", "bob", time_limit_s=2 * HOUR_S)
    world = snapshot(job(1), nodes=[node("p1", free_gpus=3)], runs=[run])
    assert first_start_s(world) > 0.0
    assert math.isfinite(first_start_s(world))
