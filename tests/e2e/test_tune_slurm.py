"""Nights of `rltuned tune` on what a real slurmdbd remembers of jobs that really waited."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.accounting import as_user
from tests.clusters import OPERATORS, cluster
from tests.configs import settings_file
from tests.lab import NodeSpec, SlurmLab
from tests.programs import executable
from tests.real_jobs import BY_AGE, JOBS, Record, Site, add_users, check_night, play, sped_up

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
NODES = (
    NodeSpec(("p1", "p2"), cpus=64, mem_mib=64_000, gpu_type="p100", gpus=24),
    NodeSpec(("k1",), cpus=64, mem_mib=64_000, gpu_type="k80", gpus=24),
)
PARTITION = ("PartitionName=gpu Nodes=ALL Default=YES MaxTime=UNLIMITED DefaultTime=60",)
TEST_PERIOD = ["--test-period", "6d"]


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    needs.module("numba")
    more = ("PrivateData=jobs", "AccountingStorageTRES=gres/gpu", BY_AGE)
    with cluster(
        OPERATORS, accounting=True, extra=more, nodes=NODES, partitions=PARTITION
    ) as started:
        add_users(site_of(started))
        yield started


def site_of(lab: SlurmLab) -> Site:
    """The lab, for tests.real_jobs."""
    database = ("mariadb", "--no-defaults", "-N", "-uroot", f"-S{lab.root / 'db' / 's'}")

    def run(user: str, argv: tuple[str, ...]) -> str:
        return lab.run(*(() if user == "root" else as_user(user)), *argv)

    return Site("rltlab", lambda query: lab.run(*database, "slurm_acct_db", f"-e{query}"), run)


@pytest.fixture(scope="module")
def record(lab: SlurmLab) -> Record:
    """Of the lab, from here on."""
    site = site_of(lab)
    play(site, JOBS)
    return sped_up(site)


def settings(lab: SlurmLab, place: Path) -> Path:
    """Beside its state. A second of these jobs is hours: cycles of a minute take ten times as long
    to play as those of ten minutes, and change little.
    """
    return settings_file(
        place,
        f'[daemon]\nstate_dir = "{place}/state"\npause_file = "{place}/PAUSE"\n'
        f'interval_s = 600.0\n[policy]\nname = "tuned"\n[slurm]\nconf = "{lab.conf}"\n',
    )


SHORT_NIGHT = """\
#!{}
import sys
sys.path.insert(0, {!r})
from rltuned.cli import main
sys.argv += {!r}
main()
"""
"""`rltuned` of this checkout, with a test period for a short record."""


def test_a_night_as_a_slurm_job_on_jobs_of_several_users_that_really_waited(
    lab: SlurmLab, tmp_path: Path, record: Record
) -> None:
    out, models, program = tmp_path / "out", tmp_path / "state" / "models", tmp_path / "tune"
    executable(program, SHORT_NIGHT.format(sys.executable, str(ROOT), TEST_PERIOD))
    config = settings(lab, tmp_path)
    # a job of this minute would be the end of the record, days after those that were sped up
    site_of(lab).query("delete from rltlab_job_table where job_name = 'rltuned-tune'")
    job = lab.run(
        "sbatch", "--parsable", f"--output={out}",
        f"--export=ALL,RLTUNED={program}", str(ROOT / "deploy" / "tune.sbatch"), str(config),
    ).strip()  # fmt: skip
    lab.wait_for(lambda: lab.state(job) not in {"PD", "R", "CG"}, "the job to end", 800)
    assert lab.state(job) == "CD", out.read_text()
    found = json.loads((models / "last-night" / "results.json").read_text())
    check_night(record, found)
    candidate = models / "candidate"
    assert candidate.exists() == (found["verdict"] == "proposed")
    assert found["generation"] == (candidate.resolve().name if candidate.exists() else None)
    assert (models / "last-night" / "index.html").exists()
    state = json.loads((models / "tune.json").read_text())
    assert (state["verdict"], state["failed"]) == (found["verdict"], 0)
