"""The settings that the tests beside this file start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.configs import write_settings
from tests.lab import SlurmLab
from tests.programs import rltuned


@pytest.fixture
def config(slurm: SlurmLab, tmp_path: Path) -> Iterator[Path]:
    """Settings for the lab: sjf, every second, SLA partition, no minimum age."""
    path = write_settings(
        tmp_path / "rltuned.toml",
        slurm.conf,
        scope={"sla_partitions": ["sla"]},
        slurm={"timeout_s": 5},
    )
    yield path
    rltuned("restore", "--all", config=path)
