"""A boost shortens the delays of critical jobs alone, and without one nothing changes."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rltuned.core.decide import Knobs, decide
from rltuned.core.order import Order
from rltuned.core.planning import undo
from rltuned.daemon.groups import looked, status_of, with_critical
from rltuned.domain.groups import GroupStore
from rltuned.domain.jobs import Ownership, PendingJob
from rltuned.domain.plan import SetSiteFactor
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.inputs import plan_document
from rltuned.policies.baselines import BASELINES
from rltuned.slurm.strings import parse_dependency
from tests.builders import NOW, job, running, snapshot
from tests.property import worlds
from tests.property.tables import DAY, SYSTEM, ByTable, policies

KNOBS = Knobs(order=Order(stretch=0.3, max_delay_s=DAY))


@st.composite
def queues(draw: st.DrawFn) -> Snapshot:
    """Some jobs wait for an earlier one or for job 100, which runs."""
    made: list[PendingJob] = []
    for number in range(1, draw(st.integers(2, 8)) + 1):
        parent = draw(st.none() | st.sampled_from([*range(1, number), 100]))
        waits: dict[str, Any] = {} if parent is None else {
            "dependency": f"afterok:{parent}(unfulfilled)",
            "reason": "Dependency",
            "eligible_at": None,
            "site_factor": None,
        }  # fmt: skip
        at = NOW - draw(st.integers(20, 90_000))
        waits.setdefault("eligible_at", at)
        asks = draw(worlds.requests)
        made.append(job(number, asks=asks, submitted_at=at, priority=20_000, **waits))
    return snapshot(*made, runs=[running(100)], priorities=SYSTEM)


def boosted(seen: Snapshot, boost: float) -> Snapshot:
    return with_critical(seen, status_of(looked(GroupStore(), seen), NOW), boost)


@given(queues(), policies)
def test_without_a_boost_plans_are_those_of_before(seen: Snapshot, policy: ByTable) -> None:
    bare = json.dumps(plan_document(decide(seen, policy, KNOBS)))
    same = boosted(seen, 0.0)
    assert same is seen
    assert json.dumps(plan_document(decide(same, policy, KNOBS))) == bare
    assert '"priority": null' not in bare


@settings(deadline=None)
@given(queues(), policies, st.sampled_from((0.25, 0.9)))
def test_only_critical_jobs_step_forward(seen: Snapshot, policy: ByTable, boost: float) -> None:
    marked = boosted(seen, boost)
    bare = decide(seen, policy, KNOBS)
    found = decide(marked, policy, replace(KNOBS, boost=boost))
    before = {e.job.job_id: e.delay_s for e in bare.entries}
    for entry in found.entries:
        assert 0 <= entry.delay_s <= entry.upper_s
        if entry.job.job_id in before:
            share = 1 - boost if entry.job.job_id in marked.critical else 1.0
            assert np.isclose(entry.delay_s, share * before[entry.job.job_id])
        else:  # a dependency holds it
            assert entry.job.job_id in marked.critical
            assert entry.placement is None


def dependent(**rest: Any) -> PendingJob:
    fields: dict[str, Any] = {
        "dependency": "afterok:100(unfulfilled)",
        "reason": "Dependency",
        "priority": 5_000,
    }
    return job(2, **(fields | {"eligible_at": None, "site_factor": None} | rest))


def test_a_successor_has_its_number_before_it_can_start_and_gives_it_back() -> None:
    others = [job(n, gpus=4, priority=20_000) for n in range(10, 15)]
    seen = snapshot(dependent(), *others, runs=[running(100)], priorities=SYSTEM)
    rule, knobs = BASELINES["delay"], replace(KNOBS, boost=0.5)
    decision = decide(boosted(seen, 0.5), rule, knobs)
    (write,) = (a for a in decision.plan.actions if a.target.job_id == 2)
    assert isinstance(write, SetSiteFactor)
    assert (write.old, write.priority) == (0, 5_000)
    assert write.new > 0  # it steps back less than the median job
    owned = Ownership("site_factor", write.new, original=0)
    held = dependent(owned=owned, priority=5_000 + write.new)
    back = undo(held)
    assert isinstance(back, SetSiteFactor)
    assert (back.old, back.new, back.priority) == (write.new, 0, held.priority)
    again = boosted(replace(seen, pending=(held, *others)), 0.5)
    assert not [a for a in decide(again, rule, knobs).plan.actions if a.target.job_id == 2]
    assert parse_dependency(held.dependency).whole
