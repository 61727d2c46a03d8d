"""The jobs of the experiment on real Slurms."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rltuned.lab.compare import DAY_S
from rltuned.lab.replay.trace_file import offered_gpus
from rltuned.sim.synth import synthesize
from rltuned.sim.trace import Trace
from scripts.studies.experiment_slurm import arms as workloads
from scripts.studies.experiment_slurm.arms import LOAD, PHILLY, TESTBED_JOBS, THETA, Workload
from tests.builders import sure


@pytest.fixture(autouse=True)
def trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated jobs in place of the traces', which need not lie beside the checkout."""
    made = synthesize("philly-like", jobs=4_000, seed=1, limits="informative").jobs
    bare = [replace(j, user="", cpus=None, mem_mib=None, gpu_types=()) for j in made]
    whole = [replace(j, gpus=8 * nodes, nodes=nodes) for j in bare if (nodes := j.gpus) <= 12]

    def trace_at(path: Path) -> Trace:
        return Trace(tuple(whole if path.name.startswith("thetagpu") else bare), {})

    monkeypatch.setattr(workloads, "read_trace", trace_at)
    for name in ("_philly", "_theta"):
        monkeypatch.setattr(workloads, name, getattr(workloads, name).__wrapped__)


@pytest.mark.parametrize(
    "workload", [TESTBED_JOBS, PHILLY, THETA], ids=["testbed", "philly", "theta"]
)
def test_every_job_fits_its_nodes_and_ends_within_its_limit_and_the_partitions(
    workload: Workload,
) -> None:
    for seed in workload.seeds:
        jobs = workload.jobs(256, seed)
        assert [job.job_id for job in jobs] == [str(n) for n in range(1, 257)]
        assert jobs[0].submit_s == 0
        for job in jobs:
            (gpu_type,) = job.gpu_types
            spec = next(spec for spec in workload.nodes if spec.gpu_type == gpu_type)
            nodes = job.nodes or 1
            assert nodes <= len(spec.names)
            assert job.gpus <= nodes * spec.gpus
            assert sure(job.cpus) <= nodes * spec.cpus
            assert sure(job.mem_mib) <= nodes * spec.mem_mib
            assert job.duration_s <= job.time_limit_s <= DAY_S


@pytest.mark.parametrize("workload", [PHILLY, THETA], ids=["philly", "theta"])
def test_sets_of_a_trace_share_no_job_and_come_at_the_load(workload: Workload) -> None:
    sets = [workload.jobs(256, seed) for seed in workload.seeds]
    for jobs in sets:
        offered = offered_gpus(jobs) / workload.cluster.gpus
        assert offered == pytest.approx(LOAD, rel=0.02)
    run_s = [np.array([job.duration_s for job in jobs]) for jobs in sets]
    assert all((a != b).any() for n, a in enumerate(run_s) for b in run_s[:n])
