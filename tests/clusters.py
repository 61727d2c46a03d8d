"""Real clusters of tests: started where Slurm's daemons are, filled, and emptied between tests."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from tests import accounting
from tests.accounting import OPERATOR, OWNER, PLAIN
from tests.lab import SlurmLab, missing
from tests.needs import skip_or_fail

OPERATORS = f"add user {OPERATOR} account=root adminlevel=operator"
LAB = ("add account lab", f"add user {PLAIN} account=lab", f"add user {OWNER} account=lab")


def slurm_or_skip(*, with_accounting: bool = False) -> None:
    """Skip where Slurm's daemons or root are missing; in CI that is a failure."""
    if why := missing() or (accounting.missing() if with_accounting else ""):
        skip_or_fail(why)


@contextmanager
def cluster(*accounts: str, **given: Any) -> Iterator[SlurmLab]:
    """A cluster of a test's own. accounts: what sacctmgr is told; given: of SlurmLab."""
    slurm_or_skip(with_accounting=bool(given.get("accounting")))
    with SlurmLab(**given) as started:
        for words in accounts:
            started.run("sacctmgr", "-i", *words.split())
        yield started


def module_lab(*accounts: str, **given: Any) -> Any:
    """A fixture: a cluster of a module's own."""

    @pytest.fixture(scope="module")
    def lab() -> Iterator[SlurmLab]:
        with cluster(*accounts, **given) as started:
            yield started

    return lab


def world_of(lab: SlurmLab, **given: Any) -> SlurmBackend:
    """Its Slurm, as rltuned sees it. given: of SlurmBackend."""
    return SlurmBackend(SlurmCli(conf=lab.conf), time.time, **given)


def emptied(lab: SlurmLab) -> Iterator[SlurmLab]:
    """What a fixture yields: the cluster with an empty queue, and emptied again after the test."""
    lab.clear()
    yield lab
    lab.clear()
