"""The trust ladder on a real Slurm: an observer, a canary, a breaker that opens and restores."""

import re
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.daemon.clock import SystemClock
from rltuned.domain.snapshot import Snapshot
from rltuned.journal.journal import Journal
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from tests.accounting import OPERATOR, PLAIN
from tests.builders import sure
from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.e2e.queue import FULL, priority, queue, waiting
from tests.lab import SlurmLab
from tests.programs import executable, rltuned
from tests.switchback_world import switchback_at

pytestmark = pytest.mark.slurm

PROGRAMS = ("squeue", "sinfo", "sprio", "sdiag")


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """Slurm's commands, of which scontrol sets no site factor but 0 while the file REFUSE is there.

    It says so as scontrol does, and goes on with the other lines.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).symlink_to(found(name))
    script = folder / "scontrol"
    executable(
        script,
        f"""#!/bin/sh
if [ -e {tmp_path}/REFUSE ] && [ ! -t 0 ] && ! echo "$*" | grep -q show; then
    echo 'slurm_update error: Access/permission denied' >&2
    grep -v ' SiteFactor=[^0]' | {found("scontrol")} "$@"
    exit 1
fi
exec {found("scontrol")} "$@"
""",
    )
    return folder


def found(name: str) -> str:
    return sure(shutil.which(name))


@pytest.fixture
def config(slurm: SlurmLab, tmp_path: Path, bin_dir: Path) -> Iterator[Path]:
    path = write_settings(
        tmp_path / "rltuned.toml",
        slurm.conf,
        ladder={"full_off_share": 0.0},
        slurm={"bin_dir": str(bin_dir), "timeout_s": 10},
    )
    yield path
    (tmp_path / "REFUSE").unlink(missing_ok=True)
    rltuned("restore", "--all", config=path)


def test_the_first_start_observes(slurm: SlurmLab, config: Path, tmp_path: Path) -> None:
    long, *_ = waiting(slurm)
    before = queue(slurm)
    with Daemon(tmp_path, "--config", str(config)) as daemon:
        daemon.wait_for_log("mode=observe", times=2)
        slurm.run("scancel", *slurm.run("squeue", "-h", "-t", "R", "-o", "%A").split())
        slurm.wait_for(lambda: slurm.state(long) == "R", "jobs start")
        daemon.wait_for(
            lambda: (
                daemon.metric('rltuned_job_wait_seconds_count{delays="off",partition="gpu"}') >= 2
            ),
            "starts are counted",
        )
        assert daemon.metric('rltuned_stage{stage="observe"}') == 1
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    after = queue(slurm)
    assert {j: row[1] for j, row in after.items()} == {j: before[j][1] for j in after}
    assert rltuned("restore", "--all", config=config).stdout == "nothing to restore\n"


def test_a_canary_orders_in_on_blocks_alone(slurm: SlurmLab, config: Path, tmp_path: Path) -> None:
    long, middling, short = jobs = waiting(slurm)
    text = config.read_text()

    def once(*, on: bool) -> None:
        salt = switchback_at(time.time(), on=on).salt
        config.write_text(text.replace("[ladder]", f'[ladder]\ncanary_salt = "{salt}"'))
        done = rltuned("run", "--stage", "canary", "--once", config=config)
        assert done.returncode == 0, done.stderr
        # every partition has its own coin: others may be off as well
        off = re.search(r"off_block=(\S+)", done.stderr)
        assert ("gpu" in (off[1].split(",") if off else ())) is not on

    for _ in range(2):
        once(on=True)
        assert [long, middling, short] == sorted(jobs, key=lambda j: priority(slurm, j))
        once(on=False)
        assert priority(slurm, long) >= priority(slurm, middling) >= priority(slurm, short)
        config.write_text(config.read_text().replace("[ladder]", '[ladder]\nstage = "canary"'))
        reply = rltuned("explain", str(long), config=config).stdout
        assert "It is not delayed: partition gpu measures Slurm's own order until 2" in reply
    with closing(Journal(tmp_path)) as journal:
        assert {int(job) for job, _ in journal.owned(look(slurm).cluster)} <= set(jobs)


def test_a_breaker_restores_and_survives_a_restart(
    slurm: SlurmLab, config: Path, tmp_path: Path
) -> None:
    jobs = waiting(slurm)
    options = ("--stage", "full", "--config", str(config))
    with Daemon(tmp_path, *options) as daemon:
        daemon.wait_for_log("applied=")
        daemon.wait_for(lambda: priority(slurm, jobs[2]) > priority(slurm, jobs[0]), "an order")
        (tmp_path / "REFUSE").touch()
        # of two other users: what one user's jobs come to opens no breaker
        shortest, _ = (
            slurm.sbatch(*FULL, "--time=1", "--nice=7", f"--uid={user}", "--chdir=/")
            for user in (PLAIN, OPERATOR)
        )
        daemon.wait_for_log("breaker_opened")
        daemon.wait_for(lambda: set(jobs) <= ruled_by_slurm(slurm), "multifactor rules again")
        assert daemon.metric('rltuned_breaker_open{partition="gpu"}') == 1
        assert daemon.metric('rltuned_breaker_opened_total{cause="errors"}') == 1
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    nices = {queue(slurm)[j][1] for j in jobs}
    assert nices == {"5"}, daemon.log()
    # all equal but for their age: the oldest is first again, as without us
    assert priority(slurm, jobs[0]) >= priority(slurm, jobs[1]) >= priority(slurm, jobs[2])
    (tmp_path / "REFUSE").unlink()
    done = rltuned("restore", "--all", config=config)
    assert done.returncode == 0, done.stdout
    done = rltuned("run", "--once", *options)
    assert done.returncode == 1, "an open breaker is no success"
    assert "breaker_open=gpu" in done.stderr
    assert {*jobs, shortest} <= ruled_by_slurm(slurm)
    shown = rltuned("breaker", "show", config=config)
    assert shown.returncode == 1
    assert "gpu: open since" in shown.stdout
    assert "changes not taken" in shown.stdout
    assert rltuned("breaker", "reset", "gpu", config=config).returncode == 0
    done = rltuned("run", "--once", *options)
    assert done.returncode == 0, done.stderr
    assert priority(slurm, shortest) > priority(slurm, jobs[0])


def look(slurm: SlurmLab) -> Snapshot:
    return SlurmBackend(SlurmCli(conf=slurm.conf), SystemClock().now).observe()


def ruled_by_slurm(slurm: SlurmLab) -> set[int]:
    """Pending jobs that have no factor of ours."""
    return {int(job.job_id) for job in look(slurm).pending if job.site_factor == 0}
