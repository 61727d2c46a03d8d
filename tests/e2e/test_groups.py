"""On a real Slurm a group of dependent jobs outlives its parents and the daemon."""

import json
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import module_lab
from tests.e2e.process import Daemon
from tests.lab import SlurmLab
from tests.programs import rltuned

pytestmark = pytest.mark.slurm

CONFIG = """
[daemon]
interval_s = 1
state_dir = "{folder}/state"
pause_file = "{folder}/PAUSE"
[ladder]
stage = "observe"
[slurm]
conf = "{conf}"
[http]
port = 0
jobs = true
"""


lab = module_lab(accounting=True)


def settings(lab: SlurmLab, folder: Path) -> Path:
    path = folder / "rltuned.toml"
    (folder / "state").mkdir(mode=0o700, exist_ok=True)
    path.write_text(CONFIG.format(folder=folder, conf=lab.conf))
    return path


def ask(config: Path, *words: str) -> str:
    return rltuned(*words, config=config, code=0).stdout


def group(config: Path) -> dict[str, Any]:
    (found,) = json.loads(ask(config, "groups", "--json"))["groups"]
    return dict(found)


def shown(daemon: Daemon) -> dict[str, Any]:
    found = json.loads(daemon.get("/status.json"))["groups"]
    return dict(found or {"open": 0})


def edges(found: dict[str, Any]) -> set[tuple[int, int, str]]:
    return {(e["parent"], e["child"], e["kind"]) for e in found["edges"]}


def submit(lab: SlurmLab, seconds: int, *after: str, until: Path | None = None) -> int:
    """until: it ends when this file is there."""
    held = [f"--dependency={','.join(after)}"] if after else []
    waits = f"while [ ! -e {until} ]; do sleep 0.2; done; " if until else ""
    return lab.sbatch("-n1", "--mem=100", "--time=20", *held, wrap=f"{waits}sleep {seconds}")


def test_a_chain_and_a_fan(lab: SlurmLab, tmp_path: Path) -> None:
    config = settings(lab, tmp_path)
    chain = [submit(lab, 0, until=tmp_path / "go")]
    for seconds in (1, 600, 600):
        chain.append(submit(lab, seconds, f"afterok:{chain[-1]}"))
    fan = [submit(lab, 600, f"afterok:{chain[1]}") for _ in range(4)]
    last = submit(lab, 1, f"afterok:{chain[3]}", *(f"afterany:{n}" for n in fan[1:]))
    expected = {(p, c, "afterok") for p, c in pairwise(chain)}
    expected |= {(chain[1], n, "afterok") for n in fan} | {(chain[3], last, "afterok")}
    expected |= {(n, last, "afterany") for n in fan[1:]}
    assert len(expected) == 11

    with Daemon(tmp_path, "--config", str(config)) as daemon:
        daemon.wait_for(lambda: shown(daemon)["open"] == 1, "a group")
        assert edges(group(config)) == expected
        (tmp_path / "go").touch()
        daemon.wait_for(lambda: lab.state(chain[2]) == "R", "the first parents have ended")
        daemon.wait_for(lambda: shown(daemon)["jobs"]["running"] == 5, "a look at them")
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    with Daemon(tmp_path, "--config", str(config)) as daemon:
        daemon.wait_for(lambda: shown(daemon)["open"] == 1, "the group again")
        found = group(config)
        page = daemon.get("/")
    states = {one["job_id"]: one["state"] for one in found["jobs"]}
    assert edges(found) == expected
    assert states == {
        **dict.fromkeys(chain[:2], "ended"),
        **dict.fromkeys((chain[2], *fan), "running"),
        **dict.fromkeys((chain[3], last), "waiting"),
    }
    assert (found["state"], found["depth"], found["understood"]) == ("running", 5, True)
    assert "Groups of dependent jobs" in page

    words = ask(config, "explain", str(chain[3]))
    assert (
        f"step 4 of 5 of a group of 9 ({chain[0]}); waits for {chain[2]} (running, about" in words
    )
    assert "on the critical path" in words
    assert str(fan[1]) in ask(config, "explain", str(last))
