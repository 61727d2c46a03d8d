"""What a user may try with limits and with partitions and deadlines: none of it pays."""

import math
from typing import Any

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.numbers import Writing
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Context
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, node, snapshot
from tests.property.sites import ROOM, Site

HOUR, DAY = 3_600.0, 86_400.0
RULE = BASELINES["delay"]


def site_of(*jobs: PendingJob) -> Site:
    return Site(list(jobs), {j.job_id: ROOM for j in jobs})


def cycle(site: Site, **knobs: Any) -> dict[int, float]:
    """Delays of one cycle, which is carried out."""
    decision = site.decided(RULE, Knobs(top_k=0, **knobs))
    site.carry_out(decision)
    site.now += 60.0
    return {int(e.job.job_id): e.delay_s for e in decision.entries}


def queue(*strangers: PendingJob) -> list[PendingJob]:
    """Nine jobs of nine users, of an hour to nine hours."""
    return [
        *(
            job(n, user=f"u{n}", time_limit_s=n * HOUR, submitted_at=NOW - 600.0 - n)
            for n in range(1, 10)
        ),
        *strangers,
    ]


@pytest.mark.parametrize("longest_s", [DAY, 7 * DAY, 30 * DAY])
@pytest.mark.parametrize("limit_s", [None, math.inf])
def test_no_limit_is_never_cheaper_than_the_longest_of_the_partition(
    longest_s: float, limit_s: float | None
) -> None:
    def delay_s(asked_s: float | None) -> float:
        one = job(20, user="ann", time_limit_s=asked_s)
        seen = snapshot(
            *queue(one), partitions=[Partition("gpu", default=True, max_time_s=longest_s)]
        )
        found = decide(seen, RULE, Knobs(order=Order(max_delay_s=1e9), top_k=0))
        return next(e.delay_s for e in found.entries if e.job.job_id == one.job_id)

    assert delay_s(limit_s) >= delay_s(longest_s)


OUTSIDE: dict[str, dict[str, Any]] = {
    "several partitions": {"partitions": ("gpu", "long"), "uneven": True},
    "a far deadline": {"deadline_at": NOW + 10 * DAY},
    "a deadline that cannot be met": {"deadline_at": NOW + 300.0},
    "a part of a heterogeneous job": {"het_job_id": 20},
}


def place_of(limit_s: float, cycles: int, **more: Any) -> int:
    """The place of a job of that limit after a number of cycles of the whole queue."""
    one = job(20, user="ann", time_limit_s=limit_s, **more)
    site = site_of(*queue(one))
    for _ in range(cycles):
        cycle(site, writing=Writing(hysteresis=0.0, min_step_s=0.0))
    order = sorted(site.jobs, key=lambda j: (-site.priority(j), j.job_id))
    return [j.job_id for j in order].index(one.job_id)


@pytest.mark.parametrize("what", OUTSIDE)
@pytest.mark.parametrize("limit_s", [600.0, 5 * HOUR, 8 * HOUR, 7 * DAY])
@pytest.mark.parametrize("cycles", [1, 2])
def test_what_differs_from_a_plain_job_gains_no_place(
    what: str, limit_s: float, cycles: int
) -> None:
    assert place_of(limit_s, cycles, **OUTSIDE[what]) >= place_of(limit_s, cycles)


SCOPE = Scope(sla_partitions=frozenset({"sla"}), partitions=frozenset({"gpu"}))


@pytest.mark.parametrize("other", ["sla", "old"])
@pytest.mark.parametrize("limit_s", [600.0, 5 * HOUR, 8 * HOUR, 7 * DAY])
def test_a_partition_that_rltuned_leaves_alone_gains_no_place(other: str, limit_s: float) -> None:
    """sla: a promised one that the job could never run in. old: one out of scope."""

    def delay_s(*more: str) -> float:
        one = job(20, user="ann", time_limit_s=limit_s, partitions=("gpu", *more))
        seen = snapshot(
            *queue(one),
            nodes=[node("p1"), node("s1", partitions=["sla"]), node("o1", partitions=["old"])],
            partitions=[Partition("gpu"), Partition("sla", max_time_s=60.0), Partition("old")],
        )
        context = Context(neutral=NeutralDelay(HOUR, NOW, HOUR, NOW))
        found = decide(seen, RULE, Knobs(SCOPE, top_k=0), context=context)
        assert not found.refused
        return next(e.delay_s for e in found.entries if e.job.job_id == one.job_id)

    assert delay_s(other) >= delay_s()


@pytest.mark.parametrize("cycles", [1, 2])
def test_a_near_deadline_gives_the_place_of_a_job_without_a_number(cycles: int) -> None:
    near = {"deadline_at": NOW + 8 * HOUR + 300.0}
    alone = {"reservation": "maintenance"}  # rltuned writes no such job
    assert place_of(8 * HOUR, cycles, **near) == place_of(8 * HOUR, cycles, **alone)
