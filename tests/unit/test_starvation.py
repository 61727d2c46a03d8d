"""Who is overdue, and where overdue jobs then stand."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from rltuned.core.decide import Decision, Knobs, decide
from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.guards import Guard, Guards
from rltuned.core.planning import Limits, WriteMode
from rltuned.core.starvation import Bound, lift, overdue
from rltuned.domain.cluster import Resources
from rltuned.domain.jobs import PendingJob, RunningJob, Share
from rltuned.domain.snapshot import Snapshot
from rltuned.domain.units import NodeName, UnixTime
from rltuned.settings.keys import Settings
from tests.builders import NOW, job, node, running, snapshot

TIGHT = Bound(bound_s=100.0, factor=2.0)
CLUSTER = (node("p1", gpus=4), node("k1", gpu_type="k80", gpus=4, partitions=("gpu", "old")))


def waited(job_id: int, seconds: float, **rest: object) -> PendingJob:
    return job(job_id, submitted_at=NOW - seconds, **rest)  # type: ignore[arg-type]


def held(job_id: int, gpus: int, submitted: float | None, started: float) -> RunningJob:
    """A job on p1, submitted and started so many seconds ago; None = not known."""
    made = running(job_id, node_name="p1", gpus=gpus, started_at=NOW - started)
    at = None if submitted is None else UnixTime(NOW - submitted)
    return replace(made, submitted_at=at)


def world(*jobs: PendingJob, others: tuple[RunningJob, ...] = ()) -> Snapshot:
    return snapshot(*jobs, runs=others, nodes=CLUSTER)


def late(seen: Snapshot, bound: Bound | None = TIGHT) -> list[int]:
    return [int(seen.pending[i].job_id) for i in overdue(seen.pending, seen, bound).tolist()]


def test_who_waited_longer_than_the_bound_is_overdue_in_the_order_they_came() -> None:
    seen = world(waited(1, 90.0), waited(2, 150.0), waited(3, 100.0), waited(4, 101.0))
    assert late(seen) == [2, 4]
    assert late(seen, None) == []
    assert late(seen, Bound(bound_s=0.0, factor=1.0)) == [2, 4, 3, 1]


def test_waiting_counts_from_when_a_job_became_eligible() -> None:
    seen = world(
        waited(1, 500.0, eligible_at=UnixTime(NOW - 50.0)),
        waited(2, 500.0, eligible_at=None),
        waited(3, 500.0, eligible_at=UnixTime(NOW - 120.0)),
        waited(4, 130.0),
    )
    assert late(seen) == [3, 4]


@pytest.mark.parametrize(
    ("other", "base_s"),
    [
        # four of eight GPUs: half of the time counts
        (held(9, 4, 900.0, 800.0), 100.0),
        (held(9, 4, 900.0, 150.0), 75.0),
        (held(9, 4, 200.0, 150.0), 75.0),
        # who was submitted later, or when is not known, counts for nothing
        (held(9, 4, 199.0, 150.0), 0.0),
        (held(9, 4, None, 150.0), 0.0),
        (held(9, 2, 900.0, 800.0), 50.0),
    ],
)
def test_what_came_before_and_runs_is_what_the_base_order_makes_it_wait(
    other: RunningJob, base_s: float
) -> None:
    seen = world(waited(1, 200.0), others=(other,))
    for factor in (1.5, 2.1, 3.0, 5.0):
        expected = [1] if factor * base_s < 200.0 else []
        assert late(seen, Bound(bound_s=100.0, factor=factor)) == expected


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        ({"gpu_types": ("p100",)}, []),
        ({"gpu_types": ("k80",)}, [1]),
        ({"partition": "old"}, [1]),
        ({"partition": "nowhere"}, [1]),
        ({"gpus": 0}, [1]),
        ({}, []),
    ],
)
def test_only_gpus_count_that_the_job_could_use(
    asks: dict[str, object], expected: list[int]
) -> None:
    seen = world(waited(1, 200.0, **asks), others=(held(9, 4, 900.0, 800.0),))
    assert late(seen) == expected


def test_a_running_job_on_a_node_that_is_gone_counts_for_nothing() -> None:
    gone = replace(held(9, 4, 900.0, 800.0), shares=(Share(NodeName("gone"), Resources(4, 1, 1)),))
    assert late(world(waited(1, 200.0), others=(gone,))) == [1]


def test_the_daemon_has_it_on_unless_told() -> None:
    assert Settings().knobs().starvation == Bound()


def test_lifting_keeps_the_order_of_the_rest() -> None:
    assert lift(np.array([3, 1, 0, 2]), np.array([2])).tolist() == [2, 3, 1, 0]
    assert lift(np.array([3, 1, 0, 2]), np.array([0, 2])).tolist() == [0, 2, 3, 1]
    # who came earlier and is wanted sooner stays before it
    assert lift(np.array([0, 2, 1, 3]), np.array([1, 3])).tolist() == [0, 1, 2, 3]
    assert lift(np.array([0, 1, 2]), np.array([1])).tolist() == [0, 1, 2]
    assert lift(np.array([1, 0]), np.array([], dtype=np.int64)).tolist() == [1, 0]


@pytest.mark.parametrize("bad", [(-1.0, 2.0), (float("nan"), 2.0), (1.0, 0.9), (1.0, np.inf)])
def test_a_bound_is_a_bound(bad: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        Bound(*bad)


@dataclass(frozen=True)
class AsTheyStand:
    """A policy that wants the order there is."""

    name: str = "as they stand"

    def score(self, matrix: StateMatrix) -> FloatArray:
        return matrix.priority


def decided(seen: Snapshot, mode: WriteMode = "site_factor", **limits: object) -> Decision:
    knobs = Knobs(limits=Limits(write_mode=mode, **limits), starvation=TIGHT)  # type: ignore[arg-type]
    return decide(seen, AsTheyStand(), knobs)


QUEUE = (
    waited(1, 300.0, priority=1_000),
    waited(2, 200.0, priority=2_000),
    waited(3, 90.0, priority=3_000),
    waited(4, 80.0, priority=4_000),
)


@pytest.mark.parametrize("mode", ["priority", "site_factor"])
def test_a_decision_puts_them_first_says_so_and_counts_them(mode: WriteMode) -> None:
    decision = decided(world(*QUEUE), mode)
    assert [e.job.job_id for e in decision.entries] == [1, 2, 4, 3]
    assert ["overdue" in e.why for e in decision.entries] == [True, True, False, False]
    assert dict(decision.bound)[Guard.STARVATION] == 2


def test_other_guards_do_not_hold_an_overdue_job_back() -> None:
    guards = Guards(max_displacement=0, user_head=1, user_floor=1.0)
    decision = decided(world(*QUEUE), guards=guards)
    assert [e.job.job_id for e in decision.entries] == [1, 2, 4, 3]


def test_a_change_cap_is_spent_on_the_overdue_first() -> None:
    decision = decided(world(*QUEUE), max_changes=2)
    assert [a.target.job_id for a in decision.plan.actions] == [1, 4]
    assert decision.entries[0].settled == max(e.settled for e in decision.entries)
