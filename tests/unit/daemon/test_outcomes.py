"""Whether the last order agrees with what Slurm has started since."""

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.daemon.canary.outcomes import Agreement, look_back
from rltuned.domain.runs import JobRun
from rltuned.domain.units import UnixTime
from tests.builders import NOW, job, running, snapshot
from tests.fakes import ConstantOrder

T0 = NOW - 600.0


def begun(number: int) -> JobRun:
    return JobRun(running(number, started_at=NOW + 5, submitted_at=UnixTime(T0)))


@pytest.mark.parametrize(
    ("numbers", "order", "started", "found"),
    [
        # ours: 3 first, 1 fourth; Slurm's: 1 first, 3 third; 2, 4 and 5 still wait
        (5, (3, 4, 5, 1, 2), (1, 3), Agreement(2, 1, own=4 / 6, slurms=5 / 6)),
        (5, (3, 4, 5, 1, 2), (), None),
        (1, (), (1,), Agreement(1, 1, None, None)),
    ],
)
def test_a_shadow_compares_its_order_with_what_slurm_started(
    numbers: int, order: tuple[int, ...], started: tuple[int, ...], found: Agreement | None
) -> None:
    jobs = [job(i, priority=1_000 - i, submitted_at=T0) for i in range(1, numbers + 1)]
    decision = decide(snapshot(*jobs), ConstantOrder(order), Knobs())
    assert look_back(decision, map(begun, started)) == found
