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
