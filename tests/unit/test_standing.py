"""The place in force: what slurmctld would take first, by tier, priority and job id."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.decide import Knobs, decide
from rltuned.core.line import present_line
from rltuned.core.planning import priority_order
from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import ArrayInfo, PendingJob
from rltuned.domain.units import JobId
from tests.builders import job, node, snapshot
from tests.fakes import ConstantOrder

TIERS = {"gpu": 1, "sla": 2, "low": 0}
PARTITIONS = [Partition(name, priority_tier=tier) for name, tier in TIERS.items()]


@st.composite
def queues(draw: st.DrawFn) -> list[PendingJob]:
    """Jobs and arrays of three tiers; priorities that often tie."""
    found = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        tasks = draw(st.integers(1, 5))
        array = None if tasks == 1 else ArrayInfo(JobId(number * 100), tasks)
        parts = draw(st.lists(st.sampled_from(["gpu", "sla", "low"]), min_size=1, unique=True))
        priority = draw(st.integers(1, 4))
        found.append(job(number * 100, partitions=parts, priority=priority, array=array))
    return found


def as_slurm_takes_them(jobs: list[PendingJob]) -> list[tuple[int, int]]:
    """(job id, task) one by one: of all tasks that are left the one with the highest tier, then the
    highest priority, then the lowest id.
    """
    left = {j.job_id: (j.array.tasks if j.array else 1) for j in jobs}
    by_id = {j.job_id: j for j in jobs}
    taken: list[tuple[int, int]] = []
    while left:
        first = max(
            left,
            key=lambda i: (max(TIERS[p] for p in by_id[i].partitions), by_id[i].priority, -i),
        )
        taken.append((first, left[first]))
        left[first] -= 1
        if not left[first]:
            del left[first]
    return taken


@given(queues())
def test_places_are_those_of_a_scheduler_that_takes_job_by_job(jobs: list[PendingJob]) -> None:
    seen = snapshot(*jobs, partitions=PARTITIONS)
    standing = priority_order(seen.pending, seen)
    taken = as_slurm_takes_them(jobs)
    order = [number for number, _ in taken]
    for number, place in standing.places().items():
        assert place.place == order.index(number) + 1
        alike = {
            j.job_id: (j.array.tasks if j.array else 1)
            for j in jobs
            if j.priority == place.priority and standing.places()[j.job_id].tier == place.tier
        }
        assert place.ties == sum(alike.values())
    assert standing.waiting == len(taken)
    assert [j.job_id for j in present_line(seen).jobs] == list(dict.fromkeys(order))


def test_four_hundred_ties_are_one_place_apart_by_id() -> None:
    jobs = [job(n, priority=3) for n in range(1, 401)]
    found = priority_order(jobs, snapshot(*jobs)).places()
    assert [found[JobId(n)].place for n in range(1, 401)] == list(range(1, 401))
    assert {one.ties for one in found.values()} == {400}


@pytest.mark.parametrize("tier", [1, 2])
def test_a_wish_crosses_no_tier_and_jobs_left_alone_have_a_place(tier: int) -> None:
    """Job 1 is of an SLA partition, so rltuned leaves it alone; it waits all the same."""
    partitions = [Partition("gpu"), Partition("sla", priority_tier=tier)]
    jobs = [
        job(1, partition="sla", priority=100),
        job(2, priority=300),
        job(3, priority=200),
    ]
    seen = snapshot(*jobs, nodes=[node("p1")], partitions=partitions)
    rules = replace(Knobs().rules, sla_partitions=frozenset({"sla"}))
    decision = decide(seen, ConstantOrder((3, 2)), Knobs(rules=rules))
    places = {n: p.place for n, p in decision.standing.places().items()}
    assert places == ({2: 1, 3: 2, 1: 3} if tier == 1 else {1: 1, 2: 2, 3: 3})
    wished = {e.job.job_id: e.rank_wished for e in decision.entries}
    before = {e.job.job_id: e.rank_before for e in decision.entries}
    ahead = 0 if tier == 1 else 1
    assert before == {2: 1 + ahead, 3: 2 + ahead}
    assert min(wished.values()) >= 1 + ahead
    assert wished[JobId(3)] < wished[JobId(2)]


def test_after_its_writes_a_job_stands_elsewhere() -> None:
    jobs = [job(1, priority=100), job(2, priority=50)]
    standing = priority_order(jobs, snapshot(*jobs)).after({JobId(2): 100})
    assert {n: (p.place, p.ties) for n, p in standing.places().items()} == {1: (1, 2), 2: (2, 2)}
    assert np.array_equal(standing.priority, [100, 100])
