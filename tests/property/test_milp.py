"""The integer program against brute force on instances small enough for it."""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping

import pulp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltuned.core.backfill import BackfillResult, QueuedJob, easy_backfill, job_ends
from rltuned.core.capacity import Capacity
from rltuned.core.features import UNLIMITED_AS_S
from rltuned.core.milp.candidates import SearchBounds
from rltuned.core.milp.model import choose, fault_of, value
from rltuned.core.milp.problem import Budget, Option, Problem, Queue, Weights, build_problem
from rltuned.core.milp.solution import SolveStatus, Tuning, place_jointly
from rltuned.core.placement import place
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import NodeName
from rltuned.errors import SolverError
from rltuned.solver import Cbc
from tests.builders import NOW, job, node, running, snapshot

TYPES = ("a100", "k80")
PATIENT = Budget(wall_s=20.0, max_slots=3)


@st.composite
def small_worlds(draw: st.DrawFn) -> Snapshot:
    nodes, runs = [], []
    for i in range(draw(st.integers(2, 3))):
        name, kind = f"n{i}", draw(st.sampled_from(TYPES))
        gpus, cpus = draw(st.integers(1, 4)), 8
        used = draw(st.integers(0, gpus - 1) | st.just(0))
        used_cpus = draw(st.integers(0, 6)) if used else 0
        nodes.append(
            node(
                name,
                gpu_type=kind,
                gpus=gpus,
                free_gpus=gpus - used,
                cpus=cpus,
                free_cpus=cpus - used_cpus,
                free_mem_mib=64_000 - 8_000 * used,
            )
        )
        if used:
            runs.append(
                running(
                    100 + i,
                    node_name=name,
                    gpu_type=kind,
                    gpus=used,
                    cpus=used_cpus,
                    mem_mib=8_000 * used,
                    started_at=NOW - 60.0,
                    time_limit_s=draw(st.sampled_from((600.0, 1_200.0, 7_200.0))),
                )
            )
    jobs = [
        job(
            i + 1,
            submitted_at=NOW - 1_000.0 + i,
            gpus=draw(st.sampled_from((0, 1, 1, 2, 2, 3, 4, 6))),
            cpus=draw(st.integers(1, 6)),
            mem_mib=draw(st.sampled_from((1_000, 20_000))),
            gpu_types=draw(st.lists(st.sampled_from(TYPES), max_size=1)),
            time_limit_s=draw(st.sampled_from((300.0, 900.0, 86_400.0, None))),
        )
        for i in range(draw(st.integers(2, 5)))
    ]
    return snapshot(*jobs, nodes=nodes, runs=runs)


weights = st.builds(
    Weights,
    order=st.sampled_from((0.0, 1.0, 2.0)),
    later=st.sampled_from((0.2, 0.9)),
    fragmentation=st.sampled_from((0.0, 0.3)),
    imbalance=st.sampled_from((0.0, 0.2)),
    waste=st.sampled_from((0.0, 0.3)),
)


def instance_of(world: Snapshot, tuned: Weights) -> Problem:
    return problem_of(world, tuned)[1]


def problem_of(
    world: Snapshot, tuned: Weights, budget: Budget = PATIENT
) -> tuple[BackfillResult, Problem]:
    """What Slurm would do by itself, and the problem beside it."""
    capacity = Capacity.of(world)
    jobs = [QueuedJob(j, j.request, capacity.members_of(j.partitions)) for j in world.pending]
    ends = job_ends(world, capacity)
    alone = easy_backfill(jobs, capacity, lambda: ends)
    queue = Queue(jobs, {}, capacity, lambda: ends)
    return alone, build_problem(queue, alone, tuned, budget, SearchBounds(most=3))


def is_possible(instance: Problem, chosen: tuple[Option, ...]) -> bool:
    """Worked out apart from the code under test: sums per slot and node."""
    by = {o.job: o.slot for o in chosen}
    if any(by.get(job, math.inf) > slot for job, slot in instance.deadlines):
        return False
    for slot, free in enumerate(instance.capacities):
        used: dict[tuple[NodeName, str], int] = defaultdict(int)
        for share in (s for o in chosen if o.slot <= slot <= o.last for s in o.candidate.shares):
            used[share.node, "gpu"] += share.taken.gpus  # one type per node here
            used[share.node, "cpu"] += share.taken.cpus
            used[share.node, "mem"] += share.taken.mem_mib
        room = {"gpu": free.free_gpus.sum(axis=0), "cpu": free.free_cpus, "mem": free.free_mem_mib}
        if any(amount > room[what][free.index[name]] for (name, what), amount in used.items()):
            return False
    return True


def best_by_hand(instance: Problem) -> float:
    groups: dict[int, list[Option | None]] = defaultdict(lambda: [None])
    for option in instance.options:
        groups[option.job].append(option)
    best = -math.inf
    for pick in itertools.product(*groups.values()):
        chosen = tuple(o for o in pick if o is not None)
        if is_possible(instance, chosen):
            best = max(best, value(instance, chosen))
    return best


@settings(max_examples=60, deadline=None)
@given(small_worlds(), weights)
def test_the_optimum_is_the_one_that_brute_force_finds(world: Snapshot, tuned: Weights) -> None:
    instance = instance_of(world, tuned)
    if not instance.options or math.prod(_sizes(instance)) > 6_000:
        return
    chosen = choose(instance, Cbc(), PATIENT)
    assert is_possible(instance, chosen)
    assert fault_of(instance, chosen) == ""
    assert value(instance, chosen) == pytest.approx(best_by_hand(instance), abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(small_worlds())
def test_an_option_holds_its_nodes_up_to_the_last_slot_before_its_end(world: Snapshot) -> None:
    instance = instance_of(world, Weights())
    limits = [job.request.time_limit_s for job in world.pending]
    for option in instance.options:
        limit_s = limits[option.job] or UNLIMITED_AS_S
        end_s = instance.offsets_s[option.slot] + limit_s
        held = [n for n, at_s in enumerate(instance.offsets_s) if at_s < end_s]
        assert option.last == max(held)


@settings(max_examples=60, deadline=None)
@given(small_worlds())
def test_what_slurm_promised_can_be_chosen_as_it_was_promised(world: Snapshot) -> None:
    alone, instance = problem_of(world, Weights())
    offered = {(o.job, instance.offsets_s[o.slot], o.candidate.shares) for o in instance.options}
    promised = {(r.job, r.at_s, r.shares) for r in alone.reservations if r.shares is not None}
    assert promised <= offered


@settings(max_examples=60, deadline=None)
@given(small_worlds(), st.integers(1, 4))
def test_now_and_what_is_promised_are_slots_and_others_as_far_as_the_budget_goes(
    world: Snapshot, max_slots: int
) -> None:
    alone, instance = problem_of(world, Weights(), Budget(wall_s=20.0, max_slots=max_slots))
    promised = {r.at_s for r in alone.reservations if r.shares is not None}
    assert {0.0, *promised} <= set(instance.offsets_s)
    assert len(instance.offsets_s) <= max(max_slots, 1 + len(promised))


def test_no_slot_has_more_free_than_there_is() -> None:
    """A node that shows as free what a running job has, as two answers of Slurm may say."""
    runs = [running(100, node_name="n0", gpus=2, time_limit_s=1_200.0, started_at=NOW - 60.0)]
    jobs = [job(1, gpus=4), job(2, gpus=4)]
    world = snapshot(*jobs, nodes=[node("n0"), node("n1")], runs=runs)
    slots = instance_of(world, Weights()).capacities
    assert len(slots) > 1
    for free in slots:
        assert (free.free_gpus <= free.total_gpus).all()
        assert (free.free_cpus <= free.total_cpus).all()


def _sizes(instance: Problem) -> list[int]:
    counts: dict[int, int] = defaultdict(lambda: 1)
    for option in instance.options:
        counts[option.job] += 1
    return list(counts.values())


@settings(max_examples=25, deadline=None)
@given(small_worlds())
def test_the_same_instance_gets_the_same_answer(world: Snapshot) -> None:
    instance = instance_of(world, Weights())
    if instance.options:
        assert choose(instance, Cbc(), PATIENT) == choose(instance, Cbc(), PATIENT)


@settings(max_examples=40, deadline=None)
@given(small_worlds(), st.randoms(use_true_random=False))
def test_impossible_choices_are_found_out(world: Snapshot, rng: object) -> None:
    """The recheck says no exactly where adding up says no."""
    instance = instance_of(world, Weights())
    options = list(instance.options)
    for size in range(min(4, len(options)) + 1):
        rng.shuffle(options)  # type: ignore[attr-defined]
        chosen = tuple(options[:size])
        once = len({o.job for o in chosen}) == len(chosen)
        assert (fault_of(instance, chosen) == "") == (once and is_possible(instance, chosen))


class Liar:
    """A solver that starts everything everywhere."""

    def __call__(self, problem: pulp.LpProblem, _: Budget) -> Mapping[str, float]:
        return {v.name: 1.0 for v in problem.variables()}


@settings(max_examples=25, deadline=None)
@given(small_worlds())
def test_an_answer_that_breaks_a_rule_is_refused(world: Snapshot) -> None:
    instance = instance_of(world, Weights())
    jobs = [o.job for o in instance.options]
    if len(set(jobs)) < len(jobs):
        with pytest.raises(SolverError, match="not possible"):
            choose(instance, Liar(), PATIENT)


@settings(max_examples=40, deadline=None)
@given(small_worlds())
def test_a_joint_decision_holds_together(world: Snapshot) -> None:
    capacity = Capacity.of(world)
    fits = [place(j, capacity) is not None for j in world.pending]
    joint = place_jointly(world.pending, fits, world, Tuning(budget=PATIENT), Cbc())
    assert joint.how in {SolveStatus.SKIPPED, SolveStatus.SOLVED}
    for placed in joint.placements:  # raises when it overdraws
        capacity.take(placed.shares)
    by_greed = place_jointly(world.pending, fits, world, Tuning(budget=PATIENT), None)
    assert not by_greed.actions
