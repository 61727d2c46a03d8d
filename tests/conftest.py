"""Fixtures that several kinds of tests share: above all, the real Slurm of tests/lab.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import accounting
from tests.accounting import OPERATOR, OWNER, PLAIN
from tests.lab import SlurmLab, missing
from tests.needs import skip_or_fail

# nothing here asserts times: a machine with other work to do is no failure
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


COMPILING = (
    "backtest", "sim", "train", "tune",
    "unit/cli/test_backtest.py", "unit/test_experiment_slurm.py",
)  # fmt: skip
COMPILING_S = 900
"""The first call of compiled code compiles it: minutes on a busy machine, then never again."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if any(item.path.is_relative_to(here / name) for name in COMPILING):
            item.add_marker(pytest.mark.timeout(COMPILING_S))


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
