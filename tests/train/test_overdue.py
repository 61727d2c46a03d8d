"""The compiled twin of the starvation bound lifts the same jobs at the same moments."""

from dataclasses import dataclass

import numpy as np
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
from rltuned.train.ground import Window, make_ground
from tests.sim.worlds import cases


@dataclass(frozen=True)
class Fixed:
    """Jobs by a key of their own, smallest first."""

    keys: tuple[float, ...]
    name: str = "fixed"

    def score(self, matrix: StateMatrix) -> FloatArray:
        return np.array([-self.keys[j.job_id - 1] for j in matrix.jobs])


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
