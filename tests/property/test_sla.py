"""What classes promise, for any policy, queue, class and cap, over cycles; what stays as it is."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.numbers import Writing
from rltuned.core.order import Order
from rltuned.core.sla import LIFT_S, SINK_S, SlaClass, class_of, due_lifts
from rltuned.domain.jobs import PendingJob
from rltuned.domain.priority import NeutralDelay
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.policies.baselines import BASELINES
from rltuned.settings.keys import Settings
from tests.builders import NOW, job, snapshot
from tests.property.sites import QOS_GAP, Site, orders, sites
from tests.property.tables import CYCLE_S, SLOPE, SYSTEM, ByTable, policies

QOS = ("normal", "high")
FUZZED = 10_000

classes = st.builds(
    SlaClass,
    key=st.just("account"),
    value=st.just("fast"),
    max_wait_s=st.sampled_from((60.0, 3_600.0, 200_000.0)),
    lift_jobs=st.integers(0, 4),
    over_qos=st.frozensets(st.sampled_from(QOS)),
    deadline_s=st.none() | st.just(200.0),
)


@st.composite
def queues(draw: st.DrawFn) -> Site:
    site = draw(sites(with_qos=True))
    for i, one in enumerate(site.jobs):
        account = draw(st.sampled_from(("fast", "lab")))
        at = draw(st.none() | st.just(UnixTime(NOW + 4_000.0)))
        site.jobs[i] = replace(one, account=account, deadline_at=at)
        site.bases[one.job_id] += draw(st.integers(0, 50_000))  # fair share, partition, size
    return site


def played(site: Site, policy: ByTable, knobs: Knobs, cycles: int) -> list[Decision]:
    decisions = []
    for cycle in range(cycles):
        site.now += CYCLE_S * (cycle > 0)
        decisions.append(decide(site.seen(), policy, knobs))
        site.carry_out(decisions[-1])
    return decisions


def knobs_of(order: Order, one: SlaClass, cap: int) -> Knobs:
    return Knobs(order=order, writing=Writing(max_changes=cap), top_k=0, sla=(one,))


cycle_counts = st.integers(1, 6)
every = st.builds(knobs_of, orders, classes, st.just(99))
capped = st.builds(knobs_of, orders, classes, st.integers(0, 9))


@settings(max_examples=150)
@given(queues(), policies, every, cycle_counts)
def test_the_late_jobs_of_a_class_stand_above_all_that_they_may_pass(
    site: Site, policy: ByTable, knobs: Knobs, cycles: int
) -> None:
    played(site, policy, knobs, cycles)
    known = [class_of(j, knobs.sla) for j in site.jobs]
    lifts = due_lifts(site.jobs, known, site.seen(), 99)
    assert len(lifts) <= knobs.sla[0].lift_jobs
    for row, lift in lifts.items():
        for i, other in enumerate(site.jobs):
            if other.qos in lift.qos and i not in lifts:
                assert lift.passes(other)  # there is one partition
                assert site.priority(site.jobs[row]) > site.priority(other)


@settings(max_examples=150)
@given(queues(), policies, capped, cycle_counts)
def test_a_lift_is_no_higher_than_needed_and_passes_no_other_qos(
    site: Site, policy: ByTable, knobs: Knobs, cycles: int
) -> None:
    alone = replace(knobs.sla[0], over_qos=frozenset())
    played(site, policy, replace(knobs, sla=(alone,)), cycles)
    for qos in QOS:
        mine = [j for j in site.jobs if j.qos == qos]
        zero = int(SLOPE * (site.neutral.delay_s if site.neutral else 0.0)) + 1
        own = [site.priority(replace(j, site_factor=zero)) for j in mine]
        most = max(own, default=0) + SLOPE * (LIFT_S + SINK_S + 3 * CYCLE_S * cycles)
        assert all(site.priority(j) <= most for j in mine)
    high = [site.priority(j) for j in site.jobs if j.qos == "high"]
    normal = [site.priority(j) for j in site.jobs if j.qos == "normal"]
    assert SLOPE * (knobs.order.max_delay_s + 400_000) + 50_000 < QOS_GAP
    assert not high or not normal or min(high) > max(normal)


@settings(max_examples=100)
@given(queues(), policies, capped, st.integers(1, 20))
def test_a_cap_holds_and_what_is_steady_is_written_no_more(
    site: Site, policy: ByTable, knobs: Knobs, cycles: int
) -> None:
    cap, steady = knobs.writing.max_changes, ByTable(policy.tables[:1])
    decisions = [decide(site.seen(), steady, knobs)]
    for _ in range(cycles):
        site.carry_out(decisions[-1])
        decisions.append(decide(site.seen(), steady, knobs))
    assert all(len(decision.plan.actions) <= cap for decision in decisions)
    if cap and cycles > 2 * len(site.jobs):
        assert decisions[-1].plan.is_empty


def drawn_class(rng: np.random.Generator) -> dict[str, object]:
    """A table of `[[sla]]`, odd as often as not."""
    names = ("", "fast", "gpu", "normal", "high", "é", "a b", "x" * 300, "-1", "*", "ALL")
    values: dict[str, list[object]] = {
        "partition": [*names, 3],
        "qos": [*names, None],
        "account": [*names, ["fast"]],
        "max_wait_s": [0.0, 1e-9, 60.0, 3e7, 1e300, float("inf"), float("nan"), -1.0, "60", True],
        "lift_jobs": [0, 1, 3, 10_000, -1, 2**70, 1.5],
        "over_qos": [[], ["high"], ["normal", "high"], "high", [""], [1]],
        "lift_deadlines": [True, False, 0],
        "weight": [1],
    }
    sane = {"max_wait_s": 60.0, "lift_jobs": 3}
    picked = [name for name in values if rng.random() < (0.05 if name == "weight" else 0.35)]
    return sane | {name: values[name][int(rng.integers(len(values[name])))] for name in picked}


def fuzz_queue() -> Snapshot:
    jobs: list[PendingJob] = [
        job(
            n,
            submitted_at=NOW - 500.0 * n,
            priority=100_000 + 977 * (n % 5),
            qos=QOS[n % 2],
            account=("lab", "fast", "x" * 300)[n % 3],
            partitions=(("gpu",), ("gpu", "fast"), ("fast",))[n % 3],
            deadline_at=UnixTime(NOW + 4_000.0) if n % 4 == 0 else None,
        )
        for n in range(1, 9)
    ]
    neutral = NeutralDelay(600.0, NOW, 600.0, NOW)
    return snapshot(*jobs, priorities=SYSTEM, neutral=neutral)


def test_ten_thousand_classes_raise_nothing_and_move_no_job_of_another_class() -> None:
    rng, seen, policy = np.random.default_rng(22), fuzz_queue(), BASELINES["saf"]
    plain = {a.target.job_id: a for a in decide(seen, policy, Knobs(top_k=0)).plan.actions}
    accepted = 0
    for _ in range(FUZZED):
        tables = [drawn_class(rng) for _ in range(int(rng.integers(1, 4)))]
        try:
            found = Settings.model_validate({"sla": tables}).knobs().sla
        except ValidationError:
            continue
        accepted += 1
        decision = decide(seen, policy, Knobs(top_k=0, sla=found))
        ours: set[JobId] = {j.job_id for j in seen.pending if class_of(j, found)}
        written = {a.target.job_id: a for a in decision.plan.actions}
        assert {j: a for j, a in written.items() if j not in ours} == {
            j: a for j, a in plain.items() if j not in ours
        }
        if not ours:
            assert decision.plan == decide(seen, policy, Knobs(top_k=0)).plan
        assert sum(e.lifted for e in decision.entries) <= sum(one.lift_jobs for one in found)
    assert accepted > FUZZED / 50
