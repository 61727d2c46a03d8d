"""Lists of tasks that `squeue -r` cuts are made whole by what scontrol shows."""

from pathlib import Path

import pytest

from rltuned.slurm.run import Commands, SlurmCli
from rltuned.slurm.squeue import MOST_ASKED, TWICE, SteppedTasks, may_be_cut


def shown(first: int, count: int, step: int) -> list[str]:
    return [str(first + step * at) for at in range(count)]


def tasks_where(folder: Path, says: str) -> SteppedTasks:
    """scontrol says this of job 3, and notes that it was asked."""
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\necho asked >>{folder}/asked\n{says}\n")
    program.chmod(0o755)
    return SteppedTasks(Commands(SlurmCli(bin_dir=folder)))


def line(tasks: str) -> str:
    return f"echo 'JobId=3 ArrayJobId=3 ArrayTaskId={tasks} JobName=a'"


def asked(folder: Path) -> int:
    return len((folder / "asked").read_text().splitlines())


@pytest.mark.parametrize(
    ("tasks", "cut"),
    [
        (shown(0, 49, 2), True),
        ([*reversed(shown(7, 5, 3))], True),
        (shown(0, 4, 2), False),
        (shown(0, 90, 1), False),
        (["1", "3", "5", "7", "10"], False),
        (["0-98:2"], False),
        (["N/A"], False),
    ],
)
def test_six_tasks_or_more_that_are_evenly_apart(tasks: list[str], cut: bool) -> None:
    assert may_be_cut(tasks) is cut


@pytest.mark.parametrize(
    ("says", "tasks"), [("0-98:2", shown(0, 50, 2)), ("0-96:2%3", shown(0, 49, 2))]
)
def test_scontrol_is_asked_once_as_long_as_squeue_shows_the_same(
    tmp_path: Path, says: str, tasks: list[str]
) -> None:
    found = tasks_where(tmp_path, line(says))
    for _ in range(3):
        found.look()
        assert found.whole("3", shown(0, 49, 2)) == tasks
        assert found.whole("3", shown(0, 49, 2)) == tasks
    assert asked(tmp_path) == 1
    with pytest.raises(ValueError, match="changed while"):
        found.whole("3", shown(2, 48, 2))
    assert asked(tmp_path) == 2


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (line("4-98:2"), "changed while"),
        (line("0-100:2"), "changed while"),
        (line("0-4000000000:2"), "changed while"),  # a job's name, and two thousand million tasks
        (f"{line('0-98:2')}; {line('0-96:2')}", TWICE),  # one of them is a job's name
        (line("0,2,4,x"), "no array tasks"),
        ("echo JobId=30 ArrayJobId=3 ArrayTaskId=0-98:2", "scontrol shows none"),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "shows none"),
    ],
)
def test_a_list_that_is_not_known_costs_the_job(tmp_path: Path, says: str, why: str) -> None:
    found = tasks_where(tmp_path, says)
    found.look()
    with pytest.raises(ValueError, match=why):
        found.whole("3", shown(0, 49, 2))


def test_no_cycle_asks_for_thousands(tmp_path: Path) -> None:
    found = tasks_where(tmp_path, line("0-98:2"))
    found.look()
    for at in range(MOST_ASKED):
        with pytest.raises(ValueError, match="changed while"):
            found.whole("3", shown(2, 40 + at, 2))
    with pytest.raises(ValueError, match="asked later"):
        found.whole("3", shown(0, 49, 2))
    found.look()
    assert found.whole("3", shown(0, 49, 2)) == shown(0, 50, 2)
