"""The test cluster itself: it starts, runs a job, and leaves nothing behind."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.lab import SlurmLab
from tests.programs import ran

pytestmark = pytest.mark.slurm


def _all_environments() -> str:
    texts = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                texts.append((entry / "environ").read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return "\n".join(texts)


def test_lab_command_line(slurm: SlurmLab) -> None:
    assert slurm.controller_up()
    with tempfile.TemporaryDirectory(prefix="rltlab-") as folder:

        def lab(verb: str) -> str:
            return ran(sys.executable, "-m", "tests.lab", verb, "--dir", folder).stdout

        # the shell of somebody who did as `env` says
        names_it = os.environ | {"SLURM_CONF": f"{folder}/slurm.conf"}
        shell = subprocess.Popen(["sleep", "120"], env=names_it)
        try:
            assert "p1, p2, k1, k2, m1" in lab("up")
            assert f"SLURM_CONF={folder}/slurm.conf" in lab("env")
        finally:
            assert "stopped" in lab("down")
            lives = shell.poll() is None
            shell.kill()
            shell.wait(timeout=10)
        assert lives
        assert folder not in _all_environments()
