"""The size of a job is one number: for the daemon, the simulator and what is predicted of areas."""

from hypothesis import given

from rltuned.core.features import encode
from rltuned.lab.replay.orders import known_of, layers_of
from rltuned.lab.replay.prepared import pending_jobs
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import TraceJob, idle
from tests.examples import examples
from tests.sim.worlds import cases

LAYERS = layers_of(load_predictor(shipped_predictor()))


@examples(150)
@given(cases())
def test_daemon_simulator_and_predictor_count_the_same(
    case: tuple[Cluster, tuple[TraceJob, ...]],
) -> None:
    """Jobs of whole nodes, of most of a node's memory or CPUs, with and without GPUs."""
    where, jobs = case
    scenario, seen = Scenario.of(where, jobs), idle(where)
    made = scenario.prepared
    pending = pending_jobs(jobs, made, [p.name for p in where.partitions])
    matrix = encode(pending, seen)
    assert made.size.tolist() == matrix.size.tolist()
    assert scenario.matrix().size.tolist() == matrix.size.tolist()
    read = known_of(jobs, LAYERS, made.size).size.tolist()
    assert read == [
        size if job.request.size.gpus else 0.0 for size, job in zip(made.size, pending, strict=True)
    ]
