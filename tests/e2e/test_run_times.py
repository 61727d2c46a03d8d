"""A daemon on a real Slurm learns from sacct and from its looks, and knows it after a restart."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from rltuned.core.memory import LEAST_ENDS
from rltuned.domain.units import JobId
from rltuned.journal.cycles import recorded
from rltuned.journal.store import FILE_NAME, LEARNED_FILE, read_learned
from tests.builders import sure
from tests.clusters import module_lab
from tests.configs import write_settings
from tests.e2e.process import Daemon
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm
PAST = LEAST_ENDS - 1
PRIVATE = "nobodysbusiness"


lab = module_lab(accounting=True)


@pytest.fixture
def config(lab: SlurmLab, tmp_path: Path) -> Path:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    path = tmp_path / "rltuned.toml"
    rule, shadow = {"name": "delay"}, {"stage": "shadow"}
    return write_settings(path, lab.conf, state, policy=rule, ladder=shadow)


def run_times(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(daemon.get("/status.json"))["run_times"] or {}
    return found


def submit(lab: SlurmLab, number: int, seconds: int, *more: str) -> int:
    name = f"--job-name={PRIVATE}_{number:03}"
    return lab.sbatch(name, "-n1", "--mem=100", "--time=10", *more, wrap=f"sleep {seconds}")


def test_what_was_learned_survives_a_restart(lab: SlurmLab, config: Path, tmp_path: Path) -> None:
    past = [submit(lab, n, 2) for n in range(PAST)]
    lab.wait_for(lambda: all(lab.state(n) in {"CD", ""} for n in past), "they end")
    time.sleep(3)  # slurmdbd learns of jobs every now and then
    state = tmp_path / "state"
    with Daemon(tmp_path, "--config", str(config)) as daemon:
        daemon.wait_for_log("run_times")
        daemon.wait_for(lambda: run_times(daemon).get("ends", 0) >= PAST, "what sacct knows")
        assert run_times(daemon)["source"] == "sacct"
        submit(lab, 7, 6)
        waits = submit(lab, 8, 600, "--begin=now+1hour")
        daemon.wait_for(lambda: run_times(daemon)["ends"] == PAST + 1, "one ends while it looks")
        before = run_times(daemon)
        assert before["kinds"] > 0
        assert before["error"] > 0
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    kept = sure(read_learned(state))
    last = list(recorded(state / FILE_NAME))[-1].context
    known = sure(last.run_times.get(JobId(waits)))
    assert 0 < known.low_s <= known.high_s <= 600
    assert known.ends == PAST + 1

    with Daemon(tmp_path, "--config", str(config)) as daemon:
        daemon.wait_for_log("run_times")
        daemon.wait_for(lambda: run_times(daemon).get("source") == "file", "the file")
        assert run_times(daemon) == before | {"source": "file"}
        log = daemon.log()
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    again = sure(read_learned(state))
    assert again[0].salt == kept[0].salt
    assert PRIVATE not in log
    assert all(PRIVATE.encode() not in path.read_bytes() for path in state.iterdir())

    (state / LEARNED_FILE).write_bytes(b"damaged")
    with Daemon(tmp_path, "--config", str(config)) as daemon:
        daemon.wait_for(lambda: run_times(daemon).get("source") == "sacct", "sacct again")
        assert run_times(daemon)["ends"] == PAST + 1
        assert "is damaged" in run_times(daemon)["trouble"]
