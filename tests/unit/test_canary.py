"""Who is treated: evenly drawn, always the same, arrays whole."""

import pytest

from rltuned.core.canary import Canary
from rltuned.domain.jobs import ArrayInfo
from rltuned.domain.units import JobId
from tests.builders import NOW, job

JOBS = [job(i, submitted_at=NOW - 7 * i) for i in range(1, 4_001)]


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 1.0])
def test_as_many_are_treated_as_was_said(fraction: float) -> None:
    share = sum(Canary(fraction).treats(j) for j in JOBS) / len(JOBS)
    assert share == pytest.approx(fraction, abs=0.03)


def test_a_larger_fraction_keeps_everybody_who_was_treated() -> None:
    small, large = Canary(0.2), Canary(0.4)
    assert all(large.treats(j) for j in JOBS if small.treats(j))


def test_another_salt_draws_anew() -> None:
    one, other = Canary(0.5, "a"), Canary(0.5, "b")
    both = sum(one.treats(j) and other.treats(j) for j in JOBS) / len(JOBS)
    assert both == pytest.approx(0.25, abs=0.03)


def test_all_tasks_of_an_array_are_on_one_side() -> None:
    tasks = [job(900 + i, array=ArrayInfo(JobId(900), 1)) for i in range(50)]
    assert len({Canary(0.5).draw(t) for t in tasks}) == 1
    assert Canary(0.5).draw(tasks[0]) == Canary(0.5).draw(job(900))


def test_an_id_that_is_used_again_is_drawn_again() -> None:
    again = [job(1, submitted_at=NOW + i) for i in range(100)]
    assert len({Canary(0.5).draw(j) for j in again}) == 100


def test_a_fraction_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="fraction"):
        Canary(1.1)
