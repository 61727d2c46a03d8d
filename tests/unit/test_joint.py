"""Joint decisions by example: when nothing is solved, what each weight is for, what follows."""

from collections.abc import Mapping
from dataclasses import replace

import pulp
import pytest

from rltuned.core.capacity import Capacity
from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.milp.candidates import PlacementKind
from rltuned.core.milp.model import Solver
from rltuned.core.milp.problem import Budget, Weights, earliness
from rltuned.core.milp.sharing import Sharing, blocker
from rltuned.core.milp.sharing import SharingBlocker as Blocker
from rltuned.core.milp.solution import JointPlacement, SolveStatus, Tuning, place_jointly
from rltuned.core.numbers import Writing
from rltuned.core.placement import place
from rltuned.core.select import Scope
from rltuned.domain.cluster import Partition
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import SetOverSubscribe
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import SolverError
from rltuned.solver import Cbc
from tests.builders import NOW, job, node, request, running, snapshot
from tests.fakes import ConstantOrder

PATIENT = Budget(wall_s=20.0)
BARE = Weights(
    order=1.0,
    fragmentation=0.0,
    imbalance=0.0,
    waste=0.0,
    occupancy=0.0,
    stay=0.0,
)
STEERED = Tuning(weights=BARE, budget=PATIENT, steered=True)


class NeverAsked:
    """A solver that must not be needed."""

    def __call__(self, _: pulp.LpProblem, __: Budget) -> Mapping[str, float]:
        raise AssertionError("a program was solved")


class Away:
    """A solver that is over its budget."""

    def __call__(self, _: pulp.LpProblem, __: Budget) -> Mapping[str, float]:
        raise SolverError("cbc took longer than 1 s")


def jointly(
    world: Snapshot, tuning: Tuning = STEERED, solver: Solver | None = None
) -> JointPlacement:
    capacity = Capacity.of(world)
    fits = [place(j, capacity) is not None for j in world.pending]
    return place_jointly(world.pending, fits, world, tuning, solver or Cbc())


def where(joint: JointPlacement) -> dict[int, str]:
    return {p.job_id: "+".join(s.node for s in p.shares) for p in joint.placements}


def jobs(*asks: Mapping[str, object]) -> list[PendingJob]:
    return [job(i, submitted_at=NOW - 1_000 + i, **kw) for i, kw in enumerate(asks, 1)]  # type: ignore[arg-type]


def tuned(**weights: float) -> Tuning:
    return replace(STEERED, weights=replace(BARE, **weights))


# when nothing is solved


def test_nothing_is_solved_when_nothing_fits() -> None:
    world = snapshot(*jobs({"gpus": 4}, {"gpus": 4}), nodes=[node(free_gpus=1)])
    joint = jointly(world, solver=NeverAsked())
    assert (joint.how, joint.placements) == (SolveStatus.SKIPPED, ())


def test_nothing_is_solved_for_one_job() -> None:
    joint = jointly(snapshot(job(1)), solver=NeverAsked())
    assert joint.how is SolveStatus.SKIPPED
    assert where(joint) == {1: "p1"}


def test_nothing_is_solved_for_jobs_that_never_meet() -> None:
    nodes = [node("a", gpu_type="a100", free_gpus=3), node("k", gpu_type="k80")]
    two = jobs({"gpu_types": ["a100"]}, {"gpu_types": ["k80"]})
    joint = jointly(snapshot(*two, nodes=nodes), solver=NeverAsked())
    assert (joint.how, joint.why) == (SolveStatus.SKIPPED, "no two jobs can use the same node")
    assert where(joint) == {1: "a", 2: "k"}


def test_nothing_is_solved_when_all_start_anyway() -> None:
    world = snapshot(*jobs({}, {}), nodes=[node("a"), node("b", free_gpus=2)])
    joint = jointly(world, replace(STEERED, steered=False), NeverAsked())
    assert (joint.how, len(joint.placements)) == (SolveStatus.SKIPPED, 2)


def test_nothing_is_solved_when_every_job_has_one_way() -> None:
    world = snapshot(*jobs({"gpus": 3}, {"gpus": 2}))
    joint = jointly(world, solver=NeverAsked())
    assert (joint.how, joint.why) == (SolveStatus.SKIPPED, "every job has one way at most")
    assert where(joint) == {1: "p1"}


# the solver fails


def test_the_greedy_answer_stands_when_the_solver_fails() -> None:
    world = snapshot(*jobs({"gpus": 3}, {"gpus": 2}), nodes=[node("a"), node("b", free_gpus=3)])
    joint = jointly(world, solver=Away())
    assert (joint.how, joint.why) == (SolveStatus.FELL_BACK, "cbc took longer than 1 s")
    assert where(joint) == {1: "b", 2: "a"}


def test_a_decision_says_that_it_fell_back() -> None:
    world = snapshot(*jobs({"gpus": 3}, {"gpus": 2}, {"gpus": 4}), nodes=[node("a"), node("b")])
    decision = decided(world, Away())
    assert decision.joint is not None
    assert decision.joint.how is SolveStatus.FELL_BACK
    assert "joint placement fell_back: cbc took longer than 1 s" in decision.notes


def decided(
    world: Snapshot, solver: Solver | None, tuning: Tuning | None = None, *, max_changes: int = 200
) -> Decision:
    order = tuple(int(j.job_id) for j in world.pending)
    knobs = Knobs(
        rules=Scope(min_age_s=0.0),
        writing=Writing(max_changes=max_changes),
        placement="milp",
        tuning=tuning or Tuning(budget=PATIENT),
    )
    return decide(world, ConstantOrder(order), knobs, solver)


# what each weight is for


def test_start_and_order_the_first_ranked_wins_a_fight() -> None:
    """Two jobs, one place: standing decides."""
    nodes = [node("a", free_gpus=2), node("b", gpu_type="k80", gpus=1)]
    fight = jobs({"gpus": 2}, {"gpus": 2}, {"gpus": 1})
    assert set(where(jointly(snapshot(*fight, nodes=nodes)))) == {1, 3}


def test_order_strict_or_not() -> None:
    """One wide job first in line against three small ones behind it."""
    nodes = [node("a", gpus=3, cpus=3), node("b", gpus=1, cpus=1, free_cpus=0, free_gpus=0)]
    world = snapshot(
        *jobs({"gpus": 3, "cpus": 3}, *[{"gpus": 1, "cpus": 1}] * 3),
        nodes=[*nodes, node("c", gpus=2, free_gpus=1, cpus=1)],
    )
    strict = jointly(world, tuned(order=3.0))
    loose = jointly(world, tuned(order=0.0))
    assert 1 in where(strict)
    assert 1 not in where(loose)
    assert len(where(loose)) == 3


def test_later_is_worth_less_and_less() -> None:
    worth = [earliness(at, replace(BARE, later=0.4), PATIENT) for at in (0.0, 1.0, 600.0, 14_400.0)]
    assert worth[0] == 1.0
    assert worth[1] < 0.4
    assert sorted(worth, reverse=True) == worth
    assert worth[3] == pytest.approx(0.2)


def test_who_waits_anyway_is_not_put_off() -> None:
    """The first is promised node a in 600 s: a job of a day there would take that away."""
    nodes = [node("a", free_gpus=2), node("b", free_gpus=0), node("c", gpus=1)]
    runs = [
        running(100, node_name="a", gpus=2, started_at=NOW, time_limit_s=600.0),
        running(101, node_name="b", gpus=4, started_at=NOW, time_limit_s=700.0),
    ]
    world = snapshot(
        *jobs({"gpus": 4}, {"gpus": 2, "time_limit_s": 86_400.0}, {"gpus": 1}),
        nodes=nodes,
        runs=runs,
    )
    joint = jointly(world, tuned(order=0.0, later=0.0, occupancy=5.0))
    assert joint.how is SolveStatus.SOLVED
    assert 2 not in where(joint)
    assert {v.job_id: v.starts_in_s for v in joint.verdicts}[JobId(1)] == 600.0


def test_occupancy_prefers_more_gpus() -> None:
    """Standing out of the way (order 0), a start of four GPUs beats one of one."""
    fight = jobs(
        {"gpus": 1, "cpus": 4}, {"gpus": 4, "cpus": 4}, {"gpus": 2, "cpus": 4}, {"cpus": 1}
    )
    world = snapshot(*fight, nodes=[node("a", cpus=4), node("c", gpus=8, cpus=1)])
    assert set(where(jointly(world, tuned(order=0.0, occupancy=1.0)))) == {2, 4}


def test_fragmentation_fills_gaps_and_opens_few_nodes() -> None:
    nodes = [node("a", free_gpus=1), node("b", free_gpus=3), node("c"), node("d")]
    world = snapshot(*jobs({"gpus": 1}, {"gpus": 3}, {"gpus": 2}, {"gpus": 2}), nodes=nodes)
    tight = where(jointly(world, tuned(fragmentation=0.5)))
    assert (tight[1], tight[2]) == ("a", "b")
    assert tight[3] == tight[4]


def test_opening_keeps_idle_nodes_idle() -> None:
    """One GPU of a started node breaks off a scrap, one of an idle node does not."""
    nodes = [node("p", free_gpus=3), node("idle")]
    world = snapshot(*jobs({"gpus": 1}, {"gpus": 1}), nodes=nodes)
    free_to_open = where(jointly(world, tuned(fragmentation=0.5, opening=0.0)))
    dear_to_open = where(jointly(world, tuned(fragmentation=0.5, opening=1.0)))
    assert set(free_to_open.values()) == {"idle"}
    assert set(dear_to_open.values()) == {"p"}


def test_stay_keeps_to_the_nodes_of_best_fit() -> None:
    """Levelling would open the idle node; best fit would not."""
    nodes = [node("p", free_gpus=2), node("idle")]
    world = snapshot(*jobs({"gpus": 1}, {"gpus": 1}), nodes=nodes)
    moved = where(jointly(world, tuned(imbalance=0.5, stay=0.0)))
    stayed = where(jointly(world, tuned(imbalance=0.5, stay=0.5)))
    assert set(moved.values()) == {"idle"}
    assert set(stayed.values()) == {"p"}


def test_imbalance_levels_the_load() -> None:
    nodes = [node("a", free_gpus=2), node("b", free_gpus=3), node("c")]
    world = snapshot(*jobs({"gpus": 1}, {"gpus": 1}), nodes=nodes)
    assert set(where(jointly(world, tuned(imbalance=0.5))).values()) == {"c"}
    assert "a" in where(jointly(world, tuned(fragmentation=0.5))).values()


def test_waste_leaves_the_scarce_type_to_those_who_need_it() -> None:
    nodes = [node("a", gpu_type="a100", free_gpus=2), node("k", gpu_type="k80", gpus=8)]
    world = snapshot(
        *jobs(
            {"gpus": 2},
            {"gpus": 1},
            {"gpus": 4, "gpu_types": ["a100"], "time_limit_s": 60.0},
            {"gpus": 4, "gpu_types": ["a100"], "time_limit_s": 60.0},
        ),
        nodes=nodes,
    )
    assert where(jointly(world, tuned(waste=0.5)))[1] == "k"


def test_sharing_is_asked_for_only_when_somebody_gains() -> None:
    one = _exclusive_world(others=1)
    joint = jointly(one, _sharing(tuned(sharing=0.1)))
    assert {v.kind for v in joint.verdicts} == {PlacementKind.SHARE, PlacementKind.PACK}
    assert [a.target.job_id for a in joint.actions] == [1]
    alone = jointly(_exclusive_world(others=0), _sharing(tuned(sharing=0.1)))
    assert not alone.actions


@pytest.mark.parametrize(("weight", "shares"), [(0.5, True), (0.7, False)])
def test_a_flag_costs_its_weight_of_the_last_start(weight: float, shares: bool) -> None:
    """The second start is worth 1 of it now, and 0.4 when the first job has ended."""
    joint = jointly(_exclusive_world(others=1), _sharing(tuned(sharing=weight)))
    assert bool(joint.actions) is shares


# what follows


def test_the_order_stays_also_where_other_jobs_would_start() -> None:
    """Best fit would put the first job on the only node that has the CPUs for the second."""
    nodes = [
        node("a", free_gpus=1, free_cpus=16),
        node("b", free_gpus=2, free_cpus=4),
    ]
    world = snapshot(
        *jobs({"gpus": 1, "cpus": 2}, {"gpus": 1, "cpus": 12}, {"gpus": 2, "cpus": 2}),
        nodes=nodes,
    )
    tuning = Tuning(budget=PATIENT)
    alone = jointly(world, tuning, Away())
    assert set(where(alone)) == {1, 3}
    joint = jointly(world, tuning)
    assert joint.how is SolveStatus.SOLVED
    assert set(where(joint)) == {1, 2}
    assert joint.why == "Slurm's own placement does not follow: the ranking stays"
    decision = decided(world, Cbc())
    assert [e.job.job_id for e in decision.entries] == [1, 2, 3]  # numbers follow delays alone


def test_jobs_outside_the_model_are_not_placed() -> None:
    nodes = [node("a", free_gpus=1, free_cpus=16), node("b", free_gpus=2, free_cpus=4)]
    first, second, third = jobs(
        {"gpus": 1, "cpus": 2}, {"gpus": 1, "cpus": 2}, {"gpus": 1, "cpus": 12}
    )
    licensed = replace(first, request=replace(first.request, outside=("licenses",)))
    world = snapshot(licensed, second, third, nodes=nodes)
    joint = jointly(world, Tuning(budget=PATIENT))
    assert joint.how is SolveStatus.SOLVED
    assert set(where(joint)) == {2, 3}


def test_the_order_in_which_slurm_lists_things_changes_nothing() -> None:
    nodes = [node(f"n{i}", free_gpus=1 + i % 3, free_cpus=4 + i) for i in range(4)]
    queue = jobs(*[{"gpus": 1 + i % 3, "cpus": 3 + i} for i in range(6)])
    tuning = Tuning(budget=PATIENT)
    one = jointly(snapshot(*queue, nodes=nodes), tuning)
    other = jointly(snapshot(*queue[::-1], nodes=nodes[::-1]), tuning)
    assert one == other


# telling exclusive jobs to share


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


def _sharing(tuning: Tuning, **more: bool) -> Tuning:
    return replace(tuning, steered=False, sharing=Sharing(frozenset({"gpu"}), **more))


def test_sharing_lets_the_next_job_in() -> None:
    decision = decided(_exclusive_world(others=1), Cbc(), _sharing(Tuning(budget=PATIENT)))
    flags = [a for a in decision.plan.actions if isinstance(a, SetOverSubscribe)]
    assert [(a.target.job_id, a.old, a.new) for a in flags] == [(1, "NO", "YES")]
    assert {p.job_id for p in decision.placements} == {1, 2}


def test_flags_wait_where_the_change_budget_is_used_up() -> None:
    tuning = _sharing(Tuning(budget=PATIENT))
    decision = decided(_exclusive_world(others=1), Cbc(), tuning, max_changes=0)
    assert not decision.plan.actions
    assert "1 flags wait: over the change budget" in decision.notes


def test_sharing_is_off_by_default() -> None:
    decision = decided(_exclusive_world(others=1), Cbc())
    assert not any(isinstance(a, SetOverSubscribe) for a in decision.plan.actions)


@pytest.mark.parametrize(
    ("world", "sharing", "why"),
    [
        (_exclusive_world(1), Sharing(frozenset({"gpu"})), None),
        (_exclusive_world(1), Sharing(frozenset({"other"})), Blocker.NOT_IN_SCOPE),
        (
            _exclusive_world(1, setting="FORCE:4"),
            Sharing(frozenset({"gpu"})),
            Blocker.FORCED,
        ),
        (
            _exclusive_world(1, setting="EXCLUSIVE"),
            Sharing(frozenset({"gpu"})),
            Blocker.FORCED,
        ),
        (
            _exclusive_world(1, setting="YES:4"),
            Sharing(frozenset({"gpu"})),
            Blocker.CPU_SHARING,
        ),
        (
            _exclusive_world(1, setting="YES:4"),
            Sharing(frozenset({"gpu"}), allow_cpu_sharing=True),
            None,
        ),
        (_exclusive_world(1, flag="YES"), Sharing(frozenset({"gpu"})), Blocker.NOT_BY_FLAG),
        (_exclusive_world(1, flag="USER"), Sharing(frozenset({"gpu"})), Blocker.NOT_BY_FLAG),
        (
            replace(_exclusive_world(1), preemption=True),
            Sharing(frozenset({"gpu"})),
            Blocker.PREEMPTION,
        ),
        (
            replace(_exclusive_world(1), preemption=None),
            Sharing(frozenset({"gpu"})),
            Blocker.PREEMPTION_UNKNOWN,
        ),
        (
            replace(_exclusive_world(1), partitions=()),
            Sharing(frozenset({"gpu"})),
            Blocker.PARTITION_UNKNOWN,
        ),
    ],
)
def test_where_the_flag_is_left_alone(
    world: Snapshot, sharing: Sharing, why: Blocker | None
) -> None:
    assert blocker(world.pending[0], world, sharing) is why
    decision = decided(world, Cbc(), Tuning(budget=PATIENT, sharing=sharing))
    sent = any(isinstance(a, SetOverSubscribe) for a in decision.plan.actions)
    assert sent == (why is None)


@pytest.mark.parametrize("wrong", [{"start": -1.0}, {"later": 1.5}, {"waste": -0.1}])
def test_weights_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        Weights(**wrong)


@pytest.mark.parametrize("wrong", [{"wall_s": 0.0}, {"max_slots": 0}, {"horizon_s": -1.0}])
def test_budgets_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Budget(**wrong)  # type: ignore[arg-type]
