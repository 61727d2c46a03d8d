"""The nightly refit (systemd/retrain) on what a real slurmdbd remembers of some hundred jobs.

Real slurmctld and slurmds ran each of them; only then the moments in the database are set, as if
they had come over weeks, and one user's had run for minutes, the other's for hours.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from rltuned.core.run_times import LOG_FULL
from rltuned.policies.predictor import load_predictor
from rltuned.sim.trace import TraceJob, read_trace
from rltuned.train.predictor import foreseen
from tests import accounting, needs
from tests.accounting import OPERATOR, OWNER, PLAIN, as_user
from tests.conftest import slurm_or_skip
from tests.lab import SlurmLab

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
JOBS, FEW = 600, 20
MINUTES, HOURS = 300, 6 * 3600
"""Seconds that a job of PLAIN, and one of OWNER, is made to have run, within a fifth."""
WHOLE = "select count(*) from rltlab_job_table where time_end > 0 and account > ''"
"""How many jobs slurmdbd knows from submit to end."""
WEEKS_OLD = f"""
update rltlab_job_table set
  time_submit = unix_timestamp() - 50*86400 + id_job * 37 % {JOBS} * 86400 * 49 div {JOBS},
  time_eligible = time_submit,
  time_start = time_submit + 60 + id_job % 7 * 300,
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
            "-n1", "--mem=10", "--wrap=true",
        )  # fmt: skip
    lab.wait_for(lambda: int(asked(lab, WHOLE)) == already + jobs, 120, "slurmdbd has every job")
    asked(lab, WEEKS_OLD)


def as_service(lab: SlurmLab, place: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """As the unit does: as its user, with what the unit sets."""
    kept = {**lab.environ(), "PATH": f"{lab.search}:{os.environ['PATH']}"}
    surroundings = {
        "RLTUNED": str(place / "rltuned"),
        "RLTUNED_SETTINGS": str(place / "stages"),
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
        timeout=280,
        check=False,
    )


def refit(lab: SlurmLab, place: Path) -> subprocess.CompletedProcess[str]:
    program = place / "rltuned"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rltuned "$@"\n')
    program.chmod(0o755)
    return as_service(lab, place, "sh", ROOT / "systemd" / "retrain", ROOT / "models" / "run-times")


def predicted_s(folder: Path, jobs: Sequence[TraceJob]) -> dict[str, float]:
    """By account, the median of the medians predicted for the later half of a history."""
    with tempfile.TemporaryDirectory() as own:  # root loads nothing that another user may change
        predictor = load_predictor(Path(shutil.copytree(folder, Path(own, "site"))))
    medians = np.expm1(foreseen(predictor, jobs).quantiles[:, 1] * LOG_FULL)
    late = range(len(jobs) // 2, len(jobs))
    return {
        account: float(np.median([medians[i] for i in late if jobs[i].account == account]))
        for account in ("quick", "slow")
    }


def history(lab: SlurmLab, place: Path) -> Sequence[TraceJob]:
    """What sacct tells, as the refit reads it."""
    raw = as_service(
        lab, place, "env", "TZ=UTC", "sacct", "--allusers", "-X", "--parsable2",
        "--starttime", "now-60days", "--endtime", "now", "--state", "CD", "--format",
        "JobID,Submit,Start,End,Timelimit,ReqTRES,NNodes,Partition,User,Account,QOS,State",
    )  # fmt: skip
    (place / "sacct.txt").write_text(raw.stdout)
    words = ("traces", "convert", place / "sacct.txt", "--from", "sacct", "--out")
    made = as_service(lab, place, place / "rltuned", *words, place / "history.csv")
    assert made.returncode == 0, made.stderr
    return read_trace(place / "history.csv").jobs


def test_too_few_change_nothing(lab: SlurmLab, place: Path) -> None:
    play(lab, FEW)
    done = refit(lab, place)
    assert done.returncode == 1
    assert f"{FEW} finished jobs in 60 days, at least 500 are needed" in done.stderr
    assert not (place / "models").exists()


def test_a_site_of_its_own_jobs_is_made_and_made_again(lab: SlurmLab, place: Path) -> None:
    play(lab, JOBS)
    for _ in range(2):
        done = refit(lab, place)
        assert done.returncode == 0, done.stderr
        assert f"fitted to {JOBS + FEW} jobs" in done.stderr
    site = place / "models" / "site"
    assert sorted(entry.name for entry in site.parent.iterdir()) == ["site", "site.previous"]
    # each within the fifth that they differ by, and a fifth for what the network makes of it
    found = predicted_s(site, history(lab, place))
    assert found["quick"] == pytest.approx(MINUTES, rel=0.4)
    assert found["slow"] == pytest.approx(HOURS, rel=0.4)
    config = place / "rltuned.toml"
    config.write_text(
        f"""
[daemon]
state_dir = "{place}"
pause_file = "{place}/PAUSE"
[policy]
name = "delay"
models_dir = "{place}/models"
[predictor]
model = "site"
[slurm]
conf = "{lab.conf}"
[http]
port = 0
"""
    )
    made = {path.name: path.read_bytes() for path in site.iterdir()}
    for stage in ("canary", "full"):
        (place / "stages").mkdir(exist_ok=True)
        (place / "stages" / "two.toml").write_text(f'[ladder]\nstage = "{stage}"\n')
        done = refit(lab, place)
        assert done.returncode == 0, done.stderr
        assert (
            f"site stays, because of the stage in {place}/stages/two.toml ({stage})" in done.stderr
        )
        assert {path.name: path.read_bytes() for path in site.iterdir()} == made
        assert (site.parent / "site.next" / "predictor.json").exists()
    (place / "stages" / "two.toml").write_text("[ladder]\nstage = 7\n")
    done = refit(lab, place)
    assert done.returncode == 1
    assert "two.toml cannot be read; nothing was changed" in done.stderr
    (place / "stages" / "two.toml").unlink()
    looked = as_service(lab, place, place / "rltuned", "run", "--dry-run", "--once", f"-c{config}")
    assert looked.returncode == 0, looked.stderr
    assert "no_predictor" not in looked.stderr
