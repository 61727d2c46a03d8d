"""Random worlds: reproducible, playable, wide; courses of them, and the ranges on a card."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.features import COLUMN
from rltuned.core.run_times import LOG_FULL
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train import sources
from rltuned.lab.train.export import READ, held_out, ranges_played
from rltuned.lab.train.network import TorchActor
from rltuned.lab.train.predictor import fit
from rltuned.lab.train.settings import LEARN_UNTIL
from rltuned.policies.actor import FIRST_OF_QUEUE, FIRST_QUANTILE, Kind
from rltuned.sim.trace import EmptyCluster
from tests.examples import examples
from tests.train.worlds import random_ground


@examples(25)
@given(seed=st.integers(0, 100_000))
def test_every_job_of_a_world_can_run_there(seed: int) -> None:
    world = cluster, jobs, _ = sources.random_world(seed, 200)
    assert len(jobs) >= 100
    assert all(EmptyCluster(cluster).why_not(job) is None for job in jobs)
    # rounding to whole nodes, at least one of each kind, may leave the bounds a little
    assert sources.LEAST_GPUS / 2 <= cluster.gpus <= sources.MOST_GPUS + 32
    assert sources.random_world(seed, 200) == world


def test_worlds_differ_in_what_matters() -> None:
    worlds = [sources.random_world(seed, 100) for seed in range(60)]
    clusters = [cluster for cluster, _, _ in worlds]
    assert {limits for _, _, limits in worlds} == {"real", "weak", "none"}
    assert {len({n.gpus[0].gpu_type for n in c.nodes}) for c in clusters} >= {1, 2, 3}
    assert {n.total.gpus for c in clusters for n in c.nodes} == {1, 2, 4, 8}
    sizes = [c.gpus for c in clusters]
    assert min(sizes) < 20
    assert max(sizes) > 400


def test_judges_are_not_learned_from() -> None:
    learned = {s.scenario.name for seed in (1, 2, 3) for s in sources.drawn(seed, 3, jobs=120)}
    assert learned.isdisjoint(s.scenario.name for s in sources.drawn(sources.JUDGES, 3, jobs=120))
    assert len(learned) == 9


def test_traces_and_worlds_come_equally_often_and_judges_take_part_in_the_validation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rltuned.lab.train.sources.GENERATED_JOBS", 300)
    both = sources.learned_on([], [], 9, 1, sources.nothing)
    traces = [source for source in both if not source.is_world]
    assert sum(s.share for s in traces) == 8
    assert len(both) - len(traces) == 9
    judges = sources.drawn(sources.JUDGES, 2, jobs=300)
    windows = held_out(traces, 2, 25, judges)
    assert len(windows) == 2 * len(traces) + 2
    assert windows[-1].name == judges[-1].scenario.name
    assert windows[-1].first >= int(len(judges[-1].scenario) * LEARN_UNTIL)


def test_worlds_are_predicted_well_by_requests_alone_and_wrongly_in_turn() -> None:
    guess = sources.predictions(fit(sources.random_world(3, 600)[1], epochs=1).predictor)
    for number, source in enumerate(sources.drawn(0, 3, guess, jobs=400)):
        answers = [found for found in guess(source.scenario.jobs) if found is not None]
        own = answers[number]
        seen = source.scenario.sight.fixed[:, FIRST_QUANTILE:FIRST_OF_QUEUE]
        np.testing.assert_array_equal(seen, own.quantiles)
        foreseen_s = np.column_stack([own.plan_s, own.mean_s])
        np.testing.assert_array_equal(source.scenario.foreseen_s, foreseen_s)
        assert len({found.quantiles.tobytes() for found in answers}) == 3
        limit_s = np.array([job.time_limit_s for job in source.scenario.jobs])
        for found in answers:
            assert (np.expm1(found.quantiles * LOG_FULL) <= limit_s[:, None] * 1.001 + 1).all()


LOADS = (0.9, 1.3)


def source() -> sources.DatasetSource:
    """120 jobs; only the last fifth, which is not learned from, asks for 20 days."""
    workload = random_ground("two", seed=5)
    learned = int(len(workload) * LEARN_UNTIL)
    jobs = [
        replace(job, time_limit_s=1_728_000.0 if number >= learned else job.time_limit_s)
        for number, job in enumerate(replace(j, partition="") for j in workload.jobs)
    ]
    limited = [replace(j, time_limit_s=min(j.time_limit_s, 864_000.0)) for j in jobs[:learned]]
    made = Scenario.of(workload.cluster, limited + jobs[learned:]).for_networks()
    return sources.DatasetSource(made, "", "")


@pytest.mark.parametrize("kind", ["queue", "paper"])
def test_static_features_lie_within_what_was_learned_from(kind: Kind) -> None:
    torch.manual_seed(1)
    here = source()
    network = TorchActor(kind, (32, 16))
    found = ranges_played(network, [here], size=40, loads=LOADS)
    assert tuple(found) == READ[kind]
    fixed = here.scenario.sight.fixed[: int(len(here.scenario) * LEARN_UNTIL)]
    for name in ("requested_gpus", "requested_time"):
        values = fixed[:, COLUMN[name]]
        low, high = found[name]
        assert float(values.min()) <= low < high <= float(values.max()), name
    # the longest of those learned from queued in some window, and 20 days never did
    assert found["requested_time"][1] == pytest.approx(float(fixed[:, 1].max()))
    assert found["requested_time"][1] < float(here.scenario.sight.fixed[:, 1].max())
    assert found["can_schedule_now"] == (0.0, 1.0)
    assert found["submit_time"][0] == 0.0 < found["submit_time"][1]
