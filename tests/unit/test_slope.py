"""The worth of a second changes under numbers that are in force: they are written again."""

from dataclasses import replace

import pytest

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.domain.jobs import Ownership
from rltuned.domain.plan import SITE_FACTOR
from rltuned.domain.priority import NeutralDelay, PrioritySystem
from rltuned.domain.snapshot import Context, Snapshot
from rltuned.domain.units import UnixTime
from rltuned.policies.baselines import BASELINES
from tests.builders import NOW, job, snapshot, sure

DAY = 86_400.0
BEFORE = PrioritySystem("multifactor", ages=True, age_weight=60_480, max_age_s=7 * DAY)
LIMITS = (1, 5, 12, 30, 240)
"""Days. The middle is the neutral delay: what stands near it is within the hysteresis."""


def seen() -> Snapshot:
    jobs = [
        job(n, site_factor=0, priority=10_000_000, time_limit_s=days * DAY)
        for n, days in enumerate(LIMITS, start=1)
    ]
    return snapshot(*jobs, priorities=BEFORE)


KNOBS = Knobs(Scope(), Order(share=0.0))


def decided(shown: Snapshot, neutral: NeutralDelay | None = None, knobs: Knobs = KNOBS) -> Decision:
    return decide(shown, BASELINES["delay"], knobs, context=Context(neutral=neutral))


def written(shown: Snapshot, decision: Decision) -> dict[int, int]:
    now = {int(j.job_id): j.site_factor or 0 for j in shown.pending}
    sets = [a for a in decision.plan.actions if a.field is SITE_FACTOR]
    return now | {int(a.target.job_id): a.new for a in sets}


def after(shown: Snapshot, decision: Decision, passed_s: float = 60.0) -> Snapshot:
    """The cluster after the plan was carried out."""
    values, at = written(shown, decision), shown.taken_at
    changed = {int(a.target.job_id) for a in decision.plan.actions}
    jobs = []
    for one in shown.pending:
        value = values[int(one.job_id)]
        mine = Ownership("site_factor", value, original=0, written_at=at)
        owned = mine if int(one.job_id) in changed else one.owned
        jobs.append(replace(one, site_factor=value, owned=owned))
    return replace(shown, pending=tuple(jobs), taken_at=UnixTime(at + passed_s))


@pytest.mark.parametrize("times", [10.0, 2.0, 0.1])
def test_a_change_of_slope_is_written_in_the_next_cycle(times: float) -> None:
    """In review what had stepped back stood at a tenth of its delay for good."""
    first = decided(seen())
    second = after(first.snapshot, first)
    assert decided(second, first.neutral).plan.is_empty
    steeper = replace(BEFORE, age_weight=int(BEFORE.age_weight * times))
    third = replace(second, priorities=steeper)
    rewritten = decided(third, first.neutral)
    for entry in rewritten.entries:
        off_s = abs(entry.current - entry.proposed) / steeper.slope
        if entry.job.owned is not None:  # another stands at the neutral delay, as before
            assert entry.changes or off_s <= 61.0, (entry.job.job_id, off_s)
    assert len(rewritten.plan.actions) >= 2
    fourth = after(third, rewritten)
    assert decided(fourth, rewritten.neutral).plan.is_empty, "once is enough"


def test_what_the_cap_leaves_is_written_in_the_cycle_after() -> None:
    found = decided(seen())
    second = after(found.snapshot, found)
    third = replace(second, priorities=replace(BEFORE, age_weight=10 * BEFORE.age_weight))
    whole = written(third, decided(third, found.neutral))
    knobs = replace(KNOBS, writing=replace(KNOBS.writing, max_changes=1))
    for _ in range(len(LIMITS)):
        found = decided(third, found.neutral, knobs)
        third = after(third, found)
    assert {int(j.job_id): j.site_factor for j in third.pending} == whole


def test_a_slope_that_was_not_known_before_changes_nothing() -> None:
    """As of a neutral delay that an older release kept."""
    first = decided(seen())
    older = NeutralDelay(sure(first.neutral).delay_s, NOW, sure(first.neutral).running_s, NOW)
    known = sure(decided(after(first.snapshot, first), older).neutral)
    assert known.slope == pytest.approx(BEFORE.slope)
    assert known.sloped_at == 0.0


def spread() -> tuple[Snapshot, Decision]:
    """A queue of unlike jobs after a first cycle, and that cycle."""
    jobs = [
        job(n, user=f"u{n}", site_factor=0, priority=10_000_000, time_limit_s=hours * 3_600.0)
        for n, hours in enumerate((1, 8, 24, 96, 240), start=1)
    ]
    first = decided(snapshot(*jobs, priorities=BEFORE))
    return after(first.snapshot, first), first


@pytest.mark.parametrize("times", [0.7, 1.4])
def test_a_change_of_request_is_written_in_the_next_cycle(times: float) -> None:
    """Within the hysteresis, which is for wishes that swing: in review 1 -> 3 GPUs was not."""
    second, first = spread()
    longest = second.pending[-1]
    assert longest.owned is not None
    asks = replace(longest.request, time_limit_s=times * 240 * 3_600.0)
    for at, changes in ((0.0, False), (float(second.taken_at), True)):
        changed = replace(longest, request=asks, changed_at=at)
        third = replace(second, pending=(*second.pending[:-1], changed))
        decision = decided(third, first.neutral)
        entry = next(e for e in decision.entries if e.job.job_id == longest.job_id)
        assert entry.changes is changes
        if changes:
            assert entry.settled == entry.proposed
            assert decided(after(third, decision), decision.neutral).plan.is_empty


def test_a_change_of_the_neutral_delay_is_written_in_the_next_cycle_and_once() -> None:
    second, first = spread()
    assert first.neutral is not None
    now = float(second.taken_at)
    moved = replace(first.neutral, delay_s=1.3 * first.neutral.delay_s, since=now, seen_at=now)
    decision = decided(second, moved)
    written_again = [e for e in decision.entries if e.job.owned is not None]
    assert written_again
    assert all(e.changes for e in written_again)
    assert decided(after(second, decision), decision.neutral).plan.is_empty
