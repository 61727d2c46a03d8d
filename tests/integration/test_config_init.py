"""`rltuned config init` and `check` on a real Slurm: the file fits it, and can be used at once."""

import shutil
import tomllib
from pathlib import Path

import pytest

from tests.lab import OTHER, SEARCH, SlurmLab
from tests.programs import rltuned

# the lab's own release of the programs, where another one than this machine's is tried
BIN = OTHER or str(Path(shutil.which("scontrol", path=SEARCH) or "/usr/bin/scontrol").parent)

pytestmark = pytest.mark.slurm


def test_a_real_cluster_gets_a_file_that_fits(slurm: SlurmLab, tmp_path: Path) -> None:
    path = tmp_path / "rltuned.toml"
    where = ("--slurm-conf", str(slurm.conf), "--bin-dir", BIN)
    done = rltuned("config", "init", str(path), *where)
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    tree = tomllib.loads(text)
    assert tree["slurm"] == {"conf": str(slurm.conf), "bin_dir": BIN}
    assert tree["limits"] == {"write_mode": "auto"}
    assert tree["scope"] == {}, "no partition is taken for an SLA partition"
    assert "# Cluster rltlab, Slurm " in text
    assert rltuned("config", "check", str(path)).returncode == 0
    assert rltuned("config", "init", str(path), *where).returncode == 2
    # what comes out is used as it is; a rule, because torch takes its time
    ran = rltuned("plan", "--policy", "saf", "--config", str(path))
    assert ran.returncode == 0, ran.stderr
