"""The shown place is the place in force: jobs start in the order that rltuned shows."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import module_lab
from tests.configs import write_settings
from tests.lab import SlurmLab
from tests.programs import process

pytestmark = pytest.mark.slurm

ON_M1 = ("-wm1", "-n4", "-t1")
TIES = 400
tied_lab = module_lab(extra=("PriorityWeightPartition=0",))
"""Without any weight but age, which counts nothing without slurmdbd, every priority is the same."""


def plan(lab: SlurmLab, folder: Path) -> dict[str, Any]:
    config = write_settings(folder / "rltuned.toml", lab.conf, scope={"min_age_s": 0.0})
    found: dict[str, Any] = json.loads(process("plan", "--json", config=config, code=0).stdout)
    return found


def in_order(found: dict[str, Any]) -> list[int]:
    jobs = [one for one in found["jobs"] if one["rank_now"] is not None]
    return [one["job_id"] for one in sorted(jobs, key=lambda one: one["rank_now"])]


def test_jobs_of_two_tiers_start_in_the_order_that_is_shown(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    """Tier 2 goes before every priority; equal ones go by their number."""
    slurm.clear()
    blocker = slurm.runs("-wm1", "-n4", "-t60")
    started = tmp_path / "started"
    wrap = f"echo $SLURM_JOB_ID >> {started}"
    waiting = [
        slurm.sbatch(*ON_M1, f"-p{partition}", f"--nice={nice}", wrap=wrap)
        for nice in (7, 0, 0)
        for partition in ("gpu", "sla", "gpu")
    ]
    shown = plan(slurm, tmp_path)
    order = in_order(shown)
    assert sorted(order) == sorted(waiting)
    assert order != waiting
    ties = {one["job_id"]: one["ties"] for one in shown["jobs"]}
    assert sorted(ties.values()) == [1, 2, 2, 2, 2, 4, 4, 4, 4]
    assert {one["priority_tier"] for one in shown["jobs"]} == {1, 2}
    slurm.run("scancel", str(blocker))
    slurm.wait_for(
        lambda: started.exists() and len(started.read_text().split()) == len(waiting),
        "all jobs have run",
        120,
    )
    assert [int(line) for line in started.read_text().split()] == order


def test_of_many_ties_the_lower_number_is_first(tied_lab: SlurmLab, tmp_path: Path) -> None:
    tied_lab.runs("-wm1", "-n4", "-t60")
    first = tied_lab.sbatch(*ON_M1)
    for _ in range(3):
        tied_lab.sbatch(*ON_M1)
    array = tied_lab.sbatch(*ON_M1, f"--array=1-{TIES - 4}")
    tied_lab.wait_for(lambda: len(in_order(plan(tied_lab, tmp_path))) == 5, "all are eligible")
    found = plan(tied_lab, tmp_path)
    assert in_order(found) == list(range(first, array + 1))
    rows = {one["job_id"]: one for one in found["jobs"]}
    assert {one["ties"] for one in rows.values()} == {TIES}
    assert (rows[first]["rank_now"], rows[array]["rank_now"]) == (1, 5)
    assert found["counts"]["waiting"] == TIES
    config = tmp_path / "rltuned.toml"
    said = process("explain", str(array), config=config, code=0).stdout
    assert f"Place 5 of {TIES} in Slurm's queue; {TIES - 1} other jobs with its priority" in said
    tied_lab.clear()
