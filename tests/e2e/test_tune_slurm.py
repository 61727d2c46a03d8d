"""Nights of `rltuned tune` on what a real slurmdbd remembers of jobs that really waited."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.accounting import OPERATOR, as_user
from tests.clusters import OPERATORS, cluster
from tests.configs import settings_file
from tests.lab import NodeSpec, SlurmLab
from tests.real_jobs import BY_AGE, JOBS, Record, Site, add_users, check_night, play, sped_up

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
NODES = (
    NodeSpec(("p1", "p2"), cpus=64, mem_mib=64_000, gpu_type="p100", gpus=24),
    NodeSpec(("k1",), cpus=64, mem_mib=64_000, gpu_type="k80", gpus=24),
)
PARTITION = ("PartitionName=gpu Nodes=ALL Default=YES MaxTime=UNLIMITED DefaultTime=60",)
FEW = 22
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


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of the service's user."""
    with tempfile.TemporaryDirectory(prefix="rltrefit-") as name:
        shutil.chown(name, OPERATOR, OPERATOR)
        yield Path(name)


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


def keep_machine_code(cache: Path) -> None:
    """Put what this checkout has compiled where the service's user keeps its own.

    To compile it again takes the processor for more than a minute; tests/booted lets the unit.
    """
    from numba.core.caching import UserProvidedCacheLocator  # noqa: PLC0415

    from rltuned.lab.kernel import loop  # noqa: PLC0415

    subprocess.run([sys.executable, "-m", "rltuned.lab.cli.simulate"], check=True, timeout=600)
    own = Path(loop.play.stats.cache_path)  # type: ignore[attr-defined]
    place = cache / UserProvidedCacheLocator.get_suitable_cache_subpath(loop.__file__)  # type: ignore[no-untyped-call]
    place.mkdir(parents=True)
    for file in own.glob("*.nb?"):
        shutil.copy2(file, place)
    subprocess.run(["chown", "-R", OPERATOR, cache], check=True, timeout=300)


def as_service(lab: SlurmLab, place: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """As the unit does: as its user, with what the unit sets."""
    kept = {**lab.environ(), "PATH": f"{lab.search}:{os.environ['PATH']}"}
    surroundings = {
        "STATE_DIRECTORY": str(place),
        "NUMBA_CACHE_DIR": str(place / "numba"),
        "PYTHONPATH": str(ROOT),
        "HOME": str(place),
    }
    return subprocess.run(
        [*as_user(OPERATOR), *map(str, words)],
        env={**kept, **surroundings},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def settings(lab: SlurmLab, place: Path) -> Path:
    """Beside its state. A second of these jobs is hours: cycles of a minute take ten times as long
    to play as those of ten minutes, and change little.
    """
    return settings_file(
        place,
        f"""
[daemon]
state_dir = "{place}/state"
pause_file = "{place}/PAUSE"
interval_s = 600.0
[policy]
name = "tuned"
[slurm]
conf = "{lab.conf}"
""",
    )


SHORT_NIGHT = """\
#!{python}
import sys
sys.path.insert(0, {root!r})
from rltuned.cli import main
sys.argv += {period!r}
main()
"""
"""`rltuned` of this checkout, with a test period for a short record."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "tune"
    path.write_text(SHORT_NIGHT.format(python=sys.executable, root=str(ROOT), period=TEST_PERIOD))
    path.chmod(0o755)
    return path


def night(lab: SlurmLab, place: Path, *program: str | Path) -> subprocess.CompletedProcess[str]:
    """As the unit starts it."""
    return as_service(lab, place, *program, "tune", "-c", settings(lab, place), "--json")


def test_too_few_jobs_end_the_night_with_3(lab: SlurmLab, place: Path) -> None:
    play(site_of(lab), FEW)
    done = night(lab, place, sys.executable, "-m", "rltuned")
    assert done.returncode == 3, done.stderr
    assert "nothing tuned: " in done.stderr
    assert json.loads(done.stdout)["verdict"] == "nothing"


def test_a_night_on_jobs_of_several_users_that_really_waited(
    lab: SlurmLab, place: Path, record: Record, program: Path
) -> None:
    keep_machine_code(place / "numba")
    own = place / "tune"
    shutil.copy2(program, own)
    done = night(lab, place, own)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    check_night(record, found)
    state = json.loads((place / "state" / "models" / "tune.json").read_text())
    assert (state["verdict"], state["failed"]) == (found["verdict"], 0)
    assert (place / "state" / "models" / "last-night" / "index.html").exists()
    made = (place / "state" / "models" / "candidate").exists()
    assert made == (found["verdict"] == "proposed")


def test_a_night_as_a_slurm_job(
    lab: SlurmLab, tmp_path: Path, record: Record, program: Path
) -> None:
    out, models = tmp_path / "out", tmp_path / "state" / "models"
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
    assert found["record"]["sources"]["sacct"] >= record.jobs
    candidate = models / "candidate"
    assert found["generation"] == (candidate.resolve().name if candidate.exists() else None)
    assert (models / "last-night" / "index.html").exists()
    state = json.loads((models / "tune.json").read_text())
    assert (state["verdict"], state["failed"]) == (found["verdict"], 0)
