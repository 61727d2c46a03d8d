"""A real slurmctld that counts as busy is asked once a cycle and left alone; then it goes on."""

import signal
from pathlib import Path

import pytest

from tests.e2e.process import Daemon
from tests.e2e.queue import priority, queue, waiting
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm


def test_busy_then_not(slurm: SlurmLab, config: Path, tmp_path: Path) -> None:
    long, _, short = waiting(slurm)
    slurm.run("scontrol", "update", f"JobId={short}", "Name=secretname")
    own = config.read_text()
    config.write_text(own + "[load]\nmax_server_threads = 1\n")  # the one that answers sdiag
    before = queue(slurm).keys()
    with Daemon(tmp_path, "--live", "--config", str(config)) as daemon:
        daemon.wait_for_log("reason=busy", times=2)
        assert "server_threads is" in daemon.log()
        assert daemon.metric('rltuned_cycles_skipped_total{reason="busy"}') >= 2
        assert daemon.metric("rltuned_interval_stretch_ratio") >= 2
        assert daemon.metric('rltuned_slurm_command_duration_seconds_count{command="squeue"}') == 0
        assert priority(slurm, long) >= priority(slurm, short)
        config.write_text(own + "[load]\n")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for_log("applied=")
        daemon.wait_for(
            lambda: daemon.metric("rltuned_interval_stretch_ratio") == 1, "it is calm again"
        )
        page = daemon.get("/metrics")
        assert not any(
            word in page for word in ("secretname", f'job="{short}"', f'job_id="{short}"', "root")
        )
        daemon.signal(signal.SIGTERM)
        assert daemon.ends() == 0
    assert priority(slurm, short) > priority(slurm, long)
    assert "secretname" not in daemon.log()
    assert queue(slurm).keys() == before
