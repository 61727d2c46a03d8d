"""Slurm's commands print remarks beside whole answers: of options that are gone, or of nodes.

On a real Slurm whose slurm.conf of this host differs from slurmctld's.
"""

import json
from pathlib import Path

import pytest

from tests.e2e.process import Daemon
from tests.lab import SlurmLab
from tests.programs import rltuned

pytestmark = pytest.mark.slurm

ODD = "ControlMachine=gone"
"""Has the commands of every release complain of the option, and answer as ever."""
SETTINGS = """\
[daemon]
interval_s = 1
state_dir = "{folder}"
pause_file = "{folder}/PAUSE"
[policy]
name = "sjf"
[slurm]
conf = "{folder}/slurm.conf"
[http]
port = 0
[scope]
min_age_s = 0
"""


def beside(slurm: SlurmLab, folder: Path, line: str) -> Path:
    """Settings of a host with another line in its slurm.conf."""
    conf, config = folder / "slurm.conf", folder / "rltuned.toml"
    conf.write_text(f"{slurm.conf.read_text()}{line}\n")
    for name in ("gres.conf", "cgroup.conf"):
        if (slurm.root / name).exists():
            (folder / name).write_text((slurm.root / name).read_text())
    config.write_text(SETTINGS.format(folder=folder))
    folder.chmod(0o700)
    return config


def test_an_answer_with_a_remark_is_used_and_the_remark_is_shown_once(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    config = beside(slurm, tmp_path, ODD)
    job = slurm.sbatch("-wp1", "--gres=gpu:p100:4", "--hold")
    found = json.loads(rltuned("plan", "--json", config=config).stdout)
    assert [row["job_id"] for row in found["jobs"]] == [job]
    rows = json.loads(rltuned("check", "--json", config=config).stdout)
    status = {row["name"]: row["status"] for row in rows}
    (said,) = (row for row in rows if row["name"] == "remarks")
    assert (status["queue"], said["status"]) == ("ok", "warn")
    assert "squeue: squeue: error: " in said["detail"]
    assert "ControlMachine" in said["detail"]
    with Daemon(tmp_path, "--live", "--config", str(config)) as daemon:
        daemon.wait_for(lambda: daemon.metric("rltuned_cycles_total") >= 4, "four cycles")
        log = daemon.log()
    assert "cycle_skipped" not in log
    of_squeue = [x for x in log.splitlines() if "slurm_remark" in x and "command=squeue" in x]
    assert len(of_squeue) == len(set(of_squeue)) <= 3
    assert any("ControlMachine" in x for x in of_squeue)
