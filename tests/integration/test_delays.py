"""Delays as numbers of a real Slurm, in every regime: order, what is kept, attacks, undo."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.order import Order, Wish
from rltuned.core.refusals import Refusal
from rltuned.daemon.restore import Fate
from rltuned.journal.journal import Journal
from tests.clusters import module_lab
from tests.integration.site import ON_ONE_NODE, Site
from tests.switchback_world import switchback_at

pytestmark = pytest.mark.slurm

WEIGHTS = ("PriorityWeightAge=100000", "PriorityMaxAge=1-0", "PriorityWeightQOS=20000")
"""1.16 points a second: the longest delay here, 40 minutes, is 2778 points, a QOS 20000."""
MORE = ("PriorityWeightPartition=30000", "MaxArraySize=100001", "MaxJobCount=200000")
"""Room below every job, as partition gpu adds 10,000 points; and arrays too long to name."""
REGIMES = ("aged", "unaged", "basic", "frozen")


with_slurmdbd = module_lab(
    "add qos high priority=100",
    "modify user root set qos+=high",
    accounting=True,
    extra=(*WEIGHTS, *MORE),
)


without = module_lab(extra=MORE)


basic = module_lab(priority_type="priority/basic", extra=MORE[1:])


class Hostile:
    """Wants every second job to wait for ever, and in each third cycle the others."""

    name = "hostile"
    static = False
    trust = None

    def __init__(self) -> None:
        self.asked = 0

    def score(self, matrix: StateMatrix) -> FloatArray:
        return -self.wish(matrix).own_s

    def wish(self, matrix: StateMatrix) -> Wish:
        self.asked += 1
        turn = np.array([j.job_id for j in matrix.jobs]) + self.asked // 3
        return Wish(1e9 * (turn % 2), 1e9 * (turn % 2))


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    regime = request.param
    labs = {"aged": "with_slurmdbd", "frozen": "with_slurmdbd", "unaged": "without"}
    lab = request.getfixturevalue(labs.get(regime, "basic"))
    journal = Journal(tmp_path)
    yield Site(lab, journal, "priority" if regime in {"basic", "frozen"} else "site_factor")
    journal.close()
    lab.clear()


in_every_regime = pytest.mark.parametrize("site", REGIMES, indirect=True)
with_factors = pytest.mark.parametrize("site", ["aged", "unaged"], indirect=True)
in_both_modes = pytest.mark.parametrize("site", ["aged", "frozen"], indirect=True)


@in_every_regime
def test_numbers_follow_the_eligible_time_plus_the_delay_and_undo_is_exact(site: Site) -> None:
    # each is off the median, 16 minutes, by more than a number that follows age may lag
    long, short, middle, shortest = site.limits(40, 8, 24, 5, options=("--nice=7",))
    factors = site.mode == "site_factor"
    if factors:  # a site's own
        site.lab.scontrol("update", f"JobId={long}", "SiteFactor=25")
    before = site.pending()
    decision = site.cycle()
    assert site.first_to_last() == [shortest, short, middle, long]
    delays = {int(e.job.job_id): e.delay_s for e in decision.entries}
    assert delays == {long: 2_400.0, middle: 1_440.0, short: 480.0, shortest: 300.0}
    assert site.cycle().plan.actions == ()
    assert site.undo_plan() == {Fate.RESTORED}
    after = site.pending()
    by_turn = decision.snapshot.priorities.kind == "basic"  # there a nice is gone once it counted
    assert {j: o.nice for j, o in after.items()} == dict.fromkeys(before, 0 if by_turn else 7)
    assert {j: o.site_factor for j, o in after.items()} == {
        j: o.site_factor for j, o in before.items()
    }


@in_every_regime
def test_in_an_off_block_the_order_is_that_of_waiting_and_undo_is_exact(site: Site) -> None:
    long, short, middle, shortest = jobs = site.limits(40, 8, 24, 5)
    before, system = site.numbers(), site.world.observe().priorities
    for on in (True, False, True, False):
        site.switchback = switchback_at(time.time(), on=on)
        decision = site.cycle()
        if on or not system.slope:
            assert site.first_to_last() == ([shortest, short, middle, long] if on else jobs)
        else:  # slurmctld counts the age of a job again whenever it is written to
            found = [job.priority for job in site.pending().values()]
            assert max(found) - min(found) <= 60 * system.slope
        is_left = bool(system.slope) and not on
        assert len(decision.refused) == (len(jobs) if is_left else 0)
        assert site.cycle().plan.actions == ()
    if system.slope and site.mode == "site_factor":
        site.assert_as_before(before)
        assert site.undo_plan() == set()


@in_both_modes
def test_a_job_of_a_higher_qos_stays_first(site: Site) -> None:
    normal = site.limits(30, 5)  # further apart than a number that drifts may lag
    high = site.submit("-t40", "--qos=high")
    assert site.first_to_last()[0] == high
    decision = site.cycle()
    assert site.first_to_last() == [high, normal[1], normal[0]]
    assert decision.order.max_delay_s > 2_400


@pytest.mark.parametrize("site", ["aged"], indirect=True)
def test_a_hostile_policy_lets_no_one_be_overtaken_beyond_max_delay(site: Site) -> None:
    """Over many cycles of jobs that come every few seconds: priorities as squeue shows them."""
    within_s, lag_s = 12.0, 4.0  # slurmctld counts age each second; a point is 0.9 s
    site.order, site.exact = Order(own=1.0, share=0.75, max_delay_s=within_s), True
    hostile, overtaken, kept = Hostile(), 0, 0
    for number in range(24):
        if number % 2 == 0:
            site.submit("-t60")
        decision = site.cycle(hostile)
        assert all(e.delay_s <= within_s for e in decision.entries)
        waiting = list(site.pending().values())
        for one, other in ((a, b) for a in waiting for b in waiting):
            later_s = other.ages_since - one.ages_since
            overtaken += later_s > 0 and other.priority > one.priority
            if later_s > within_s + lag_s:
                kept += 1
                assert one.priority >= other.priority
        time.sleep(1.5)
    assert overtaken, "it has its way within the bound"
    assert kept, "and not beyond"


@in_both_modes
def test_parts_of_a_heterogeneous_job_go_further_back_and_undo_is_exact(site: Site) -> None:
    # off the median, 10 minutes, by more than a number that follows age may lag, as above
    plain, short, middle = site.limits(40, 4, 10)
    out = site.lab.run(
        "sbatch", "--parsable", "--output=/dev/null", *ON_ONE_NODE, "-t40", ":", "-n1",
        "-t1", text="#!/bin/sh\nsleep 60\n",
    )  # fmt: skip
    long = int(out.split(";")[0])
    tiny = long + 1
    before = site.numbers()
    decision = site.cycle()
    delays = {int(e.job.job_id): e.delay_s for e in decision.entries}
    assert delays == {plain: 2_400.0, short: 240.0, middle: 600.0, long: 2_400.0, tiny: 600.0}
    assert site.first_to_last() == [short, middle, tiny, plain, long]
    assert site.cycle().plan.actions == ()
    assert site.undo_plan() == {Fate.RESTORED}
    if site.mode == "site_factor":
        site.assert_as_before(before)


@with_factors
def test_a_job_that_slurm_lets_no_one_change_is_given_back_when_it_does(site: Site) -> None:
    """One whose request fits no node any more: Slurm says no, and keeps the request."""
    long, short = site.limits(60, 5)
    before = site.numbers()
    site.cycle()
    assert site.numbers()[long] != before[long]
    site.lab.run("scontrol", "update", f"JobId={long}", "NumCPUs=1000", check=False)
    assert Fate.REFUSED in site.undo_plan()
    site.assert_as_before({short: before[short]})
    site.lab.scontrol("update", f"JobId={long}", "NumCPUs=4")
    assert site.undo_plan() == {Fate.RESTORED}
    site.assert_as_before(before)


@in_every_regime
def test_jobs_that_come_and_go_take_no_numbers_from_others(site: Site) -> None:
    honest = site.limits(40, 20)
    site.cycle()
    numbers = site.numbers()
    for _ in range(2):
        burnt = site.limits(1, 1, 1, options=("--nice=100000",))
        site.cycle()
        site.lab.run("scancel", *map(str, burnt))
        site.cycle()
    assert site.pending().keys() == set(honest)
    site.assert_as_before(numbers)
    assert site.first_to_last() == [honest[1], honest[0]]


@in_every_regime
def test_held_tasks_and_arrays_that_cannot_be_named_take_no_numbers(site: Site) -> None:
    site.limits(40, 20)
    site.cycle()
    numbers = site.numbers()
    split = site.submit("-t1", "--array=0-9")
    site.lab.scontrol("uhold", f"{split}_7")
    endless = site.submit("-t1", "--array=0-89999")
    site.lab.wait_for(lambda: site.pending()[endless].eligible_at is not None, "it is looked at")
    decision = site.cycle()
    refused = {int(job): reason for job, reason in decision.refused}
    assert refused[endless] is Refusal.UNADDRESSABLE
    assert Refusal.HELD_USER in refused.values()
    site.assert_as_before(numbers)
    assert [j.priority for j in site.pending().values() if j.held_by] == [0]
