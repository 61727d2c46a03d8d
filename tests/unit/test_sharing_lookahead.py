"""Exclusive jobs set to share before a node falls free, by example."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.backfill import QueuedJob, job_ends
from rltuned.core.capacity import Capacity
from rltuned.core.milp.problem import Budget, Queue, Weights
from rltuned.core.milp.sharing import (
    ENDS_AHEAD,
    Sharing,
    SharingBlocker,
    as_shared,
    sharing_lookahead,
)
from rltuned.core.milp.solution import AHEAD, JointPlacement, SolveStatus, Tuning, place_jointly
from rltuned.core.placement import place
from rltuned.domain.cluster import Node, Partition
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.solver import Cbc
from tests.builders import NOW, job, node, request, running, snapshot

TUNING = Tuning(budget=Budget(wall_s=20.0), sharing=Sharing(frozenset({"gpu"})))
DAY_S = 86_400.0


def full(name: str = "p1", **rest: object) -> Node:
    """A node that an exclusive job has whole, though it uses one of four GPUs."""
    return node(name, free_gpus=3, free_cpus=0, free_mem_mib=60_000, **rest)  # type: ignore[arg-type]


def holder(number: int = 100, name: str = "p1", **rest: object) -> RunningJob:
    return running(number, node_name=name, gpus=1, cpus=16, mem_mib=4_000, **rest)  # type: ignore[arg-type]


def alone(number: int, *, gpus: int = 1, **rest: object) -> PendingJob:
    """A job that waits for a node of its own."""
    asks = request(gpus=gpus, exclusive=True, **rest)  # type: ignore[arg-type]
    return job(number, submitted_at=NOW - 1_000 + number, asks=asks, oversubscribe="NO")


def beside(number: int, *, gpus: int = 1, **rest: object) -> PendingJob:
    return job(number, submitted_at=NOW - 1_000 + number, gpus=gpus, **rest)  # type: ignore[arg-type]


def world(
    *waiting: PendingJob,
    nodes: Sequence[Node] | None = None,
    runs: Sequence[RunningJob] | None = None,
    **rest: object,
) -> Snapshot:
    """One node, in use, and who waits for it."""
    return snapshot(
        *waiting,
        nodes=[full()] if nodes is None else nodes,
        runs=[holder()] if runs is None else runs,
        partitions=[Partition("gpu", True, oversubscribe="NO")],
        preemption=False,
        **rest,  # type: ignore[arg-type]
    )


def joint_of(seen: Snapshot, tuning: Tuning = TUNING) -> JointPlacement:
    fits = [place(j, Capacity.of(seen)) is not None for j in seen.pending]
    return place_jointly(seen.pending, fits, seen, tuning, Cbc())


def reply(seen: Snapshot, tuning: Tuning = TUNING) -> list[int]:
    return [a.target.job_id for a in joint_of(seen, tuning).actions]


def test_two_who_would_take_a_node_each_are_reported_before_it_falls_free() -> None:
    joint = joint_of(world(alone(1), alone(2)))
    assert [a.target.job_id for a in joint.actions] == [1, 2]
    assert (joint.how, joint.placements) == (SolveStatus.SKIPPED, ())
    assert joint.why.endswith("; 2 are set to share before their turn")
    why = f"no node for it now; {AHEAD}"
    assert [(v.job_id, v.starts_in_s, v.why) for v in joint.verdicts] == [
        (1, None, why),
        (2, None, why),
    ]


def test_only_the_exclusive_one_of_two_is_reported() -> None:
    assert reply(world(alone(1), beside(2))) == [1]


def test_who_keeps_nobody_waiting_keeps_its_node() -> None:
    assert reply(world(alone(1))) == []


def test_a_node_that_the_next_needs_whole_is_not_shared_out() -> None:
    assert reply(world(alone(1), beside(2, gpus=4))) == []


def test_who_would_not_fit_beside_is_not_reported() -> None:
    assert reply(world(alone(1), alone(2, gpus=4), alone(3))) == [1, 3]


def test_no_further_ahead_than_what_runs() -> None:
    """Two of two GPUs fill the node; when the third has its turn is not known yet."""
    assert reply(world(alone(1, gpus=2), alone(2, gpus=2), alone(3, gpus=2))) == [1, 2]


def test_every_node_that_falls_free_is_looked_at() -> None:
    nodes, runs = [full("p1"), full("p2")], [holder(100, "p1"), holder(101, "p2")]
    queue = [alone(i, gpus=2) for i in range(1, 5)]
    assert reply(world(*queue, nodes=nodes, runs=runs)) == [1, 2, 3, 4]


def test_nodes_of_a_type_that_nobody_waits_for_are_passed_over() -> None:
    nodes = [full("k1", gpu_type="k80", partitions=("other",)), full("p1")]
    runs = [holder(100, "k1", gpu_type="k80"), holder(101, "p1")]
    assert reply(world(alone(1), alone(2), nodes=nodes, runs=runs)) == [1, 2]


def test_ends_on_other_gpu_types_of_the_same_partition_do_not_count() -> None:
    many = [full(f"k{i:03d}", gpu_type="k80") for i in range(ENDS_AHEAD + 1)]
    held = [
        holder(200 + i, n.name, gpu_type="k80", time_limit_s=1_300.0) for i, n in enumerate(many)
    ]
    queue = [alone(1, gpu_types=["p100"]), alone(2, gpu_types=["p100"])]
    assert reply(world(*queue, nodes=[*many, full("p1")], runs=[*held, holder()])) == [1, 2]


def test_a_promise_is_kept_by_who_may_share() -> None:
    """The first waits for both nodes until p2's job ends; a day on p1 would put it off."""
    nodes = [full("p1"), full("p2")]
    runs = [holder(100, "p1", time_limit_s=1_500.0), holder(101, "p2", time_limit_s=3_000.0)]
    wide = job(1, asks=request(gpus=8, nodes=2), submitted_at=NOW - 2_000)
    late = [alone(i, time_limit_s=DAY_S) for i in (2, 3)]
    soon = [alone(i, time_limit_s=300.0) for i in (2, 3)]
    assert reply(world(wide, *late, nodes=nodes, runs=runs)) == []
    assert reply(world(wide, *soon, nodes=nodes, runs=runs)) == [2, 3]


def test_a_dear_flag_is_not_set() -> None:
    dear = replace(TUNING, weights=Weights(sharing=50.0))
    assert reply(world(alone(1), alone(2)), dear) == []


def test_an_end_that_is_not_known_is_not_awaited() -> None:
    for limit_s in (None, math.inf):
        assert reply(world(alone(1), alone(2), runs=[holder(time_limit_s=limit_s)])) == []


def test_a_node_that_is_drained_is_not_awaited() -> None:
    assert reply(world(alone(1), alone(2), nodes=[full(schedulable=False)])) == []


def test_outside_the_scope_nobody_is_reported() -> None:
    assert reply(world(alone(1), alone(2)), replace(TUNING, sharing=Sharing())) == []
    seen = replace(world(alone(1), alone(2)), preemption=True)
    assert reply(seen) == []
    assert [why for _, why in joint_of(seen).left_alone] == [SharingBlocker.PREEMPTION] * 2


def test_who_starts_now_is_not_reported_again() -> None:
    """One node is idle: what is decided now stands, and the rest is reported for the next."""
    nodes, runs = [full("p1"), node("p2")], [holder(100, "p1")]
    joint = joint_of(world(*[alone(i, gpus=2) for i in range(1, 5)], nodes=nodes, runs=runs))
    assert joint.how is SolveStatus.SOLVED
    assert sorted(a.target.job_id for a in joint.actions) == [1, 2, 3, 4]
    assert {p.job_id for p in joint.placements} == {1, 2}


def test_so_many_ends_at_most() -> None:
    """A job that waits for an end beyond the bound is not reported; nothing is endless."""
    small = [
        running(200 + i, node_name="p1", gpus=0, cpus=1, mem_mib=0, started_at=NOW - i)
        for i in range(ENDS_AHEAD)
    ]
    crowded = node("p1", free_gpus=0, cpus=2 * ENDS_AHEAD, free_cpus=ENDS_AHEAD - 1)
    last = running(300, node_name="p1", gpus=4, cpus=1, mem_mib=0, time_limit_s=DAY_S)
    assert reply(world(alone(1), alone(2), nodes=[crowded], runs=[*small, last])) == []
    assert reply(world(alone(1), alone(2), nodes=[crowded], runs=[*small[1:], last])) == [1, 2]


@given(data=st.data())
def test_only_those_who_may_and_nothing_is_spent(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    nodes = [full(f"p{i}") for i in range(count)]
    runs = [
        holder(100 + i, f"p{i}", time_limit_s=data.draw(st.sampled_from((1_300.0, 3_600.0, DAY_S))))
        for i in range(count)
    ]
    asks = data.draw(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=8))
    queue = [
        alone(i, gpus=gpus) if exclusive else beside(i, gpus=gpus)
        for i, (gpus, exclusive) in enumerate(asks, 1)
    ]
    seen = world(*queue, nodes=nodes, runs=runs)
    free = Capacity.of(seen)
    everywhere = np.ones(count, dtype=bool)
    candidates = [QueuedJob(j, j.request, everywhere) for j in queue]
    may = {
        at: as_shared(one)
        for at, one in enumerate(candidates)
        if one.request.exclusive and data.draw(st.booleans())
    }
    before = copy.deepcopy(free)
    found = sharing_lookahead(
        Queue(candidates, may, free, lambda: job_ends(seen, free)), (), Weights()
    )
    assert found <= may.keys()
    assert len(found) != 1 or any(not one.request.exclusive for one in candidates)
    assert (before.free_gpus == free.free_gpus).all()
    assert (before.free_cpus == free.free_cpus).all()


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_reported_job_is_not_told_twice(gpus: int) -> None:
    """Slurm shows it as sharing from then on."""
    seen = world(
        replace(alone(1), oversubscribe="YES", request=request(gpus=gpus)), alone(2, gpus=gpus)
    )
    assert reply(seen) == [JobId(2)]
