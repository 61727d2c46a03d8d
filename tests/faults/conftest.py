"""A cluster with accounting for all fault tests, and one case per test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import cluster, emptied
from tests.faults.case import Case
from tests.lab import SlurmLab

SLOW = (
    "PriorityWeightAge=1825",
    "PriorityMaxAge=365-0",
    "PriorityDecayHalfLife=0",
    "PriorityUsageResetPeriod=YEARLY",
)
"""Five points of age a day: restored means exactly as before, and days of delay count."""


@pytest.fixture(scope="package")
def faulty_lab() -> Iterator[SlurmLab]:
    with cluster(extra=SLOW, accounting=True) as started:
        yield started


@pytest.fixture
def case(faulty_lab: SlurmLab, tmp_path: Path) -> Iterator[Case]:
    for lab in emptied(faulty_lab):
        with Case(lab, tmp_path) as ready:
            yield ready
