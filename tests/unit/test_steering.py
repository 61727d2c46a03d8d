"""Steering by excluded nodes: who is steered, where to, and how it ends."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.joint import Joint, Tuning
from rltuned.core.milp import Budget
from rltuned.core.numbers import Writing
from rltuned.core.select import Rules
from rltuned.core.steering import Steer, may_steer
from rltuned.domain.cluster import Node
from rltuned.domain.jobs import ArrayInfo, PendingJob, Steering
from rltuned.domain.plan import SetExcludedNodes
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import JobId, NodeName, UnixTime
from rltuned.solver import cbc
from tests.builders import NOW, job, node, snapshot
from tests.fakes import ConstantOrder

STEER = Steer(on=True, expiry_s=600.0)
NODES = (
    node("a1", gpu_type="a100", free_gpus=2),
    node("k1", gpu_type="k80", gpus=8),
    node("k2", gpu_type="k80", gpus=8),
)
"""Best fit puts a job that accepts any type onto what is left of a1."""


def names(*nodes: str) -> tuple[NodeName, ...]:
    return tuple(NodeName(n) for n in nodes)


def free_job(**fields: object) -> PendingJob:
    """Two GPUs of any type, first in line."""
    return job(1, submitted_at=NOW - 1_000, gpus=2, **fields)  # type: ignore[arg-type]


def wanting() -> list[PendingJob]:
    """Two that need a whole a100 node: the type is sought after."""
    asks = {"gpus": 4, "gpu_types": ["a100"], "time_limit_s": 60.0}
    return [job(i, submitted_at=NOW - 1_000 + i, **asks) for i in (2, 3)]  # type: ignore[arg-type]


def decided(
    first: PendingJob, steer: Steer = STEER, nodes: Sequence[Node] = NODES
) -> tuple[Joint, list[SetExcludedNodes]]:
    world = snapshot(first, *wanting(), nodes=nodes)
    tuning = Tuning(budget=Budget(wall_s=20.0), steer=steer)
    knobs = Knobs(rules=Rules(min_age_s=0.0), placement="milp", tuning=tuning)
    decision = decide(world, ConstantOrder((1, 2, 3)), knobs, cbc())
    assert decision.joint is not None
    found = [a for a in decision.plan.actions if isinstance(a, SetExcludedNodes)]
    return decision.joint, found


def test_a_job_is_kept_off_the_type_that_others_need() -> None:
    joint, actions = decided(free_job())
    assert [(a.target.job_id, a.old, a.new) for a in actions] == [(1, (), names("a1"))]
    assert "kept off the GPU types that others need" in joint.why
    verdict = next(v for v in joint.verdicts if v.job_id == 1)
    assert verdict.why.endswith("kept off 1 nodes of other GPU types")


def test_it_is_off_by_default() -> None:
    assert not decided(free_job(), Tuning().steer)[1]


def test_what_is_in_force_and_still_wanted_is_left_as_it_is() -> None:
    steered = free_job(
        excluded_nodes=names("a1"), steering=Steering(names("a1"), UnixTime(NOW - 60))
    )
    assert not decided(steered)[1]


@pytest.mark.parametrize("steer", [Steer(on=False), replace(STEER, expiry_s=30.0)])
def test_what_is_switched_off_or_too_old_is_taken_back(steer: Steer) -> None:
    steered = free_job(
        excluded_nodes=names("a1"), steering=Steering(names("a1"), UnixTime(NOW - 60))
    )
    _, actions = decided(steered, steer)
    assert [(a.old, a.new) for a in actions] == [(names("a1"), ())]


def test_what_is_no_longer_wanted_is_taken_back() -> None:
    """The other type is full: the job would wait for it."""
    steered = free_job(
        excluded_nodes=names("a1"), steering=Steering(names("a1"), UnixTime(NOW - 60))
    )
    full = [NODES[0], *(replace(n, schedulable=False) for n in NODES[1:])]
    _, actions = decided(steered, nodes=full)
    assert [a.new for a in actions] == [()]


def test_nodes_of_its_own_choice_are_never_touched() -> None:
    own = free_job(excluded_nodes=names("k1"))
    assert not decided(own)[1]
    changed = free_job(excluded_nodes=names("k1"), steering=Steering(names("a1"), UnixTime(NOW)))
    assert not decided(changed)[1]


@pytest.mark.parametrize(
    ("fields", "steer", "may"),
    [
        ({}, STEER, True),
        ({}, Steer(), False),
        ({"array": ArrayInfo(JobId(1), 3)}, STEER, False),
        ({"het_job_id": JobId(1)}, STEER, False),
        ({"cron": True}, STEER, False),
        ({"reservation": "maintenance"}, STEER, False),
        ({"held_by": "user"}, STEER, False),
        ({"required_nodes": names("k1")}, STEER, False),
        ({"excluded_nodes": names("k1")}, STEER, False),
        ({"steering": Steering((), UnixTime(NOW - 599))}, STEER, True),
        ({"steering": Steering((), UnixTime(NOW - 600))}, STEER, False),
        ({"steering": Steering((), UnixTime(NOW + 5))}, STEER, False),
    ],
)
def test_who_may_be_steered(fields: dict[str, object], steer: Steer, may: bool) -> None:
    assert may_steer(free_job(**fields), UnixTime(NOW), steer) is may


def test_a_job_that_accepts_one_type_has_nothing_to_be_kept_off() -> None:
    bound = job(1, submitted_at=NOW - 1_000, gpus=2, gpu_types=["k80"])
    assert not decided(bound)[1]


def test_an_expiry_must_be_some_time() -> None:
    with pytest.raises(ValueError, match="expiry"):
        Steer(expiry_s=0.0)


def test_marking_touches_only_those_that_were_steered() -> None:
    world: Snapshot = snapshot(free_job(), *wanting(), nodes=NODES)
    mine = Steering(names("a1"), UnixTime(NOW))
    marked = world.steered({(JobId(1), UnixTime(NOW - 1_000)): mine})
    assert [j.steering for j in marked.pending] == [mine, None, None]
    assert world.steered({}) is world


@pytest.mark.parametrize(("most", "sent"), [(0, 0), (1, 0), (9, 1)])
def test_an_exclusion_counts_as_a_change_and_taking_it_back_does_not(most: int, sent: int) -> None:
    world = snapshot(free_job(priority=900), *wanting(), nodes=NODES)
    tuning = Tuning(budget=Budget(wall_s=20.0), steer=STEER)
    rules, writing = Rules(min_age_s=0.0), Writing(max_changes=most)
    knobs = Knobs(rules=rules, writing=writing, placement="milp", tuning=tuning)
    decision = decide(world, ConstantOrder((1, 2, 3)), knobs, cbc())
    assert len(decision.plan.actions) <= most
    assert sum(isinstance(a, SetExcludedNodes) for a in decision.plan.actions) == sent
    assert ("1 flags and exclusions wait: over the change budget" in decision.notes) == (not sent)
    steered = free_job(excluded_nodes=names("a1"), steering=Steering(names("a1"), UnixTime(NOW)))
    back = decide(snapshot(steered, nodes=NODES), ConstantOrder((1,)), knobs, cbc())
    assert [a.new for a in back.plan.actions if isinstance(a, SetExcludedNodes)] == [()]
