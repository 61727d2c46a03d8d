"""One booted machine with a Slurm for a whole module; the module's tests are a story, in order."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import needs
from tests.booted import cluster
from tests.booted.machine import ROOTS, Machine

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def package() -> Path:
    """The .deb of this tree, built again."""
    subprocess.run(["sh", "scripts/dist.sh", "deb"], cwd=ROOT, check=True, timeout=2700)
    return max(ROOT.glob("dist/rltuned_*.deb"), key=lambda file: file.stat().st_mtime)


@pytest.fixture(scope="session")
def training_package() -> Path:
    """The .deb with what the nightly refit needs besides, built again."""
    subprocess.run(["sh", "scripts/dist.sh", "deb-train"], cwd=ROOT, check=True, timeout=2700)
    return max(ROOT.glob("dist/rltuned-train_*.deb"), key=lambda file: file.stat().st_mtime)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """With the cluster of most tests."""
    with booted() as machine:
        cluster.set_up(machine)
        yield machine


@contextmanager
def booted() -> Iterator[Machine]:
    """A machine without a cluster."""
    if os.geteuid() != 0:
        needs.skip_or_fail("boots a machine: needs root")
    for program in ("debootstrap", "systemd-nspawn", "nsenter"):
        needs.program(program)
    ROOTS.mkdir(parents=True, exist_ok=True)
    # not the temporary folder of the computer: an overlay cannot lie on another overlay
    with tempfile.TemporaryDirectory(dir=ROOTS) as folder, Machine(Path(folder)) as machine:
        yield machine
