"""The settings that the tests beside this file start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.queue import rltuned
from tests.lab import SlurmLab


@pytest.fixture
def config(slurm: SlurmLab, tmp_path: Path) -> Iterator[Path]:
    """Settings for the lab: sjf, every second, SLA partition, no minimum age."""
    path = tmp_path / "rltuned.toml"
    path.write_text(
        f"""
[daemon]
interval_s = 1
max_backoff_s = 2
state_dir = "{tmp_path}"
pause_file = "{tmp_path / "PAUSE"}"
[policy]
name = "sjf"
[order]
stretch = 0.3
[scope]
sla_partitions = ["sla"]
min_age_s = 0
[limits]
hysteresis = 0.0
[slurm]
conf = "{slurm.conf}"
timeout_s = 5
[http]
port = 0
"""
    )
    path.chmod(0o600)
    yield path
    rltuned("restore", "--all", "--config", str(path))
