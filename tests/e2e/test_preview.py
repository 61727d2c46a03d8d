"""What `plan` shows before the first start is what the daemon writes then."""

import json
from pathlib import Path

import pytest

from tests.configs import write_settings
from tests.lab import SlurmLab
from tests.programs import process

pytestmark = pytest.mark.slurm


def priorities(lab: SlurmLab) -> dict[int, int]:
    rows = lab.run("squeue", "-h", "-t", "PD", "-o", "%A %Q").split("\n")
    return {int(job): int(number) for job, number in (row.split() for row in rows if row)}


def test_a_preview_before_the_first_start_is_what_the_daemon_writes(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    """No job is known to have ended here, so both go by time limits: in review the daemon took a
    guess of the shipped predictor for a plan, and turned the order round.
    """
    config = write_settings(
        tmp_path / "rltuned.toml",
        slurm.conf,
        scope={"min_age_s": 0.0},
        limits={"hysteresis": 0.0},
        predictor={"enabled": True},
    )
    blocker = slurm.sbatch("-wm1", "-n4", "-t60")
    slurm.wait_for(lambda: slurm.state(blocker) == "R", "a busy node")
    waiting = [slurm.sbatch("-wm1", "-n4", f"-t{limit}") for limit in (600, 2, 60, 1200, 10)]
    slurm.wait_for(lambda: len(priorities(slurm)) == len(waiting), "the queue")
    preview = json.loads(process("plan", "--json", config=config, code=0).stdout)
    planned = {one["job_id"]: one["planned_priority"] for one in preview["jobs"]}
    assert planned.keys() == set(waiting)
    process("run", "--once", "--live", config=config, code=0)
    written = priorities(slurm)
    assert max(abs(written[job] - planned[job]) for job in waiting) <= 3  # a cycle later
    by_limit = [waiting[at] for at in (1, 4, 2, 0, 3)]
    assert sorted(waiting, key=lambda job: -written[job]) == by_limit
    again = json.loads(process("plan", "--json", config=config, code=0).stdout)
    ranks = {one["job_id"]: (one["rank_now"], one["rank_wished"]) for one in again["jobs"]}
    assert [ranks[job] for job in by_limit] == [(n, n) for n in range(1, 6)]
    process("restore", "--all", config=config, code=0)
