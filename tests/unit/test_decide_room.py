"""Room for delays: what the site lacks, and what a user has taken off an own job."""

import pytest

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.numbers import Shortage, WriteMode, Writing
from rltuned.core.order import Order
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import PrioritySystem
from rltuned.policies.baselines import BASELINES
from tests.builders import job, snapshot

DAY = 86_400.0
ORDER = Order(own=1.0, share=0.0)
"""As long a delay as the limit."""
AGED = PrioritySystem("multifactor", ages=True, age_weight=60_480, max_age_s=7 * DAY)
UNAGED = PrioritySystem("multifactor", ages=False, age_weight=60_480, max_age_s=7 * DAY)
MODES: list[tuple[PrioritySystem, WriteMode]] = [
    (AGED, "site_factor"), (AGED, "priority"), (UNAGED, "site_factor")
]  # fmt: skip


def niced(job_id: int, base: int, nice: int) -> PendingJob:
    """Of a site that gives its jobs so many points."""
    left = base - nice
    numbers = {"priority": max(1, left), "base": left, "rest": left - 60, "nice": nice}
    return job(job_id, time_limit_s=DAY, live=True, **numbers)  # type: ignore[arg-type]


def decided(system: PrioritySystem, mode: WriteMode, *jobs: PendingJob) -> Decision:
    seen = snapshot(*jobs, priorities=system)
    return decide(seen, BASELINES["sjf"], Knobs(order=ORDER, writing=Writing(mode=mode)))


@pytest.mark.parametrize(("system", "mode"), MODES)
def test_nice_of_a_user_is_no_shortage_of_the_site(system: PrioritySystem, mode: WriteMode) -> None:
    """In review one job with --nice raised the alert, whose line for slurm.conf was that nice."""
    found = decided(system, mode, niced(1, 200_000, 2_000_000), niced(2, 200_000, 0))
    assert found.short == Shortage()


@pytest.mark.parametrize(("system", "mode"), MODES)
def test_a_site_without_room_is_short_whatever_users_take_off(
    system: PrioritySystem, mode: WriteMode
) -> None:
    short = [job(n, time_limit_s=60.0, priority=200_000) for n in range(10, 20)]
    plain = decided(system, mode, *short, niced(2, 60, 0)).short
    assert plain.jobs == 1
    found = decided(system, mode, *short, niced(2, 60, 0), niced(1, 60, 2_000_000)).short
    assert (found.jobs, found.points) == (2, plain.points)
