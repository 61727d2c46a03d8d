"""The compiled twin of the starvation bound lifts the same jobs at the same moments."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltuned.core.features import FloatArray, StateMatrix
from rltuned.core.starvation import Bound
from rltuned.sim.cluster import Cluster
from rltuned.sim.dispatch import BackfillRule
from rltuned.sim.protocol import Protocol, play_direct
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from rltuned.train.episodes import play_order
from rltuned.train.ground import Window, cut, make_ground
from tests.sim.worlds import cases
from tests.train.worlds import random_ground


@dataclass(frozen=True)
class Fixed:
    """Jobs by a key of their own, smallest first."""

    keys: tuple[float, ...]
    name: str = "fixed"

    def score(self, matrix: StateMatrix) -> FloatArray:
        return np.array([-self.keys[j.job_id - 1] for j in matrix.jobs])


@pytest.mark.parametrize("cluster", ["two", "testbed"])
@pytest.mark.parametrize("bound", [Bound(600.0, 1.5), Bound(0.0, 3.0), Bound(3_600.0, 4.0)])
def test_a_crowd_starts_at_the_same_times(cluster: str, bound: Bound) -> None:
    lifted = 0
    for seed, backfill in enumerate(("easy", "none", "easy")):
        rules = Rules(backfill=backfill)  # type: ignore[arg-type]
        window = cut(random_ground(cluster, seed, rules=rules), 0, 100, load=1.5)
        keys = -np.arange(100.0)
        jobs = [
            replace(j, submit_s=float(s)) for j, s in zip(window.jobs, window.submit_s, strict=True)
        ]
        protocol = Protocol(rules=rules, starvation=bound)
        done = play_direct(window.ground.cluster, jobs, Fixed(tuple(keys.tolist())), protocol).world
        starts = play_order(window, keys, bound)
        assert starts.tolist() == [done.finished[i + 1].started_at for i in range(100)]
        lifted += int((starts != play_order(window, keys)).sum())
    assert lifted > 100


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    case=cases(),
    data=st.data(),
    bound=st.builds(
        Bound, st.sampled_from((0.0, 5.0, 20.0)), st.sampled_from((1.0, 1.5, 3.0, 10.0))
    ),
    backfill=st.sampled_from(("easy", "easy", "none")),
)
def test_random_worlds_and_orders_give_the_same_starts(
    case: tuple[Cluster, tuple[TraceJob, ...]],
    data: st.DataObject,
    bound: Bound,
    backfill: BackfillRule,
) -> None:
    where, jobs = case
    keys = tuple(data.draw(st.permutations([float(i) for i in range(len(jobs))])))
    rules = Rules(backfill=backfill)
    done = play_direct(where, jobs, Fixed(keys), Protocol(rules=rules, starvation=bound)).world
    ground = make_ground("toy", where, jobs, rules)
    sight = ground.sight.fixed
    window = Window(ground, 0, ground.jobs, ground.prepared, sight, ground.duration_s)
    starts = play_order(window, np.array(keys), bound)
    assert starts.tolist() == [done.finished[i + 1].started_at for i in range(len(jobs))]
