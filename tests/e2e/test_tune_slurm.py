"""A night of `rltuned tune` on what a real slurmdbd remembers of a thousand jobs.

Real slurmctld and slurmds ran each of them; only then the moments in the database are set, as if
they had come over weeks, and one user's had run for minutes, the other's for hours. None of them
waited, so the simulator is right to the second, and no order is better than another.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import accounting, needs
from tests.accounting import OPERATOR, OWNER, PLAIN, as_user
from tests.conftest import slurm_or_skip
from tests.lab import SlurmLab

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
JOBS, FEW = 1_100, 20
MINUTES, HOURS = 300, 6 * 3600
"""Seconds that a job of PLAIN, and one of OWNER, is made to have run, within a fifth."""
WHOLE = "select count(*) from rltlab_job_table where time_end > 0 and account > ''"
"""How many jobs slurmdbd knows from submit to end."""
WEEKS_OLD = f"""
update rltlab_job_table set
  time_submit = unix_timestamp() - 40*86400 + id_job * 37 % {JOBS} * 86400 * 38 div {JOBS},
  time_eligible = time_submit,
  time_start = time_submit,
  time_end = time_start + if(account = 'slow', {HOURS}, {MINUTES}) * (90 + id_job % 20) div 100,
  timelimit = 1440
"""  # noqa: S608 - numbers of this file


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    slurm_or_skip()
    needs.module("numba")
    if why := accounting.missing():
        needs.skip_or_fail(why)
    hidden = ("PrivateData=jobs", "AccountingStorageTRES=gres/gpu")
    with SlurmLab(accounting=True, extra=hidden) as started:
        for account, user in (("quick", PLAIN), ("slow", OWNER)):
            started.run("sacctmgr", "-i", "add", "account", account)
            started.run("sacctmgr", "-i", "add", "user", user, f"account={account}")
        started.run(
            "sacctmgr", "-i", "add", "user", OPERATOR, "account=root", "adminlevel=operator"
        )
        yield started


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of the service's user."""
    with tempfile.TemporaryDirectory(prefix="rltrefit-") as name:
        shutil.chown(name, OPERATOR, OPERATOR)
        yield Path(name)


def asked(lab: SlurmLab, query: str) -> str:
    """What the database of the lab says."""
    database = ("mariadb", "--no-defaults", "-N", "-uroot", f"-S{lab.root / 'db' / 's'}")
    return lab.run(*database, "slurm_acct_db", f"-e{query}")


def play(lab: SlurmLab, jobs: int) -> None:
    """Let each user's jobs run, and be remembered."""
    already = int(asked(lab, WHOLE))
    for user in (PLAIN, OWNER):
        lab.run(
            *as_user(user), "sbatch", "--output=/dev/null", "--chdir=/", f"--array=1-{jobs // 2}",
            "-n1", "--mem=10", "--gres=gpu:1", "--wrap=true",
        )  # fmt: skip
    lab.wait_for(lambda: int(asked(lab, WHOLE)) == already + jobs, 500, "slurmdbd has every job")
    asked(lab, WEEKS_OLD)


def keep_machine_code(cache: Path) -> None:
    """Put what this checkout has compiled where the service's user keeps its own.

    To compile it again takes the processor for more than a minute; tests/booted lets the unit.
    """
    from numba.core.caching import UserProvidedCacheLocator  # noqa: PLC0415

    from rltuned.kernel import loop  # noqa: PLC0415

    own = Path(loop.play.stats.cache_path)  # type: ignore[attr-defined]
    place = cache / UserProvidedCacheLocator.get_suitable_cache_subpath(loop.__file__)  # type: ignore[no-untyped-call]
    place.mkdir(parents=True)
    for file in own.glob("*.nb?"):
        shutil.copy2(file, place)
    subprocess.run(["chown", "-R", OPERATOR, cache], check=True, timeout=60)


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
        timeout=800,
        check=False,
    )


def night(lab: SlurmLab, place: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """As the unit starts it."""
    config = place / "rltuned.toml"
    config.write_text(
        f"""
[daemon]
state_dir = "{place}/state"
pause_file = "{place}/PAUSE"
[policy]
name = "tuned"
[slurm]
conf = "{lab.conf}"
"""
    )
    words = (sys.executable, "-m", "rltuned", "tune", "-c", config, "--minutes", "2", "--json")
    return as_service(lab, place, *words, *more)


def test_too_few_jobs_end_the_night_with_3(lab: SlurmLab, place: Path) -> None:
    play(lab, FEW)
    done = night(lab, place)
    assert done.returncode == 3, done.stderr
    assert "nothing tuned: " in done.stderr
    assert json.loads(done.stdout)["verdict"] == "nothing"


def test_where_no_job_waits_the_order_in_force_is_kept(lab: SlurmLab, place: Path) -> None:
    play(lab, JOBS)
    keep_machine_code(place / "numba")
    done = night(lab, place)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["calibration"]["verdict"] == "close"
    assert found["record"]["jobs"] >= JOBS
    assert found["verdict"] == "kept", found["why"]
    state = json.loads((place / "state" / "models" / "tune.json").read_text())
    assert (state["verdict"], state["failed"]) == ("kept", 0)
    assert (place / "state" / "models" / "last-night" / "index.html").exists()
    assert not (place / "state" / "models" / "candidate").exists()
