"""What delays promise, for any policy, any queue and any cap, over cycles and between them."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.numbers import REFRESH_S, Writing, numbers_of, settle
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.domain.jobs import Ownership
from rltuned.domain.plan import PRIORITY, SITE_FACTOR, Field
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.snapshot import Snapshot
from tests.builders import NOW, job, sure
from tests.examples import examples
from tests.property import worlds
from tests.property.sites import QOS_GAP, SLA, Site, orders, sites
from tests.property.tables import CYCLE_S, DAY, SLOPE, SYSTEM, ByTable, policies

paces = st.tuples(st.integers(0, 9), st.integers(1, 6))
"""The change cap, and how many cycles are played."""


def knobs(order: Order, cap: int) -> Knobs:
    rules = Scope(sla_partitions=frozenset({SLA}))
    return Knobs(rules=rules, order=order, writing=Writing(max_changes=cap), top_k=0)


def played(site: Site, policy: ByTable, order: Order, cap: int, cycles: int) -> list[Decision]:
    decisions = []
    for _ in range(cycles):
        decisions.append(site.decided(policy, knobs(order, cap)))
        site.carry_out(decisions[-1])
        site.now += CYCLE_S
    return decisions


@examples(60)
@given(sites(), policies, orders, paces, st.integers(0, 100_000))
def test_no_job_is_overtaken_by_one_that_became_eligible_more_than_its_delay_later(
    site: Site, policy: ByTable, order: Order, pace: tuple[int, int], later_s: int
) -> None:
    played(site, policy, order, *pace)
    site.now += later_s  # between cycles, and after the daemon has died
    for one in site.jobs:
        for other in site.jobs:
            if other.ages_since - one.ages_since > site.in_force_s(one):
                assert site.priority(one) >= site.priority(other)


@examples(60)
@given(sites(), policies, orders, st.integers(1, 6))
def test_a_delay_that_was_written_is_within_its_bounds(
    site: Site, policy: ByTable, order: Order, cycles: int
) -> None:
    upper = {
        e.job.job_id: e.upper_s for d in played(site, policy, order, 9, cycles) for e in d.entries
    }
    for one in site.jobs:
        if one.owned is not None:
            in_force = site.in_force_s(one)
            assert -1 / SLOPE <= in_force <= upper[one.job_id] + 2 / SLOPE
            assert upper[one.job_id] <= order.max_delay_s


@examples(60)
@given(sites(with_sla=True), policies, orders, st.integers(0, 9), st.integers(1, 6))
def test_a_job_that_is_not_ours_loses_no_place_by_more_than_the_neutral_delay(
    site: Site, policy: ByTable, order: Order, cap: int, cycles: int
) -> None:
    decisions = played(site, policy, order, cap, cycles)
    theirs = [one for one in site.jobs if SLA in one.partitions]
    assert all(one.site_factor == 0 for one in theirs)
    neutral = decisions[-1].neutral
    for one in theirs:
        for other in site.jobs:
            if neutral and other.ages_since - one.ages_since > neutral.delay_s:
                assert site.priority(one) >= site.priority(other)


@examples(40)
@given(sites(with_qos=True), policies, orders, st.integers(0, 9), st.integers(1, 6))
def test_the_order_of_qos_is_kept_where_the_gap_is_wider_than_the_delays(
    site: Site, policy: ByTable, order: Order, cap: int, cycles: int
) -> None:
    assert SLOPE * (order.max_delay_s + 300_000 + cycles * CYCLE_S) < QOS_GAP
    played(site, policy, order, cap, cycles)
    high = [site.priority(j) for j in site.jobs if j.qos == "high"]
    normal = [site.priority(j) for j in site.jobs if j.qos == "normal"]
    assert not high or not normal or min(high) > max(normal)


@examples(40)
@given(sites(), st.floats(0, 1e4), st.integers(1, 6))
def test_a_policy_that_asks_all_for_the_same_writes_nothing(
    site: Site, delay_s: float, cycles: int
) -> None:
    wide = Order(own=1.0, share=0.0, clip=1e9, max_delay_s=7 * DAY)
    for decision in played(site, ByTable(((delay_s,) * 5,)), wide, 9, cycles):
        assert decision.plan.is_empty


@examples(40)
@given(sites(), policies, orders, st.integers(1, 3))
def test_a_cap_only_spreads_the_writes_over_cycles(
    site: Site, policy: ByTable, order: Order, cap: int
) -> None:
    steady = ByTable(policy.tables[:1])
    decisions = played(site, steady, order, cap, len(site.jobs) + 1)
    assert all(len(d.plan.actions) <= cap for d in decisions)
    assert decisions[-1].plan.is_empty
    written = [a.target.job_id for d in decisions for a in d.plan.actions]
    assert len(written) == len(set(written))  # every write was right by itself


@given(worlds.snapshots(), policies, st.sampled_from(("auto", "priority")), st.integers(0, 6))
def test_only_chosen_jobs_are_touched_never_to_zero_and_never_more_than_the_cap(
    world: Snapshot, policy: ByTable, mode: str, cap: int
) -> None:
    system = SYSTEM if mode == "auto" else PrioritySystem("basic")
    seen = replace(world, priorities=system)
    writing = Writing(mode="auto", max_changes=cap)
    rules = Scope(sla_partitions=frozenset({SLA}))
    decision = decide(seen, policy, Knobs(rules=rules, writing=writing))
    chosen = {e.job.job_id for e in decision.entries}
    touched = [a.target.job_id for a in decision.plan.actions]
    assert set(touched) <= chosen
    assert len(touched) <= cap
    assert all(a.new >= 1 for a in decision.plan.actions if a.field is PRIORITY)
    for left in world.pending:
        if SLA in left.partitions or left.priority == 0 or left.dependency:
            assert left.job_id not in touched


@examples(40)
@given(sites(), policies, orders, st.integers(-(10**6), 0))
def test_a_job_s_delay_hangs_on_that_job_alone(
    site: Site, policy: ByTable, order: Order, base: int
) -> None:
    """A user who takes points off a job of his (--nice) changes no other job's number."""
    steady = ByTable(policy.tables[:1])
    site.neutral = NeutralDelay(3_600.0, NOW, 3_600.0, NOW)
    before = site.decided(steady, knobs(order, 99))
    first = site.jobs[0]
    site.bases[first.job_id] = base
    after = site.decided(steady, knobs(order, 99))
    others = [
        {e.job.job_id: e.delay_s for e in d.entries if e.job.job_id != first.job_id}
        for d in (before, after)
    ]
    assert others[0] == others[1]


@examples(40)
@given(sites(), policies, orders, st.integers(1, 4))
def test_a_restarted_daemon_decides_the_same(
    site: Site, policy: ByTable, order: Order, cycles: int
) -> None:
    played(site, policy, order, 9, cycles)
    once, again = (site.decided(policy, knobs(order, 9)).plan for _ in range(2))
    assert once == again


@given(
    st.sampled_from((SITE_FACTOR, PRIORITY)),
    st.floats(0.01, 1.0),
    st.integers(5, 300),
    st.floats(0, 7 * DAY),
    st.integers(20, 300_000),
)
def test_a_job_at_its_bound_is_refreshed_and_not_written_every_cycle(
    field: Field, slope: float, interval_s: int, bound_s: float, waited_s: int
) -> None:
    """Where the number for the same delay moves with age: 50 cycles of a job that may not wait
    any longer than it is asked to."""
    system = PrioritySystem(
        "multifactor",
        ages=field is PRIORITY,
        age_weight=int(slope * 14 * DAY),
        max_age_s=14 * DAY,
    )
    one = job(1, submitted_at=NOW - waited_s, priority=10**6, rest=10**6)
    upper, writes = np.array([bound_s]), -1  # the first write is no refresh
    for cycle in range(50):
        now = NOW + cycle * interval_s
        numbers = sure(numbers_of([one], system, field, now=now, neutral_s=0.0, own_slope=slope))
        (value,) = settle(numbers, upper, upper, Writing()).value
        in_force_s = float(replace(numbers, value=np.array([value])).in_force_s()[0])
        assert in_force_s <= bound_s + REFRESH_S + 1 / numbers.slope
        if value != numbers.value[0]:
            writes += 1
            owned = Ownership(field.name, int(value), original=0, rest=10**6)
            if field is PRIORITY:
                one = replace(one, owned=owned, priority=int(value))
            else:
                one = replace(one, owned=owned, site_factor=int(value))
    assert writes <= 50 * interval_s / REFRESH_S
