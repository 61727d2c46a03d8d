"""On a real Slurm a node range is narrowed as its user allows, and comes back after a crash."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rltuned.domain.sizes import Sizes
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.commands import SlurmCli
from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.lab import SlurmLab

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

ALLOWED = "--comment=rltuned.nodes=1-4 rltuned.speed=1:1,2:1.9,4:2"


def ranges(slurm: SlurmLab, *jobs: int) -> list[str]:
    seen = SlurmBackend(SlurmCli(conf=slurm.conf), time.time, sizes=True).observe()
    found: dict[int, Sizes | None] = {int(j.job_id): j.sizes for j in seen.pending}
    return ["" if (sizes := found[job]) is None else sizes.nodes for job in jobs]


def test_a_range_is_narrowed_and_comes_back_after_a_crash(slurm: SlurmLab, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    config = write_settings(
        tmp_path / "rltuned.toml",
        slurm.conf,
        tmp_path / "state",
        ladder={"stage": "full"},
        sizes={"mode": "shadow"},
    )
    blocker = slurm.sbatch("-N5", "--exclusive", "-t60")
    slurm.wait_for(lambda: slurm.state(blocker) == "R", 30, "all nodes are busy")
    job, silent = slurm.sbatch("-N1-4", "-n4", "-t5", ALLOWED), slurm.sbatch("-N1-4", "-n4", "-t5")
    behind = [slurm.sbatch("-N1", "-t50") for _ in range(4)]
    slurm.wait_for(lambda: all(slurm.state(j) == "PD" for j in behind), 30, "all wait")
    assert ranges(slurm, job, silent) == ["1-4", ""]
    with Daemon(tmp_path, "--config", str(config)) as daemon:
        daemon.wait_for_log(f"not written of job {job}: NumNodes 1-4 -> 2-2")
        daemon.wait_for_log("cycle=", times=3)
        assert ranges(slurm, job) == ["1-4"]
        config.write_text(config.read_text().replace('"shadow"', '"on"'))
        daemon.signal(signal.SIGHUP)
        daemon.wait_for(lambda: ranges(slurm, job) == ["2-2"], "the range is narrowed")
        daemon.signal(signal.SIGKILL)
        daemon.ends()
    words = ("restore", "--all", "--config", str(config))
    done = subprocess.run(
        [sys.executable, "-m", "rltuned", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"job {job}: given back: NumNodes 2-2 -> 1-4" in done.stdout
    assert ranges(slurm, job) == ["1-4"]
    columns = "numnodes:|,maxnodes:|,numtasks:|,numcpus:|,tres-alloc:|"
    one, other = (
        slurm.run("squeue", "-h", "-j", str(j), "-O", columns).split("|")[1:] for j in (job, silent)
    )
    assert one == other
