"""Whatever the policy, the placement and the other guards say: nobody passes the overdue."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rltuned.core.decide import Knobs, decide
from rltuned.core.guards import Guards
from rltuned.core.planning import Limits
from rltuned.core.starvation import Bound, overdue
from rltuned.domain.snapshot import Snapshot
from rltuned.solver import cbc
from tests.property import worlds
from tests.property.test_planning import (
    MODES,
    RULES,
    ByTable,
    carried_out,
    chosen_ids,
    in_slurms_order,
    policies,
)

guards = st.builds(
    Guards, st.none() | st.integers(0, 3), st.integers(0, 4), st.sampled_from((0.0, 0.5, 1.0))
)
all_knobs = st.builds(
    Knobs,
    rules=st.just(RULES),
    limits=st.builds(Limits, write_mode=st.sampled_from(MODES), guards=guards),
    placement=st.sampled_from(("pack", "milp")),
    starvation=st.builds(
        Bound, st.sampled_from((0.0, 20_000.0, 60_000.0)), st.sampled_from((1.0, 3.0))
    ),
)


@settings(deadline=None)
@given(worlds.snapshots(), policies, all_knobs)
def test_after_a_plan_the_overdue_stand_before_all_that_came_later(
    world: Snapshot, policy: ByTable, knobs: Knobs
) -> None:
    decision = decide(world, policy, knobs, cbc())
    ours = [j for j in world.pending if j.job_id in chosen_ids(decision)]
    came = [int(j.job_id) for j in ours]
    late = [came[i] for i in overdue(ours, world, knobs.starvation).tolist()]
    after = in_slurms_order(carried_out(world, decision.plan.actions), chosen_ids(decision))
    assert after == [int(e.job.job_id) for e in decision.entries]
    for job_id in late:
        ahead = after[: after.index(job_id)]
        assert all(came.index(other) < came.index(job_id) for other in ahead)
