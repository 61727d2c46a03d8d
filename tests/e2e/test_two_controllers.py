"""Two daemons, a real primary and backup slurmctld: the right one writes, never both."""

import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rltuned.daemon.lease import published
from tests.builders import sure
from tests.clusters import cluster
from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.e2e.queue import FULL, priority, queue, waiting
from tests.lab import BACKUP, LabError, SlurmLab
from tests.programs import executable, rltuned

pytestmark = pytest.mark.slurm
LEASE_S = 12


@pytest.fixture
def lab() -> Iterator[SlurmLab]:
    with cluster(backup=True) as started:
        started.start_backup()
        yield started


def settings(
    lab: SlurmLab, folder: Path, host: str, slurm: Mapping[str, Any] | None = None, **more: Any
) -> Path:
    """One daemon's own settings and state; the lease is in a folder that both see."""
    own = folder / host
    own.mkdir(mode=0o700)
    shared = folder / "shared"
    shared.mkdir(mode=0o700, exist_ok=True)
    return write_settings(
        own / "rltuned.toml",
        lab.conf,
        daemon=more,
        slurm={"timeout_s": 10, **(slurm or {})},
        ha={"lease_dir": str(shared), "host": host},
    )


def stop(daemon: Daemon, config: Path) -> None:
    """Freeze it, but not in the middle of a commit, when it keeps everybody from its journal."""
    while True:
        daemon.signal(signal.SIGSTOP)
        try:
            written(config)
        except sqlite3.OperationalError:
            daemon.signal(signal.SIGCONT)
            time.sleep(0.2)
        else:
            return


def written(config: Path) -> list[tuple[float, float]]:
    """When this daemon sent something to Slurm: from the intent to what came of it."""
    with sqlite3.connect(f"file:{config.parent}/journal.sqlite?mode=ro", uri=True) as db:
        rows = db.execute(
            "SELECT at, finished_at FROM diary WHERE result = 'applied' ORDER BY at"
        ).fetchall()
    db.close()
    return [(float(at), float(end)) for at, end in rows]


def own(config: Path, other: Path) -> list[tuple[float, float]]:
    """What this daemon sent itself: rows that it took over have the times of the other's."""
    theirs = set(written(other))
    return [span for span in written(config) if span not in theirs]


def test_primary_killed_backup_takes_over_primary_back(lab: SlurmLab, tmp_path: Path) -> None:
    long, middle, short = waiting(lab)
    one, two = (settings(lab, tmp_path, host) for host in (lab.host, BACKUP))
    with (
        Daemon(one.parent, "--live", "--config", str(one)) as a,
        Daemon(two.parent, "--live", "--config", str(two)) as b,
    ):
        a.wait_for_log("applied=")
        b.wait_for_log(f"the slurmctld on {lab.host} acts, and this is {BACKUP}")
        assert priority(lab, short) > priority(lab, middle) > priority(lab, long)
        assert written(two) == []
        assert b.metric('rltuned_mode{mode="standby"}') == 1

        killed_at = time.time()
        lab.kill_controller()
        lab.wait_for(lambda: str(short) in lab.run("squeue", "-h", check=False), "backup acts")
        shorter = lab.sbatch(*FULL, "--time=15", "--nice=100")
        b.wait_for(lambda: bool(own(two, one)), "the backup's daemon writes")
        a.wait_for_log(f"the slurmctld on {BACKUP} acts, and this is {lab.host}")
        lab.wait_for(
            lambda: priority(lab, shorter) > priority(lab, short) > priority(lab, long),
            "in the order of the daemon that took over, with what the other had written",
        )
        assert all(end < killed_at for _, end in written(one))
        before, between = written(one), own(two, one)

        back_at = time.time()
        lab.start_controller()
        shortest = submitted(lab, "--time=5", "--nice=5")
        a.wait_for(
            lambda: any(at > back_at for at, _ in own(one, two)),
            "the primary's daemon writes again",
        )
        b.wait_for(lambda: b.log().rindex("standby") > b.log().rindex("applied="), "standby again")
        lab.wait_for(lambda: priority(lab, shortest) > priority(lab, shorter), "its order")
        for daemon in (a, b):
            daemon.signal(signal.SIGTERM)
            assert daemon.ends() == 0
            assert "Traceback" not in daemon.log()
    # what either has written is restored where it is held now, and only there
    assert rltuned("restore", "--all", config=two).stdout == "nothing to restore\n"
    given = rltuned("restore", "--all", config=one)
    assert given.returncode == 0, given.stdout
    assert all(f"job {j}: restored" in given.stdout for j in (short, shorter, shortest))
    left = sure(published(tmp_path / "shared"))
    assert not [row for row in left.owned if not row["gone"]], "a successor finds nothing"
    # what both journals hold has changed hands: it counts for the one that had it first
    ones = {*before, *own(one, two)} - set(between)
    twos = {*between, *own(two, one)}
    spans = sorted([(*span, "one") for span in ones] + [(*span, "two") for span in twos])
    turns = [name for i, (_, _, name) in enumerate(spans) if not i or spans[i - 1][2] != name]
    assert turns == ["one", "two", "one"]
    for earlier, later in pairwise(spans):
        assert earlier[2] == later[2] or earlier[1] <= later[0], f"both at a time: {spans}"


def submitted(lab: SlurmLab, *options: str) -> int:
    """A job's id. From 24.11 on a submission can time out while the primary takes control back."""
    found: list[int] = []

    def taken() -> bool:
        try:
            found.append(lab.sbatch(*FULL, *options))
        except LabError:
            return False
        return True

    lab.wait_for(taken, "a submission is taken")
    return found[0]


def test_a_daemon_that_was_stopped_wakes_up_with_an_old_view(lab: SlurmLab, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("squeue", "sinfo", "scontrol", "sdiag"):
        (programs / name).symlink_to(shutil.which(name) or "")
    hold, reached = tmp_path / "hold", tmp_path / "reached"
    executable(
        programs / "sprio",
        f'#!/bin/sh\n{shutil.which("sprio")} "$@"\n[ -e {hold} ] && touch {reached}\n'
        f"while [ -e {hold} ]; do sleep 0.05; done\n",
    )
    config = settings(lab, tmp_path, lab.host, {"bin_dir": str(programs)}, max_snapshot_age_s=2)
    hold.touch()
    waiting(lab)
    before = {j: row for j, row in queue(lab).items() if row[2] == "PD"}
    with Daemon(config.parent, "--live", "--config", str(config)) as daemon:
        daemon.wait_for(reached.exists, "it has read the queue")
        daemon.signal(signal.SIGSTOP)
        hold.unlink()
        (config.parent / "PAUSE").touch()  # only the plan it wakes up with is of interest
        time.sleep(3)
        (config.parent / "PAUSE").unlink()
        daemon.signal(signal.SIGCONT)
        daemon.wait_for_log("not sent: the queue was seen")
        # what was kept back is planned again from a fresh view
        daemon.wait_for_log("applied=")
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    first = daemon.log().index("not sent: the queue was seen")
    assert first < daemon.log().index("applied=")
    assert queue(lab).keys() >= before.keys()
    # a busy machine takes longer than 2 s to restore what it has just seen
    config.write_text(config.read_text().replace("max_snapshot_age_s = 2\n", ""))
    given = rltuned("restore", "--all", config=config)
    assert given.returncode == 0, given.stdout


def test_a_holder_that_is_stopped_loses_the_lease(lab: SlurmLab, tmp_path: Path) -> None:
    _, _, short = waiting(lab)
    one, two = (settings(lab, tmp_path, host) for host in (lab.host, BACKUP))
    with (
        Daemon(one.parent, "--live", "--config", str(one)) as a,
        Daemon(two.parent, "--live", "--config", str(two)) as b,
    ):
        a.wait_for_log("applied=")
        b.wait_for_log("standby=")
        stop(a, one)
        stopped_at = time.time()
        lab.kill_controller()
        lab.wait_for(lambda: str(short) in lab.run("squeue", "-h", check=False), "backup acts")
        shorter = lab.sbatch(*FULL, "--time=15", "--nice=100")
        # a slow backup slurmctld may answer only after the lease has run out
        words = (f"{lab.host} holds the lease", f"took over from {lab.host}")
        b.wait_for(lambda: any(word in b.log() for word in words), "it sees whose the lease is")
        b.wait_for(lambda: bool(own(two, one)), "the lease ran out")
        assert own(two, one)[0][0] > stopped_at + LEASE_S - 2
        a.signal(signal.SIGCONT)
        a.wait_for_log(f"the slurmctld on {BACKUP} acts, and this is {lab.host}")
        assert all(end < stopped_at for _, end in written(one))
        assert priority(lab, shorter) > priority(lab, short)


JOBS = 14


def settings_alone(folder: Path, slurm: SlurmLab, policy: str) -> Path:
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
def test_the_second_daemon_observes_and_says_why(priority_type: str, tmp_path: Path) -> None:
    with SlurmLab(priority_type=priority_type) as slurm:
        slurm.runs("-wm1", "-n4", "--time=2:00:00")
        jobs = [slurm.sbatch("-wm1", "-n4", f"--time={10 + 40 * n}") for n in range(JOBS)]
        slurm.wait_for(lambda: slurm.state(jobs[-1]) == "PD", "jobs wait")
        one, two = (
            settings_alone(tmp_path / name, slurm, policy)
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
