"""On a real Slurm an array of a hundred tasks and a hundred jobs weigh the same."""

import json
from pathlib import Path

import pytest

from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.e2e.queue import FULL
from tests.lab import SlurmLab
from tests.programs import rltuned

pytestmark = pytest.mark.slurm

HOURLY = (*FULL, "-t60")


def weighed(slurm: SlurmLab, folder: Path, *array: str, times: int) -> tuple[float, float, float]:
    """Of work of an hour each: the first delay, the delay of a small job behind it, the backlog."""
    slurm.clear()
    for node in ("p1", "p2"):
        busy = slurm.sbatch(*FULL, f"-w{node}", "-t2:00:00")
        slurm.wait_for(lambda n=busy: slurm.state(n) == "R", "a node is busy")  # type: ignore[misc]
    ids = [slurm.sbatch(*HOURLY, *array) for _ in range(times)]
    small = slurm.sbatch("-n1", "--gres=gpu:p100:1", "-t5")
    shown = {str(n) for n in (*ids, small)}
    slurm.wait_for(
        lambda: shown <= {*slurm.run("sprio", "-h", "-o", "%i").split()}, "sprio shows all"
    )
    folder.mkdir(mode=0o700)
    config = write_settings(
        folder / "rltuned.toml",
        slurm.conf,
        policy={"name": "delay"},
        order={"own": 0.1, "share": 0.75},
    )
    with Daemon(folder, "--config", str(config), "--stage", "shadow") as daemon:
        series = 'rltuned_backlog_seconds{partition="gpu"}'
        daemon.wait_for(lambda: "rltuned_backlog_seconds{" in daemon.get("/metrics"), "a look")
        daemon.wait_for(lambda: daemon.metric(series) > 0, "what waits")
        backlog_s = daemon.metric(series)
    shown = json.loads(rltuned("plan", "--json", config=config, code=0).stdout)["jobs"]
    delays = {job["job_id"]: job["delay_s"] for job in shown}
    return delays[ids[0]], delays[small], backlog_s


def test_a_hundred_tasks_weigh_as_a_hundred_jobs(slurm: SlurmLab, tmp_path: Path) -> None:
    """Before: 18 minutes in place of 9.3 hours, and a ninth of the backlog."""
    as_jobs = weighed(slurm, tmp_path / "jobs", times=100)
    as_array = weighed(slurm, tmp_path / "array", "--array=1-100", times=1)
    as_arrays = weighed(slurm, tmp_path / "arrays", "--array=1-50", times=2)
    slurm.clear()
    assert as_jobs[0] > 3 * 3_600.0
    for found in (as_array, as_arrays):
        assert found == pytest.approx(as_jobs, rel=0.01)
