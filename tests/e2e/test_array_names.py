"""A task that Slurm has parted from its array is found by either of its names, and restored."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rltuned.cli import app
from tests.builders import sure
from tests.e2e.process import Daemon
from tests.e2e.queue import FULL, waiting
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm


@pytest.fixture
def task(slurm: SlurmLab) -> tuple[str, str]:
    """Name and number of the middle task of an array, parted by a change to its nice."""
    waiting(slurm)
    array = slurm.sbatch(*FULL, "--array=0-2", "--time=10:00:00")
    slurm.scontrol("update", f"JobId={array}_1", "Nice=3")
    reply = slurm.scontrol("show", "job", f"{array}_1")
    number = sure(re.search(r"JobId=(\d+) ", reply))
    assert number[1] != str(array)
    return f"{array}_1", number[1]


def run(*args: str) -> Result:
    """In this process: five starts of Python would be most of the test's time."""
    done = CliRunner().invoke(app, args, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def document(*args: str) -> dict[str, Any]:
    done = run(*args)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_history_explain_and_restore_take_both_names(
    slurm: SlurmLab, config: Path, tmp_path: Path, task: tuple[str, str]
) -> None:
    name, number = task
    with Daemon(tmp_path, "--config", str(config), "--stage", "full") as daemon:
        changed = 'rltuned_changes_total{kind="site_factor",result="applied"}'
        daemon.wait_for(lambda: daemon.metric(changed) >= 4, "the array is moved down")
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    histories, explained = [], []
    for asked in task:
        shown = run("history", asked, "--json", "--config", str(config))
        histories.append(json.loads(shown.stdout)["changes"])
        explained.append(document("explain", asked, "--json", "--config", str(config)))
    assert histories[0] == histories[1] != []
    assert {c["address"] for c in histories[0]} == {name}
    assert {c["job_id"] for c in histories[0]} == {int(number)}
    assert {(e["job_id"], e["address"]) for e in explained} == {(int(number), name)}
    assert [e["history"] for e in explained] == histories
    for asked in task:
        done = run("restore", "--job", asked, "--config", str(config))
        assert done.stdout.startswith(f"job {name}: restored") == (asked == name), done.stdout
    assert " Nice=3 " in slurm.scontrol("show", "job", name)
