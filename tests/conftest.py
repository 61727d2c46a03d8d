"""Fixtures that several kinds of tests share: above all, the real Slurm of tests/lab.py."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import accounting
from tests.accounting import OPERATOR, OWNER, PLAIN
from tests.examples import load_profile
from tests.lab import SlurmLab, missing
from tests.needs import skip_or_fail

load_profile()


LONGEST = (
    "faults/test_memory.py", "integration/test_remedies.py", "e2e/test_tune_slurm.py",
    "faults/test_inputs.py", "faults/test_killed.py", "faults/test_slurm.py",
    "integration/test_traps.py", "e2e/test_daemon_slurm.py", "e2e/test_undo_slurm.py",
    "faults/test_restore.py",
    "tune/test_distributed.py", "tune/test_night.py", "sim/test_floods.py", "sim/test_cycles.py",
)  # fmt: skip
"""Files that take minutes begin first: else a process is left with one at the end."""
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
"""A journal waits for the disk with every write; unit/daemon/test_monitor.py alone 57,000 times."""


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


def slurm_or_skip() -> None:
    """Skip where Slurm's daemons or root are missing; in CI that is a failure."""
    why = missing()
    if why:
        skip_or_fail(why)


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[SlurmLab]:
    """One real cluster for the whole run."""
    slurm_or_skip()
    with SlurmLab() as started:
        yield started


@pytest.fixture
def slurm(slurm_session: SlurmLab) -> Iterator[SlurmLab]:
    """The session's cluster with an empty queue, and emptied again after the test."""
    slurm_session.clear()
    yield slurm_session
    slurm_session.clear()


@pytest.fixture(scope="session")
def accounts_session() -> Iterator[SlurmLab]:
    """One real cluster with slurmdbd: an operator, a plain user and the owner of the jobs."""
    slurm_or_skip()
    why = accounting.missing()
    if why:
        skip_or_fail(why)
    with SlurmLab(accounting=True, extra=("PrivateData=jobs",)) as started:
        started.run("sacctmgr", "-i", "add", "account", "lab")
        for user in (PLAIN, OWNER):
            started.run("sacctmgr", "-i", "add", "user", user, "account=lab")
        started.run(
            "sacctmgr", "-i", "add", "user", OPERATOR, "account=root", "adminlevel=operator"
        )
        yield started


@pytest.fixture
def accounts(accounts_session: SlurmLab) -> Iterator[SlurmLab]:
    """That cluster with an empty queue, and emptied again after the test."""
    accounts_session.clear()
    yield accounts_session
    accounts_session.clear()
