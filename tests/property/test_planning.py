"""What a plan may do to a queue: the safety properties."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.planning import Limits, WriteMode, order, standings
from rltuned.core.select import Refusal, Rules
from rltuned.domain.jobs import Ownership
from rltuned.domain.plan import Action, Release, SetPriority, SetSiteFactor
from rltuned.domain.snapshot import Snapshot
from rltuned.errors import PolicyError
from tests.builders import NOW, job, snapshot
from tests.property import worlds

RULES = Rules(sla_partitions=frozenset({"sla"}))
MODES: tuple[WriteMode, ...] = ("priority", "site_factor")


@dataclass(frozen=True)
class ByTable:
    """A policy that looks scores up by job id: any order there is."""

    table: tuple[float, ...]
    name: str = "table"

    def score(self, matrix: StateMatrix) -> FloatArray:
        return np.array([self.table[j.job_id % len(self.table)] for j in matrix.jobs])


policies = st.lists(
    st.floats(-1e6, 1e6) | st.sampled_from((0.0, 1.0)), min_size=15, max_size=15
).map(lambda scores: ByTable(tuple(scores)))


def knobs(mode: WriteMode = "priority", **limits: object) -> Knobs:
    in_sum = mode == "site_factor"
    rules = replace(RULES, needs_site_factor=in_sum, one_number=not in_sum)
    return Knobs(rules=rules, limits=Limits(write_mode=mode, **limits))  # type: ignore[arg-type]


def carried_out(world: Snapshot, actions: tuple[Action, ...]) -> Snapshot:
    """What the world would be if Slurm took every action."""
    by_id = {a.target.job_id: a for a in actions}
    pending = []
    for pending_job in world.pending:
        match by_id.get(pending_job.job_id):
            case SetPriority(new=new):
                pending.append(replace(pending_job, priority=new))
            case SetSiteFactor(old=old, new=new):
                moved = pending_job.priority + new - old
                pending.append(replace(pending_job, priority=moved, site_factor=new))
            case _:
                pending.append(pending_job)
    return replace(world, pending=tuple(pending))


def in_slurms_order(world: Snapshot, chosen: set[int]) -> list[int]:
    """Chosen jobs as Slurm would walk them: priority, then submit time, then id."""
    ours = [j for j in world.pending if j.job_id in chosen]
    return [int(j.job_id) for j in sorted(ours, key=lambda j: -j.priority)]


def chosen_ids(decision: Decision) -> set[int]:
    return {int(e.job.job_id) for e in decision.entries}


@given(worlds.snapshots(), policies, st.sampled_from(MODES))
def test_after_the_plan_the_queue_stands_in_the_order_that_was_decided(
    world: Snapshot, policy: ByTable, mode: WriteMode
) -> None:
    decision = decide(world, policy, knobs(mode))
    after = carried_out(world, decision.plan.actions)
    wanted = [int(e.job.job_id) for e in decision.entries]
    assert in_slurms_order(after, chosen_ids(decision)) == wanted


@given(worlds.snapshots(), policies, st.sampled_from(MODES), st.integers(0, 6))
def test_only_chosen_jobs_are_touched_never_to_zero_and_never_more_than_the_cap(
    world: Snapshot, policy: ByTable, mode: WriteMode, max_changes: int
) -> None:
    decision = decide(world, policy, knobs(mode, max_changes=max_changes))
    touched = {int(a.target.job_id) for a in decision.plan.actions}
    assert touched <= chosen_ids(decision)
    assert len(touched) == len(decision.plan.actions) <= max_changes
    assert all(
        j.priority >= 1 for j in carried_out(world, decision.plan.actions).pending if j.priority
    )
    for left in world.pending:
        if "sla" in left.partitions or left.priority == 0 or left.dependency:
            assert left.job_id not in touched


@given(worlds.snapshots(), policies, st.sampled_from(MODES))
def test_a_world_that_took_the_plan_needs_no_other(
    world: Snapshot, policy: ByTable, mode: WriteMode
) -> None:
    plan = decide(world, policy, knobs(mode)).plan
    after = carried_out(world, plan.actions)
    assert decide(after, policy, knobs(mode)).plan.is_empty


@given(worlds.snapshots(), policies)
def test_without_hysteresis_the_order_is_the_order_of_the_scores(
    world: Snapshot, policy: ByTable
) -> None:
    decision = decide(world, policy, knobs(hysteresis=0.0))
    scores = [e.score for e in decision.entries]
    assert scores == sorted(scores, reverse=True)


@given(worlds.snapshots(), policies, st.integers(2, 5))  # one write cannot exchange two jobs
def test_a_capped_plan_gets_the_head_right_first_and_all_of_it_in_the_end(
    world: Snapshot, policy: ByTable, max_changes: int
) -> None:
    # jobs that are not ours may forbid making ties strict, so this is about a queue of our own
    free = Knobs(limits=Limits(max_changes=max_changes, hysteresis=0.0))
    ours = decide(world, policy, free).entries
    world = replace(world, pending=tuple(e.job for e in ours))
    now = world
    for _ in range(4 * len(world.pending) + 4):
        plan = decide(now, policy, free).plan
        if plan.is_empty:
            break
        now = carried_out(now, plan.actions)
    last = decide(now, policy, free)
    wanted = [int(e.job.job_id) for e in last.entries]
    assert in_slurms_order(now, chosen_ids(last))[:1] == wanted[:1]


@given(worlds.snapshots(), policies, st.randoms(use_true_random=False))
def test_the_order_in_which_slurm_lists_the_queue_changes_nothing(
    world: Snapshot, policy: ByTable, shuffler: object
) -> None:
    pending = list(world.pending)
    shuffler.shuffle(pending)  # type: ignore[attr-defined]
    again = replace(world, pending=tuple(pending))
    assert decide(again, policy, knobs()).plan == decide(world, policy, knobs()).plan


@given(st.lists(st.integers(1, 40), max_size=30))
def test_standings_are_strict_at_least_one_and_the_same_where_nothing_ties(
    values: list[int],
) -> None:
    numbers = standings(np.array(values, dtype=np.int64), None)
    assert (np.diff(numbers) < 0).all()
    assert (numbers >= 1).all()
    if len(set(values)) == len(values):
        assert numbers.tolist() == sorted(values, reverse=True)


@given(worlds.snapshots(), policies)
def test_no_managed_job_climbs_over_one_that_is_not_ours(drawn: Snapshot, policy: ByTable) -> None:
    room = len(drawn.pending)  # below, so that ties can be made strict downwards
    lifted = (replace(j, priority=j.priority + room if j.priority else 0) for j in drawn.pending)
    world = replace(drawn, pending=tuple(lifted))
    decision = decide(world, policy, knobs())
    ours = chosen_ids(decision)
    after = carried_out(world, decision.plan.actions)
    for other in (j for j in world.pending if j.priority and j.job_id not in ours):
        above = sum(j.priority > other.priority for j in world.pending if j.job_id in ours)
        now_above = sum(j.priority > other.priority for j in after.pending if j.job_id in ours)
        assert now_above <= above


def test_distinct_priorities_are_exchanged_and_nothing_else() -> None:
    world = snapshot(job(1, priority=500), job(2, priority=300), job(3, priority=400))
    decision = decide(world, ByTable((0.0, 1.0, 3.0, 2.0)), knobs())
    assert [(e.job.job_id, e.proposed) for e in decision.entries] == [(2, 500), (3, 400), (1, 300)]
    assert [(e.rank_before, e.rank_after) for e in decision.entries] == [(3, 1), (2, 2), (1, 3)]
    assert {a.target.job_id for a in decision.plan.actions} == {1, 2}


def test_a_band_gives_numbers_of_its_own() -> None:
    world = snapshot(job(1, priority=500), job(2, priority=300))
    decision = decide(world, ByTable((0.0, 1.0, 3.0)), knobs(band=(1_000, 2_000)))
    assert [(e.job.job_id, e.proposed) for e in decision.entries] == [(2, 2_000), (1, 1_500)]


def test_a_band_too_narrow_for_the_queue_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"3 jobs do not fit into the priority band 5\.\.6"):
        standings(np.array([9, 9, 9]), (5, 6))


@pytest.mark.parametrize("bad", [{"max_changes": -1}, {"hysteresis": 1.0}, {"band": (0, 5)}])
def test_limits_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Limits(**bad)  # type: ignore[arg-type]


def test_scores_within_the_hysteresis_keep_the_present_order() -> None:
    scores = np.array([1.0, 1.01, 0.0, 2.0])
    before = np.array([0, 1, 2, 3])
    assert order(scores, before, 0.0).tolist() == [3, 1, 0, 2]
    assert order(scores, before, 0.05).tolist() == [3, 0, 1, 2]


def test_a_job_that_became_sla_gets_its_own_standing_back() -> None:
    ours = Ownership("priority", 700, nice=20)
    world = snapshot(
        job(1, priority=700, owned=ours, partition="sla"),
        job(2, priority=999, owned=ours, partition="sla"),  # changed by somebody else since
        job(3, priority=0, owned=ours, partition="sla"),  # held since: a release would start it
    )
    decision = decide(world, ByTable((0.0,)), knobs())
    assert [(type(a), a.target.job_id) for a in decision.plan.actions] == [(Release, 1)]
    assert decision.plan.actions[0] == Release(decision.plan.actions[0].target, 700, 20)
    assert decision.notes == ("1 jobs that are no longer ours get their standing back",)


def test_a_job_that_somebody_else_has_set_since_is_theirs_from_then_on() -> None:
    ours = Ownership("priority", 700, nice=0, original=500, earlier=(500,))
    world = snapshot(
        job(1, priority=9_999, owned=ours),  # an admin's doing
        job(2, priority=503, owned=ours),  # backfill put multifactor's number back
        job(3, priority=600),
    )
    decision = decide(world, ByTable((0.0, 3.0, 2.0, 1.0)), knobs())
    assert (1, Refusal.TAKEN_OVER) in decision.refused
    assert [(e.job.job_id, e.proposed) for e in decision.entries] == [(2, 700), (3, 600)]
    assert [a.target.job_id for a in decision.plan.actions] == [2]


def test_writes_that_backfill_reverts_do_not_drain_the_numbers_there_are() -> None:
    ours = Ownership("priority", 300, nice=0, original=100, earlier=(100,))
    world = snapshot(job(1, priority=100, owned=ours), job(2, priority=200), job(3, priority=100))
    decision = decide(world, ByTable((0.0, 3.0, 2.0, 1.0)), knobs())
    assert [e.proposed for e in decision.entries] == [300, 200, 100]


def test_a_site_factor_goes_back_to_what_it_was_before_us() -> None:
    ours = Ownership("site_factor", 700, original=5, earlier=(5,))
    world = snapshot(job(1, priority=900, site_factor=700, owned=ours, partition="sla"))
    actions = decide(world, ByTable((0.0,)), knobs("site_factor")).plan.actions
    assert [(a.old, a.new) for a in actions if isinstance(a, SetSiteFactor)] == [(700, 5)]


def test_a_changed_write_mode_lets_go_of_frozen_jobs_first() -> None:
    frozen = job(1, priority=700, owned=Ownership("priority", 700, nice=0))
    decision = decide(snapshot(frozen), ByTable((0.0,)), knobs("site_factor"))
    assert [type(a) for a in decision.plan.actions] == [Release]
    assert decision.refused == ((1, Refusal.HANDED_BACK),)


def test_the_users_nice_is_remembered_from_before_the_first_write() -> None:
    world = snapshot(
        job(1, priority=10, nice=33),
        job(2, priority=20, nice=0, owned=Ownership("priority", 20, nice=44)),
    )
    plan = decide(world, ByTable((0.0, 2.0, 1.0)), knobs()).plan
    assert {a.target.job_id: a.nice for a in plan.actions if isinstance(a, SetPriority)} == {
        1: 33,
        2: 44,
    }


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ((float("nan"),), "job 1 a score that is not finite"),
        ((float("inf"),), "job 1 a score that is not finite"),
    ],
)
def test_scores_that_are_no_numbers_are_refused(scores: tuple[float, ...], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        decide(snapshot(job(1)), ByTable(scores), knobs())


def test_scores_of_the_wrong_shape_are_refused() -> None:
    @dataclass(frozen=True)
    class Short:
        name: str = "short"

        def score(self, matrix: StateMatrix) -> FloatArray:
            return np.zeros(len(matrix) - 1)

    with pytest.raises(PolicyError, match=r"scores of shape \(0,\) for 1 jobs"):
        decide(snapshot(job(1)), Short(), knobs())


def test_among_thousands_of_tied_jobs_the_head_is_still_put_right() -> None:
    jobs = tuple(job(i, priority=1_000, submitted_at=NOW - 20_000 + i) for i in range(1, 2_001))
    last_first = ByTable(tuple(float(i) for i in range(2_001)))
    world = snapshot(*jobs)
    for _ in range(2):
        plan = decide(world, last_first, knobs(max_changes=100, hysteresis=0.0)).plan
        assert 0 < len(plan.actions) <= 100
        world = carried_out(world, plan.actions)
    assert in_slurms_order(world, set(range(2_001)))[:50] == list(range(2_000, 1_950, -1))
