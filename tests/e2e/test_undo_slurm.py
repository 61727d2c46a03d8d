"""Undo on a real Slurm: exactly, after restarts, from old journals, job by job."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rltuned.domain.jobs import PendingJob
from tests import programs
from tests.clusters import emptied, module_lab, world_of
from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

FULL = ("--gres=gpu:p100:4", "-n16", "-N1")
TIMELESS = ("PriorityWeightAge=0", "PriorityDecayHalfLife=0", "PriorityUsageResetPeriod=YEARLY")
"""Weights under which no factor moves with time, so that all of sprio can be compared."""

SLOW = ("PriorityWeightAge=1825", "PriorityMaxAge=365-0", *TIMELESS[1:])
"""Five points of age a day: none within a test, and yet delays of days are worth some."""
timeless_session = module_lab(extra=TIMELESS)


@pytest.fixture
def timeless(timeless_session: SlurmLab) -> Iterator[SlurmLab]:
    yield from emptied(timeless_session)


slow_session = module_lab(accounting=True, extra=SLOW)


@pytest.fixture
def slow(slow_session: SlurmLab) -> Iterator[SlurmLab]:
    yield from emptied(slow_session)


def settings(slurm: SlurmLab, folder: Path, mode: str) -> Path:
    path = folder / "rltuned.toml"
    limits = {"write_mode": mode}
    return write_settings(path, slurm.conf, limits=limits, slurm={"timeout_s": 5})


def rltuned(*args: str) -> str:
    """A command that must succeed; its output."""
    return programs.rltuned(*args, code=0).stdout


def fill(slurm: SlurmLab) -> list[int]:
    """Both p nodes are busy; jobs of many kinds wait behind them, the shortest last.

    Where age is slow their limits are 200 times as long: days.
    """
    times = 200 if "PriorityMaxAge=365-0" in slurm.extra else 1
    for node in ("p1", "p2"):
        blocker = slurm.sbatch(*FULL, f"-w{node}", "--time=2:00:00")
        slurm.wait_for(lambda b=blocker: slurm.state(b) == "R", "a blocker runs")  # type: ignore[misc]
    kinds = [
        (f"--time={90 * times}",),
        (f"--time={80 * times}", "--nice=70"),
        (f"--time={70 * times}", "--nice=-30"),
        (f"--time={120 * times}", "--array=0-9%1"),
        (f"--time={50 * times}", "--hold"),
        (f"--time={40 * times}", "-pgpu,short"),
        ("--time=30", "-psla"),
        (f"--time={20 * times}", "--exclusive"),
        (f"--time={10 * times}",),
    ]
    jobs = [slurm.sbatch(*FULL, *kind) for kind in kinds]
    slurm.wait_for(lambda: all(slurm.state(j) == "PD" for j in jobs), "all wait")
    return jobs


def shown(slurm: SlurmLab) -> tuple[str, str]:
    """All of sprio, and of the waiting jobs all that rltuned could have changed."""
    columns = "JobArrayID:|,PriorityLong:|,Nice:|,StateCompact:|,Partition:|,OverSubscribe:|"
    return slurm.run("sprio", "-l"), slurm.run(
        "squeue", "-a", "-r", "-t", "PD", "-S", "i", "-O", columns
    )


def settled(slurm: SlurmLab) -> tuple[str, str]:
    """The same, once Slurm has computed every priority again."""
    seen = shown(slurm)
    for _ in range(20):
        time.sleep(2.5)  # both schedulers pass every two seconds
        seen, before = shown(slurm), seen
        if seen == before:
            return seen
    raise AssertionError(f"the queue does not come to rest:\n{seen}")


def test_after_restore_the_queue_is_as_if_never_touched(timeless: SlurmLab, tmp_path: Path) -> None:
    config = settings(timeless, tmp_path, "site_factor")
    fill(timeless)
    untouched = settled(timeless)
    with Daemon(tmp_path, "--live", "--config", str(config)) as daemon:
        daemon.wait_for_log("applied=")
        daemon.wait_for(lambda: shown(timeless)[0] != untouched[0], "sprio shows the change")
        config.write_text(config.read_text().replace('"sjf"', '"smallest"'))
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("policy=smallest")
        config.write_text(config.read_text().replace('"smallest"', '"wfp3"'))
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("policy=wfp3")
        daemon.wait_for_log("cycle", times=8)
        daemon.signal(signal.SIGKILL)
        daemon.ends()
    timeless.stop_controller()
    timeless.start_controller()
    assert ": restored" in rltuned("restore", "--all", "--config", str(config))
    assert settled(timeless) == untouched


def observed(slurm: SlurmLab) -> dict[int, PendingJob]:
    backend = world_of(slurm)
    return {int(j.job_id): j for j in backend.observe().pending}


def test_a_task_an_array_and_what_was_written_since(timeless: SlurmLab, tmp_path: Path) -> None:
    config = settings(timeless, tmp_path, "site_factor")
    jobs = fill(timeless)
    array, last = jobs[3], jobs[-1]
    untouched = settled(timeless)
    once = ("run", "--live", "--once", "--config", str(config))
    rltuned(*once)
    reply = rltuned("restore", "--job", f"{array}_4", "--config", str(config))
    assert reply.startswith(f"job {array}: restored: site factor ")
    assert len(reply.splitlines()) == 1
    assert "site_factor" in rltuned("history", f"{array}_4", "--config", str(config))
    timeless.scontrol("update", f"JobId={last}", "SiteFactor=77")
    timeless.scontrol("hold", str(jobs[0]))
    timeless.scontrol("release", str(jobs[0]))  # sprio shows it from the scheduler's next pass on
    reply = rltuned("restore", "--job", str(jobs[0]), "--patience", "60", "--config", str(config))
    assert f"job {jobs[0]}: restored: site factor " in reply
    reply = programs.rltuned("restore", "--all", config=config, code=3).stdout
    assert f"job {last}: changed by another user: site factor is 77" in reply
    assert f"job {array}:" not in reply
    timeless.scontrol("update", f"JobId={last}", "SiteFactor=0")
    assert settled(timeless) == untouched


def test_held_jobs_and_tasks_that_left_their_array(slow: SlurmLab, tmp_path: Path) -> None:
    config = settings(slow, tmp_path, "priority")
    jobs = fill(slow)
    by_admin, by_user = jobs[1], jobs[2]
    array = slow.sbatch(*FULL, "--time=3000", "--nice=7", "--array=0-9%1")
    untouched = settled(slow)[1]
    rltuned("run", "--live", "--once", "--config", str(config))
    slow.scontrol("hold", f"{by_admin},{array}_5")
    slow.scontrol("uhold", str(by_user))
    slow.scontrol("update", f"JobId={array}_3", "TimeLimit=2900")
    slow.scontrol("update", f"JobId={jobs[3]}_2", "TimeLimit=14")
    now = observed(slow)
    assert [now[one].nice for one in (by_admin, by_user, array)] == [0, 0, 0]
    reply = rltuned("restore", "--all", "--config", str(config))
    assert f"job {by_admin}: restored: nice 70 set again" in reply
    assert f"job {by_user}: restored: nice -30 set again" in reply
    now = observed(slow)
    for one, holder, nice in ((by_admin, "admin", 70), (by_user, "user", -30)):
        assert (now[one].priority, now[one].held_by, now[one].nice) == (0, holder, nice)
    tasks = [j for j in now.values() if j.array is not None and j.array.array_job_id == array]
    assert sorted((j.nice, j.held_by) for j in tasks) == [(7, ""), (7, ""), (7, "admin")]
    assert not any(j.fixed for j in now.values())
    assert rltuned("restore", "--all", "--config", str(config)) == "nothing to restore\n"
    assert "nice 0 -> 70: applied" in rltuned("history", str(by_admin), "--config", str(config))
    slow.scontrol("release", f"{by_admin},{by_user},{array}_5")
    assert sorted(settled(slow)[1].splitlines()) == sorted(untouched.splitlines())


@contextmanager
def reconfigured(slurm: SlurmLab, line: str) -> Iterator[None]:
    """With one more line in slurm.conf, which wins over an earlier one."""
    before = slurm.conf.read_text()
    key, _, value = line.partition("=")
    slurm.reconfigure(before.replace("\nPartitionName", f"\n{line}\nPartitionName", 1))
    try:
        config = slurm.scontrol("show", "config")
        assert any(text.split() == [key, "=", value] for text in config.splitlines()), config
        yield
    finally:
        slurm.reconfigure(before)


def standings(slurm: SlurmLab, job: int) -> dict[str, int]:
    """Priority by partition, as sprio shows it."""
    rows = slurm.run("sprio", "-h", "-j", str(job), "-o", "%r %Y").splitlines()
    return {row.split()[0]: int(row.split()[1]) for row in rows if row.strip()}


def of_two_partitions(slurm: SlurmLab) -> int:
    """In a full queue, a job that sjf wants to be the second."""
    fill(slurm)
    slurm.sbatch(*FULL, "--time=1")
    both = slurm.sbatch(*FULL, "-pgpu,short", "--time=5", "--nice=100")
    slurm.wait_for(lambda: len(standings(slurm, both)) == 2, "it waits in both")
    return both


def test_unlike_partitions_are_moved_alike_or_not_at_all(slow: SlurmLab, tmp_path: Path) -> None:
    config = settings(slow, tmp_path, "priority")
    both = of_two_partitions(slow)
    untouched = settled(slow)
    before = standings(slow, both)
    assert observed(slow)[both].priority == before["short"] > before["gpu"] > 0
    rltuned("run", "--live", "--once", "--config", str(config))
    assert standings(slow, both) == before
    reply = rltuned("explain", str(both), "--config", str(config))
    assert "another priority in each of its partitions" in reply, reply
    rltuned("restore", "--all", "--config", str(config))
    config = settings(slow, tmp_path, "site_factor")
    rltuned("run", "--live", "--once", "--config", str(config))
    moved = observed(slow)[both].site_factor
    assert moved
    alike = {name: max(1, number + moved) for name, number in before.items()}
    assert standings(slow, both) == alike
    rltuned("restore", "--all", "--config", str(config))
    assert settled(slow) == untouched


def test_like_partitions_and_numbers_that_never_go_down(slow: SlurmLab, tmp_path: Path) -> None:
    config = settings(slow, tmp_path, "priority")
    with reconfigured(slow, "PriorityWeightPartition=0"):
        both = of_two_partitions(slow)
        untouched = settled(slow)
        before = standings(slow, both)
        assert before["short"] == before["gpu"]
        rltuned("run", "--live", "--once", "--config", str(config))
        assert observed(slow)[both].priority != before["gpu"]
        reply = rltuned("restore", "--all", "--config", str(config))
        assert f"job {both}: restored" in reply
        assert settled(slow) == untouched
        with reconfigured(slow, "PriorityFlags=INCR_ONLY"):
            for mode in ("priority", "site_factor"):
                config = settings(slow, tmp_path, mode)
                rltuned("run", "--live", "--once", "--config", str(config))
                reply = rltuned("explain", str(both), "--config", str(config))
                assert "may never come down" in reply, reply
                assert settled(slow) == untouched
