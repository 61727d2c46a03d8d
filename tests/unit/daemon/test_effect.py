"""Treated against control: the figures by hand, the interval by lot, and silence on too little."""

import numpy as np
import pytest

from rltuned.daemon.effect import FEWEST, Waits, estimate
from rltuned.daemon.outcomes import Arm
from rltuned.domain.units import JobId
from tests.builders import NOW, job, running, snapshot

SIDES = {JobId(1): Arm.TREATED, JobId(2): Arm.CONTROL, JobId(3): Arm.OTHER}


def test_every_job_that_came_counts_also_one_that_waits() -> None:
    waits = Waits()
    waits.look(snapshot(job(9, submitted_at=NOW - 60)), {JobId(9): Arm.TREATED})
    jobs = [job(n, submitted_at=NOW + 10) for n in (1, 2, 3)]
    waits.look(snapshot(*jobs, taken_at=NOW + 60), SIDES)
    started = running(1, started_at=NOW + 70, submitted_at=NOW + 10)
    waits.look(snapshot(*jobs[1:], runs=[started], taken_at=NOW + 120), SIDES)
    found = waits.effect()
    # 9 came before we looked, 3 is not ours
    assert (found.treated, found.treated_s) == (1, 60.0)
    assert (found.control, found.control_s) == (1, 110.0)
    assert found.difference_s is None
    assert f"{FEWEST} of each are needed" in found.verdict


def test_one_that_is_gone_unseen_or_was_held_is_no_evidence() -> None:
    waits = Waits()
    waits.look(snapshot(taken_at=NOW), {})
    both = [job(n, submitted_at=NOW + 1) for n in (1, 2)]
    waits.look(snapshot(*both, taken_at=NOW + 60), SIDES)
    assert (waits.effect().treated, waits.effect().control) == (1, 1)
    held = job(2, submitted_at=NOW + 1, priority=0, held_by="user")
    waits.look(snapshot(held, taken_at=NOW + 120), SIDES)
    waits.look(snapshot(both[1], taken_at=NOW + 180), SIDES)
    assert (waits.effect().treated, waits.effect().control) == (0, 0)


@pytest.mark.parametrize(
    ("factor", "says"), [(0.3, "it helps"), (1.0, "not told apart"), (3.0, "it harms")]
)
def test_the_verdict_follows_the_interval(factor: float, says: str) -> None:
    rng = np.random.default_rng(1)
    control = rng.lognormal(6.0, 1.0, 400)
    treated = rng.lognormal(6.0, 1.0, 400) * factor
    assert says in estimate(treated.tolist(), control.tolist()).verdict


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """The same waits whoever is drawn: the true effect is 0, whatever their distribution."""
    rng = np.random.default_rng(2)
    missed = 0
    for _ in range(400):
        level = np.cumsum(rng.normal(0.0, 0.2, 300))  # bursts: neighbours wait alike
        waits = rng.lognormal(5.0 + level / 3, 0.7)
        drawn = rng.random(300) < 0.5
        found = estimate(waits[drawn].tolist(), waits[~drawn].tolist())
        assert found.low_s is not None
        assert found.high_s is not None
        missed += not found.low_s <= 0 <= found.high_s
    assert missed / 400 < 0.08
