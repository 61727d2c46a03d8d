"""Jobs that an answer lacks, and numbers that Slurm hides: they are rltuned's all the same."""

import signal
from collections.abc import Iterator

import pytest

from tests.faults.case import FULL, Case

pytestmark = pytest.mark.slurm

NO_RECORD = '"$REAL" "$@" | head -n 1'
"""A whole answer without a job, as after a loss of rights where PrivateData=jobs."""
ON_K1 = ("-wk1", "-N1", "--gres=gpu:k80:2")


def factor(case: Case, job: int) -> int:
    return int(case.sprio().get(job, "0").split()[-1])


def test_jobs_that_are_missing_from_looks_keep_their_originals(case: Case) -> None:
    """In review every number was added again, and restore ended with 0 beside them."""
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        frozen = case.sprio()
        for _ in range(2):
            case.shims.always("squeue", NO_RECORD)
            daemon.more_cycles()
            case.shims.clear("squeue")
            daemon.more_cycles()
            assert case.sprio() == frozen
        case.shims.always("squeue", NO_RECORD)
        daemon.more_cycles()
        daemon.signal(signal.SIGKILL)
        daemon.ends()
    case.shims.clear("squeue")
    case.assert_given_back()


def test_a_restore_names_the_jobs_that_an_answer_lacks(case: Case) -> None:
    with case.daemon() as daemon:
        daemon.wait_for(lambda: case.turned, "the first order")
        case.lab.wait_for(lambda: "Jobs pending:   3" in case.lab.run("sdiag"), "they are counted")
        case.shims.always("squeue", NO_RECORD)
        daemon.more_cycles()
        daemon.stops()
    frozen = case.sprio()
    done = case.rltuned("restore", "--all", "--patience", "0")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "slurmctld counts 5 jobs" in done.stdout
    for job, line in frozen.items():
        assert line.split()[-1] == "0" or f"job {job}: unknown" in done.stdout
    case.shims.clear("squeue")
    case.assert_given_back()


@pytest.fixture
def requeued(case: Case) -> Iterator[tuple[Case, str]]:
    """A task that started with its array's number, and was requeued: Slurm hides the number."""
    filler = case.lab.runs(*ON_K1, "--time=600")
    array = case.lab.sbatch(*ON_K1, "--array=1-3", "--time=100", "--nice=5")
    with case.daemon() as daemon:
        daemon.wait_for(lambda: factor(case, array) != 0, "the array has a number")
        case.lab.run("scancel", str(filler))
        task = f"{array}_1"
        running = ("squeue", "-h", "-t", "R", "-o", "%i %A", "-j", str(array))
        case.lab.wait_for(lambda: task in case.lab.run(*running), "its first task runs")
        case.lab.scontrol("hold", str(array))
        daemon.more_cycles()
        case.lab.scontrol("requeue", task)
        filler = case.lab.sbatch(*ON_K1, "--time=600")  # so that no task starts again
        case.lab.wait_for(lambda: case.lab.state(filler) == "R", "k1 is taken again")
        case.lab.scontrol("release", str(array))
        daemon.stops()
    yield case, task
    case.lab.run("scancel", str(array), str(filler))


def eligible(case: Case, task: str) -> int:
    """Make it so now; its site factor."""
    case.lab.scontrol("update", f"JobId={task}", "StartTime=now+1")
    number = int(case.lab.run("squeue", "-h", "-o", "%A", "-j", task).split()[0])
    case.lab.wait_for(lambda: number in case.sprio(), "sprio shows it")
    return factor(case, number)


def test_a_hidden_number_of_a_requeued_task_is_named(requeued: tuple[Case, str]) -> None:
    """In review restore ended with 0, and the task kept its number."""
    case, task = requeued
    done = case.rltuned("restore", "--all", "--patience", "0")
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"job {task}: unknown" in done.stdout
    assert eligible(case, task) != 0
    case.succeeds("restore", "--all")
    assert eligible(case, task) == 0


def test_a_requeued_task_stops_nobodys_writing(requeued: tuple[Case, str]) -> None:
    """In review every new start was `numbers_unexplained`."""
    case, task = requeued
    case.rltuned("restore", "--all", "--patience", "0")
    kept = eligible(case, task)
    with case.daemon() as daemon:
        daemon.wait_for(lambda: factor(case, case.waiting[0]) != 0, "it writes")
        daemon.more_cycles()
        assert daemon.metric('rltuned_mode{mode="numbers_unexplained"}') == 0
        assert abs(eligible(case, task)) <= abs(kept)
        daemon.stops()
    case.succeeds("restore", "--all")
    assert eligible(case, task) == 0


def test_one_unexplained_number_holds_back_its_job_alone(case: Case) -> None:
    own = case.waiting[0]
    others = [case.lab.sbatch(*FULL, "--time=9000", "--nice=5", "--uid=65534") for _ in range(2)]
    case.lab.scontrol("update", f"JobId={own}", "SiteFactor=1")
    with case.daemon() as daemon:
        daemon.wait_for(lambda: factor(case, others[0]) != 0, "others are ordered")
        assert factor(case, own) == 1
        daemon.stops()
    done = case.rltuned("restore", "--all")
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"{own} (site factor 1)" in done.stderr
    assert all(factor(case, job) == 0 for job in others)
    case.lab.run("scancel", *map(str, others))
    case.lab.scontrol("update", f"JobId={own}", "SiteFactor=0")
    case.assert_untouched()
