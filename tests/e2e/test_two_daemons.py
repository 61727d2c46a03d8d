"""Two daemons on one cluster without a lease: the second sees what the first has written."""

from pathlib import Path

import pytest

from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

JOBS = 14


def settings(folder: Path, slurm: SlurmLab, policy: str) -> Path:
    """Settings of a daemon whose state is in this folder alone."""
    folder.mkdir(mode=0o700)
    path = folder / "rltuned.toml"
    return write_settings(path, slurm.conf, policy={"name": policy}, slurm={"timeout_s": 5})


def numbers(slurm: SlurmLab) -> dict[str, str]:
    """Of each waiting job what rltuned writes: its site factor, or its whole priority."""
    if "basic" in slurm.priority_type:
        rows = slurm.run("squeue", "-h", "-t", "PD", "-o", "%A %Q").splitlines()
    else:
        rows = slurm.run("sprio", "-h", "-o", "%i %S").splitlines()
    return dict(row.split() for row in rows)


@pytest.mark.parametrize("priority_type", ["priority/multifactor", "priority/basic"])
def test_the_second_of_two_daemons_observes_and_says_why(
    priority_type: str, tmp_path: Path
) -> None:
    with SlurmLab(priority_type=priority_type) as slurm:
        blocker = slurm.sbatch("-wm1", "-n4", "--time=2:00:00")
        slurm.wait_for(lambda: slurm.state(blocker) == "R", "the node is busy")
        jobs = [slurm.sbatch("-wm1", "-n4", f"--time={10 + 40 * n}") for n in range(JOBS)]
        slurm.wait_for(lambda: slurm.state(jobs[-1]) == "PD", "jobs wait")
        one, two = (
            settings(tmp_path / name, slurm, policy)
            for name, policy in (("one", "sjf"), ("two", "fcfs"))
        )
        with Daemon(one.parent, "--live", "--config", str(one)) as first:
            first.wait_for(lambda: first.metric("rltuned_jobs_owned") >= JOBS, "jobs are ours")
            before = numbers(slurm)
            with Daemon(two.parent, "--live", "--config", str(two)) as second:
                second.wait_for_log("another rltuned writes to this cluster")
                second.wait_for(
                    lambda: second.metric('rltuned_mode{mode="rival_suspected"}') == 1,
                    "the metric of it",
                )
                assert second.metric('rltuned_mode{mode="rival_suspected"}') == 1
                assert "applied=1" not in second.log()
                assert second.metric("rltuned_jobs_owned") == 0
            cycles = first.log().count("mode=live")
            first.wait_for_log("mode=live", times=cycles + 2)
            assert first.metric('rltuned_mode{mode="rival_suspected"}') == 0
            assert numbers(slurm) == before
