"""Joint placements by example: when nothing is solved, what is chosen, what follows."""

from collections.abc import Mapping
from dataclasses import replace

import pulp
import pytest

from rltuned.core.capacity import Capacity
from rltuned.core.decide import Decision, Knobs, PlacementMode, decide
from rltuned.core.milp import (
    Budget,
    JointPlacement,
    Sharing,
    Solver,
    SolveStatus,
    Tuning,
    blocker,
    place_jointly,
)
from rltuned.core.milp import SharingBlocker as Blocker
from rltuned.core.numbers import Writing
from rltuned.core.placement import place
from rltuned.core.select import Scope
from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import ArrayInfo, PendingJob
from rltuned.domain.plan import OVERSUBSCRIBE
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import SolverError
from rltuned.solver import Cbc
from tests.builders import NOW, job, node, request, running, snapshot, sure
from tests.fakes import ConstantOrder

PATIENT = Tuning(Budget(wall_s=60.0))
GUIDED = replace(PATIENT, sharing=Sharing(frozenset({"gpu"})))


class NeverAsked:
    """A solver that must not be needed."""

    def __call__(self, _: pulp.LpProblem, __: Budget) -> Mapping[str, float]:
        raise AssertionError("a program was solved")


class Away:
    """A solver that is over its budget."""

    def __call__(self, _: pulp.LpProblem, __: Budget) -> Mapping[str, float]:
        raise SolverError("cbc took longer than 1 s")


def jointly(
    world: Snapshot, tuning: Tuning = PATIENT, solver: Solver | None = None
) -> JointPlacement:
    capacity = Capacity.of(world)
    fits = [place(j, capacity) is not None for j in world.pending]
    return place_jointly(world.pending, fits, world, tuning, solver or Cbc())


def where(joint: JointPlacement) -> dict[int, str]:
    return {p.job_id: "+".join(s.node for s in p.shares) for p in joint.placements}


def why(joint: JointPlacement) -> dict[int, str]:
    return {job_id: verdict["why"] for job_id, verdict in joint.verdicts.items()}


def jobs(*asks: Mapping[str, object]) -> list[PendingJob]:
    return [job(i, submitted_at=NOW - 1_000 + i, **kw) for i, kw in enumerate(asks, 1)]  # type: ignore[arg-type]


def decided(
    world: Snapshot,
    solver: Solver | None,
    tuning: Tuning = PATIENT,
    *,
    max_changes: int = 200,
    most_per_hour: int | None = None,
) -> Decision:
    order = tuple(int(j.job_id) for j in world.pending)
    knobs = Knobs(
        rules=Scope(min_age_s=0.0, max_writes_per_hour=most_per_hour),
        writing=Writing(max_changes=max_changes),
        placement="milp",
        tuning=tuning,
    )
    return decide(world, ConstantOrder(order), knobs, solver)


# when nothing is solved


def test_nothing_is_solved_when_nothing_fits() -> None:
    world = snapshot(*jobs({"gpus": 4}, {"gpus": 4}), nodes=[node(free_gpus=1)])
    joint = jointly(world, solver=NeverAsked())
    assert (joint.how, joint.why) == (SolveStatus.SKIPPED, "none of the first jobs fits now")
    assert not joint.placements
    decision = decided(world, NeverAsked())
    assert "joint placement skipped: none of the first jobs fits now" in decision.notes


def test_nothing_is_solved_when_all_that_could_start_do() -> None:
    world = snapshot(*jobs({}, {}, {"gpus": 8}), nodes=[node("a"), node("b", free_gpus=2)])
    joint = jointly(world, solver=NeverAsked())
    assert joint.how is SolveStatus.SKIPPED
    assert why(joint) == {
        1: "starts now, packed on b",
        2: "starts now, packed on b",
        3: "does not start now",
    }


def test_an_exclusive_job_that_delays_nobody_keeps_its_node() -> None:
    joint = jointly(_exclusive_world(others=0), GUIDED, NeverAsked())
    assert (joint.how, joint.actions) == (SolveStatus.SKIPPED, ())


# the solver fails


def test_the_greedy_answer_stands_when_the_solver_fails() -> None:
    joint = jointly(_tight(), solver=Away())
    assert (joint.how, joint.why) == (SolveStatus.FELL_BACK, "cbc took longer than 1 s")
    assert set(where(joint)) == {1, 3}
    decision = decided(_tight(), Away())
    assert "joint placement fell_back: cbc took longer than 1 s" in decision.notes


# what is chosen


def _tight() -> Snapshot:
    """Best fit puts the first job on the only node that has the CPUs for the second."""
    nodes = [node("a", free_gpus=1, free_cpus=16), node("b", free_gpus=2, free_cpus=4)]
    queue = jobs({"gpus": 1, "cpus": 2}, {"gpus": 1, "cpus": 12}, {"gpus": 1, "cpus": 2})
    return snapshot(*queue, nodes=nodes)


def test_a_job_is_spread_where_packing_it_keeps_another_one_waiting() -> None:
    joint = jointly(_tight())
    assert joint.how is SolveStatus.SOLVED
    assert why(joint) == {
        1: "starts now, spread over b, as packed it would keep others waiting",
        2: "starts now, packed on a",
        3: "starts now, packed on b",
    }
    decision = decided(_tight(), Cbc())
    assert [e.job.job_id for e in decision.entries] == [1, 2, 3]  # numbers follow delays alone
    assert not any(a.field is OVERSUBSCRIBE for a in decision.plan.actions)


def test_who_starts_by_itself_starts() -> None:
    """Three small jobs would be worth more than the first, which takes the whole node."""
    world = snapshot(
        *jobs({"gpus": 4, "cpus": 3}, *[{"gpus": 1, "cpus": 4}] * 3),
        nodes=[node("a", cpus=12), node("b", gpus=1, cpus=4, free_cpus=3)],
    )
    assert set(where(jointly(world))) == {1}


def test_who_is_promised_a_start_is_not_put_off() -> None:
    """The first is promised node a in 600 s: a job of a day there would take that away."""
    nodes = [node("a", free_gpus=2), node("b", free_gpus=0), node("c", gpus=1)]
    runs = [
        running(100, node_name="a", gpus=2, started_at=NOW, time_limit_s=600.0),
        running(101, node_name="b", gpus=4, started_at=NOW, time_limit_s=700.0),
    ]
    long, short = {"gpus": 2, "time_limit_s": 86_400.0}, {"gpus": 2, "time_limit_s": 300.0}
    world = snapshot(*jobs({"gpus": 4}, long, short, {"gpus": 1}), nodes=nodes, runs=runs)
    assert set(where(jointly(world))) == {3, 4}


def test_jobs_outside_the_model_are_not_placed() -> None:
    first, *others = _tight().pending
    licensed = replace(first, request=replace(first.request, outside=("licenses",)))
    world = replace(_tight(), pending=(licensed, *others))
    assert set(where(jointly(world))) == {2, 3}


@pytest.mark.parametrize("placement", ["pack", "spread", "milp"])
def test_an_array_of_which_no_more_tasks_may_run_takes_no_place(placement: PlacementMode) -> None:
    first, second = jobs({"gpus": 4}, {"gpus": 4})
    array = replace(first, array=ArrayInfo(JobId(1), 5, throttle=1, listed="1-5"))
    task = running(33, node_name="b", gpus=4, array_job_id=JobId(1))
    nodes = [node("a"), node("b", free_gpus=0)]

    def placed(pending: PendingJob) -> list[int]:
        world = snapshot(pending, second, runs=[task], nodes=nodes)
        knobs = Knobs(rules=Scope(min_age_s=0.0), placement=placement, tuning=PATIENT)
        found = decide(world, ConstantOrder((1, 2)), knobs, Cbc())
        assert [e.job.job_id for e in found.entries] == [1, 2]  # it is ordered all the same
        return [int(p.job_id) for p in found.placements]

    assert placed(array) == [2]
    assert placed(replace(array, array=ArrayInfo(JobId(1), 5, throttle=2))) == [1]


def test_a_long_queue_costs_no_more_than_its_beginning() -> None:
    world = snapshot(*jobs(*[{"gpus": 1}] * 1_000), nodes=[node("a", free_gpus=2)])
    joint = jointly(world)
    assert list(joint.verdicts) == list(range(1, 65))
    assert set(where(joint)) == {1, 2}


def test_the_order_in_which_slurm_lists_things_changes_nothing() -> None:
    nodes = [node(f"n{i}", free_gpus=1 + i % 3, free_cpus=4 + i) for i in range(4)]
    queue = jobs(*[{"gpus": 1 + i % 3, "cpus": 3 + i} for i in range(6)])
    one = jointly(snapshot(*queue, nodes=nodes))
    assert one == jointly(snapshot(*queue[::-1], nodes=nodes[::-1]))


# exclusive jobs that are to share


def _exclusive_world(others: int, flag: str = "NO", setting: str = "NO") -> Snapshot:
    alone = job(
        1,
        submitted_at=NOW - 1_000,
        asks=request(gpus=1, exclusive=True),
        oversubscribe=flag,
    )
    rest = [job(2 + i, submitted_at=NOW - 900 + i, gpus=2) for i in range(others)]
    return snapshot(
        alone,
        *rest,
        partitions=[Partition("gpu", True, oversubscribe=setting)],
        preemption=False,
    )


def test_sharing_lets_the_next_job_in() -> None:
    decision = decided(_exclusive_world(others=1), Cbc(), GUIDED)
    flags = [a for a in decision.plan.actions if a.field is OVERSUBSCRIBE]
    assert [(a.target.job_id, a.old, a.new) for a in flags] == [(1, "NO", "YES")]
    assert {p.job_id for p in decision.placements} == {1, 2}
    assert why(sure(decision.joint))[1] == (
        "starts now, packed on p1; it is to share its nodes, as alone on them it would keep others "
        "waiting"
    )


def _busy_world(**more: object) -> Snapshot:
    """Two nodes, each full until an end that nobody knows; exclusive jobs wait."""
    runs = [
        running(100 + i, node_name=name, gpus=4, cpus=16, started_at=NOW - 60.0)
        for i, name in enumerate(("a", "b"))
    ]
    nodes = [node(name, free_gpus=0, free_cpus=0) for name in ("a", "b")]
    asks = request(gpus=2, cpus=4, exclusive=True)
    queue = [job(i, submitted_at=NOW - 900 + i, asks=asks, oversubscribe="NO") for i in (1, 2, 3)]
    world = snapshot(
        *queue, nodes=nodes, runs=runs, partitions=[Partition("gpu", True)], preemption=False
    )
    return replace(world, **more)  # type: ignore[arg-type]


def test_jobs_are_set_to_share_before_their_turn() -> None:
    """A node that falls free between two cycles is given away before the next one."""
    joint = jointly(_busy_world(), GUIDED)
    assert [a.target.job_id for a in joint.actions] == [1, 2]
    assert why(joint)[1].startswith("does not start now; it is to share its nodes")
    assert why(joint)[3] == "does not start now"


def test_several_nodes_may_fall_free_between_two_cycles() -> None:
    asks = _busy_world().pending[0]
    queue = tuple(replace(asks, job_id=JobId(i)) for i in range(1, 7))
    joint = jointly(_busy_world(pending=queue), GUIDED)
    assert [a.target.job_id for a in joint.actions] == [1, 2, 3, 4]


def test_nobody_is_set_to_share_ahead_where_no_end_is_known() -> None:
    runs = tuple(
        replace(r, request=replace(r.request, time_limit_s=None)) for r in _busy_world().running
    )
    joint = jointly(_busy_world(running=runs), GUIDED, NeverAsked())
    assert (joint.how, joint.actions) == (SolveStatus.SKIPPED, ())


def test_a_lone_job_is_not_set_to_share_ahead() -> None:
    joint = jointly(_busy_world(pending=_busy_world().pending[:1]), GUIDED)
    assert joint.actions == ()


def test_a_job_whose_hourly_budget_is_spent_gets_no_flag() -> None:
    world = _exclusive_world(others=1)
    assert decided(world, Cbc(), GUIDED, most_per_hour=2).plan.actions
    first, *rest = world.pending
    spent = replace(world, pending=(replace(first, recent_writes=2), *rest))
    flags = decided(spent, Cbc(), GUIDED, most_per_hour=2).plan.actions
    assert not [a for a in flags if a.field is OVERSUBSCRIBE]


def test_flags_wait_where_the_change_budget_is_used_up() -> None:
    decision = decided(_exclusive_world(others=1), Cbc(), GUIDED, max_changes=0)
    assert not decision.plan.actions
    assert "1 flags wait: over the change budget" in decision.notes


def test_sharing_is_off_by_default() -> None:
    decision = decided(_exclusive_world(others=1), Cbc())
    assert not any(a.field is OVERSUBSCRIBE for a in decision.plan.actions)


HERE = Sharing(frozenset({"gpu"}))
WORLD = _exclusive_world(1)


@pytest.mark.parametrize(
    ("world", "sharing", "why"),
    [
        (WORLD, HERE, None),
        (WORLD, Sharing(frozenset({"other"})), Blocker.NOT_IN_SCOPE),
        (_exclusive_world(1, setting="FORCE:4"), HERE, Blocker.FORCED),
        (_exclusive_world(1, setting="EXCLUSIVE"), HERE, Blocker.FORCED),
        (_exclusive_world(1, setting="YES:4"), HERE, Blocker.CPU_SHARING),
        (_exclusive_world(1, setting="YES:4"), replace(HERE, allow_cpu_sharing=True), None),
        (_exclusive_world(1, flag="YES"), HERE, Blocker.NOT_BY_FLAG),
        (_exclusive_world(1, flag="USER"), HERE, Blocker.NOT_BY_FLAG),
        (replace(WORLD, preemption=True), HERE, Blocker.PREEMPTION),
        (replace(WORLD, preemption=None), HERE, Blocker.PREEMPTION_UNKNOWN),
        (replace(WORLD, partitions=()), HERE, Blocker.PARTITION_UNKNOWN),
    ],
)
def test_where_the_flag_is_left_alone(
    world: Snapshot, sharing: Sharing, why: Blocker | None
) -> None:
    assert blocker(world.pending[0], world, sharing) is why
    decision = decided(world, Cbc(), replace(PATIENT, sharing=sharing))
    sent = any(a.field is OVERSUBSCRIBE for a in decision.plan.actions)
    assert sent == (why is None)


@pytest.mark.parametrize("wrong", [{"wall_s": 0.0}, {"memory_mib": 0}])
def test_budgets_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="needs time and memory"):
        Budget(**wrong)  # type: ignore[arg-type]
