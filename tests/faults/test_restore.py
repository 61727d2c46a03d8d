"""Restore as an escape hatch, and a journal that goes away under the daemon."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError

import pytest

from rltuned.daemon.clock import SystemClock
from rltuned.daemon.restore import Fate, restore
from rltuned.domain.plan import PRIORITY, Action, Plan, target_of
from rltuned.journal.journal import Journal
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from tests.builders import sure
from tests.faults.case import FULL, Case
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

NO_NUMPY = "raise ImportError('restore must not need this')\n"


def by_priority(case: Case) -> None:
    text = case.config.read_text()
    case.config.write_text(
        text.replace("hysteresis = 0.0", 'hysteresis = 0.0\nwrite_mode = "priority"')
    )


def written(case: Case) -> None:
    case.succeeds("run", "--live", "--once")
    assert case.sprio() != case.natural


def test_neither_nodes_nor_numpy_nor_an_odd_job_keep_anything_frozen(
    case: Case, tmp_path: Path
) -> None:
    written(case)
    for name in ("numpy", "torch"):
        (tmp_path / f"{name}.py").write_text(NO_NUMPY)
    case.shims.always("sinfo", "exit 1")
    odd = case.lab.sbatch(*FULL, "--time=1000000", "--begin=now+7days")
    done = case.apart("restore", "--all", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    case.lab.run("scancel", str(odd))
    case.assert_untouched()


def test_jobs_held_while_it_gives_back_stay_held(case: Case) -> None:
    by_priority(case)
    written(case)
    held = case.waiting[1:]
    hold = f'"$REAL" hold {",".join(map(str, held))} </dev/null'
    case.shims.once("scontrol", f'{hold}; exec "$REAL" "$@"', "-v")
    done = case.rltuned("restore", "--all")
    assert case.shims.used("scontrol")
    assert done.returncode == 0, done.stdout + done.stderr
    free = int(case.waiting[0])
    kept = [job for job in held if job not in case.sprio()]  # sprio shows no held job
    assert kept == list(held)
    assert case.sprio()[free] == case.natural[free]
    case.lab.scontrol("release", ",".join(map(str, held)))


def test_it_goes_on_while_slurm_is_away_until_reported_to_stop(case: Case) -> None:
    written(case)
    case.shims.always("squeue", "exit 1")
    command = [sys.executable, "-m", "rltuned", "restore", "--all", "--config", str(case.config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        lines = [sure(process.stderr).readline() for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == 1
    assert all("next try in" in line for line in lines)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        sure(process.stderr).readline()
        case.shims.clear("squeue")
        assert process.wait(timeout=300) == 0
    case.assert_untouched()


def test_with_the_pause_file_it_waits_until_the_daemon_lets_go(case: Case) -> None:
    """In review the runbook's first two commands, one after the other, were refused."""
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        (case.folder / "PAUSE").touch()
        case.succeeds("restore", "--all")
        case.assert_untouched()
        daemon.stops()
    (case.folder / "PAUSE").unlink()
    assert "rltuned restore --all" not in daemon.log().splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_last_line_says_what_keeps_its_number(case: Case, number: signal.Signals) -> None:
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        daemon.signal(number)
        assert daemon.ends() == 0
    last = daemon.log().splitlines()[-1]
    assert "stopped" in last
    assert "rltuned restore --all" in last
    case.assert_given_back()


@pytest.mark.parametrize(
    ("how", "says"),
    [("deleted", "was deleted or moved"), ("replaced", "another file"), ("cut", "")],
)
def test_a_journal_that_goes_away_under_the_daemon(case: Case, how: str, says: str) -> None:
    """In review the pages of a file that was cut were in memory: the daemon died of SIGBUS."""
    journal = case.state / "journal.sqlite"
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        for file in case.state.glob("journal.sqlite*") if how != "replaced" else ():
            with suppress(FileNotFoundError):  # a log ends with its commit
                file.unlink() if how == "deleted" else os.truncate(file, 0)
        if how == "replaced":
            copy = case.state / "copy"
            copy.write_bytes(journal.read_bytes())
            copy.replace(journal)
        case.assert_only_watches(daemon)
        with pytest.raises(HTTPError, match="503") as refused:
            daemon.get("/readyz")
        refused.value.close()
        daemon.stops()
        assert says in daemon.log()
    if how == "replaced":
        journal.unlink()
    done = case.rltuned("restore", "--all")
    assert done.returncode == 3, done.stdout + done.stderr
    assert how == "cut" or "is missing" in done.stderr
    assert "not known without the journal" in done.stderr
    assert done.stdout.count(": restored") == 2
    case.assert_untouched()
    assert how != "cut" or case.rltuned("breaker", "show").returncode == 1


def test_fixed_priorities_without_a_journal_are_released_on_request_only(case: Case) -> None:
    by_priority(case)
    written(case)
    for file in case.state.glob("journal.sqlite*"):
        file.unlink()
    frozen = case.sprio()
    first = case.rltuned("restore", "--all")
    assert first.returncode == 3
    assert "--as-shown releases them" in first.stderr
    assert case.sprio() == frozen
    done = case.rltuned("restore", "--all", "--as-shown")
    assert done.returncode == 3, done.stdout + done.stderr
    natural = {job: line.split()[2:6] for job, line in case.natural.items()}
    assert {job: line.split()[2:6] for job, line in case.sprio().items()} == natural


def test_an_array_whose_list_of_tasks_is_long(tmp_path: Path) -> None:
    """Half of 2,400 tasks are held after the write: the others are named in 5,900 characters."""
    with SlurmLab(extra=("MaxArraySize=3001",)) as lab:
        runs = [lab.sbatch(*FULL, f"-w{node}", "--time=2:00:00") for node in ("p1", "p2")]
        lab.wait_for(lambda: all(lab.state(job) == "R" for job in runs), "both run")
        array = lab.sbatch(*FULL, "--time=30", "--nice=7", "--array=0-2399")
        lab.wait_for(lambda: lab.state(array) == "PD", "it waits")
        clock, journal = SystemClock(), Journal(tmp_path)
        undoer = SlurmBackend(SlurmCli(conf=lab.conf), clock.now)
        (job,) = undoer.look().pending
        target = target_of(job)
        plan = Plan((Action(PRIORITY, target, job.priority, 4711, job.nice),))
        ticket = journal.intend(
            plan, cluster="rltlab", cycle=1, at=clock.now(), newest=int(job.job_id)
        )
        journal.settle(ticket, undoer.apply(plan), at=clock.now())
        odd = ",".join(str(n) for n in range(1, 2400, 2))
        lab.scontrol("hold", f"{array}_[{odd}]")
        before = undoer.look().pending
        items = restore(undoer, journal, clock)
        assert {item.fate for item in items} == {Fate.RESTORED}, items[0].detail
        after = {j.job_id: j for j in undoer.look().pending}
        assert len(after) == len(before) == 1201, "no task was parted from its array"
        head = after[job.job_id]
        assert len(head.address) > 4_000
        assert (head.fixed, head.nice, head.priority) == (False, 7, job.priority)
        assert all(j.held_by == "admin" and j.nice == 7 for j in after.values() if j is not head)
        journal.close()
