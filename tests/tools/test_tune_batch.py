"""deploy/tune.sbatch: which settings a task takes, and which exit codes are failures."""

import subprocess
from pathlib import Path

import pytest

from tests.programs import executable

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "tune.sbatch"


def program(path: Path, text: str) -> str:
    executable(path, f"#!/bin/sh\n{text}\n")
    return str(path)


@pytest.mark.parametrize(("task", "wanted"), [(None, "a.toml"), ("0", "a.toml"), ("1", "b.toml")])
@pytest.mark.parametrize(("ended", "code"), [(0, 0), (3, 0), (2, 2)])
def test_a_task_takes_its_settings_and_3_is_no_failure(
    tmp_path: Path, task: str | None, wanted: str, ended: int, code: int
) -> None:
    tune = program(tmp_path / "rltuned", f'echo "$@" >{tmp_path}/asked\nexit {ended}')
    environ = {"PATH": "/usr/bin:/bin", "RLTUNED": tune}
    environ |= {} if task is None else {"SLURM_ARRAY_TASK_ID": task}
    done = subprocess.run(
        ["sh", str(SCRIPT), "a.toml", "b.toml"], env=environ, check=False, timeout=300
    )
    assert done.returncode == code
    asked = (tmp_path / "asked").read_text()
    assert asked == f"tune --config {wanted} --minutes 40\n"


@pytest.mark.parametrize(("ended", "code"), [(0, 0), (3, 0), (2, 2)])
def test_several_tasks_meet_on_the_first_node_and_its_exit_code_counts(
    tmp_path: Path, ended: int, code: int
) -> None:
    """A task that is lost ends with another code."""
    tune = program(
        tmp_path / "rltuned",
        f'echo "$SLURM_PROCID $@ $MASTER_ADDR $MASTER_PORT" >>{tmp_path}/asked\n'
        f'[ "$SLURM_PROCID" = 0 ] && exit {ended}\nkill -KILL $$',
    )
    program(
        tmp_path / "srun",
        f'echo "$1" >{tmp_path}/srun-asked; shift\n'
        'SLURM_PROCID=1 "$@" || exit 9\nSLURM_PROCID=0 "$@"',
    )
    program(
        tmp_path / "scontrol",
        '[ "$1" = show ] && printf "gpu1\\ngpu2\\n" || echo " NodeAddr=of-$4 State="',
    )
    environ = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "RLTUNED": tune,
        "SLURM_NTASKS": "2",
        "SLURM_JOB_ID": "20007",
        "SLURM_JOB_NODELIST": "gpu[1-2]",
    }
    done = subprocess.run(["sh", str(SCRIPT), "a.toml"], env=environ, check=False, timeout=300)
    assert done.returncode == code
    words = "tune --config a.toml --minutes 40 --distributed of-gpu1 20007\n"
    assert (tmp_path / "asked").read_text() == f"1 {words}0 {words}"
    assert (tmp_path / "srun-asked").read_text() == "--wait=0\n"
