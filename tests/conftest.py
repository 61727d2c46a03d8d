"""Fixtures that several kinds of tests share: above all, the real Slurm of tests/lab.py."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import accounting
from tests.clusters import LAB, OPERATORS, cluster, emptied
from tests.examples import load_profile
from tests.lab import SlurmLab

load_profile()


LONGEST = (
    "faults/test_memory.py", "integration/test_remedies.py", "e2e/test_tune_slurm.py",
    "faults/test_inputs.py", "faults/test_killed.py", "faults/test_slurm.py",
    "integration/test_traps.py", "e2e/test_daemon_slurm.py", "e2e/test_undo_slurm.py",
    "faults/test_restore.py",
    "tune/test_night.py", "train/test_imitation.py", "tune/test_distributed.py",
    "sim/test_floods.py", "train/test_evolution.py", "sim/test_parity.py",
)  # fmt: skip
"""Files that take minutes begin first: else a process is left with one at the end."""
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
"""A journal waits for the disk with every write; unit/daemon/test_canary.py alone 57,000 times."""


def pytest_configure(config: pytest.Config) -> None:
    """Temporary files in memory, and a folder for all processes of the run: those of xdist find
    both in their environment. The width of a terminal, which xdist puts there, is taken out: what
    commands print follows it.
    """
    os.environ.pop("COLUMNS", None)
    if "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)
    if accounting.SHARED in os.environ:
        return
    shared = tempfile.mkdtemp(prefix="rltuned-tests-")
    Path(shared).chmod(0o711)  # the user mysql goes through it
    os.environ[accounting.SHARED] = shared

    def remove() -> None:
        del os.environ[accounting.SHARED]
        shutil.rmtree(shared)

    config.add_cleanup(remove)


def has_room(memory: Path) -> bool:
    """Whether the tests' files, programs among them, may lie there."""
    if not os.access(memory, os.W_OK):
        return False
    found = os.statvfs(memory)
    return not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= ROOM


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    notes = Path(os.environ[accounting.SHARED]) / accounting.NOTES
    if notes.exists():
        terminalreporter.section("tests/accounting.py")
        terminalreporter.write(notes.read_text())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[SlurmLab]:
    """One real cluster for the whole run."""
    with cluster() as started:
        yield started


@pytest.fixture
def slurm(slurm_session: SlurmLab) -> Iterator[SlurmLab]:
    """That cluster with an empty queue."""
    yield from emptied(slurm_session)


@pytest.fixture(scope="session")
def accounts_session() -> Iterator[SlurmLab]:
    """One real cluster with slurmdbd: an operator, a plain user and the owner of the jobs."""
    with cluster(*LAB, OPERATORS, accounting=True, extra=("PrivateData=jobs",)) as started:
        yield started


@pytest.fixture
def accounts(accounts_session: SlurmLab) -> Iterator[SlurmLab]:
    """That cluster with an empty queue."""
    yield from emptied(accounts_session)
