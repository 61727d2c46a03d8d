"""What `explain` and `plan` show of a forecast: the daemon's, or one that is played on the spot."""

from dataclasses import replace
from typing import Any

import pytest

from rltuned.cli import plan
from rltuned.cli.flags import BackendChoice
from rltuned.cli.plan import Look
from rltuned.core.decide import Knobs, decide
from rltuned.core.starts import Expected, Hindsight, Start
from rltuned.daemon.forecasting import FRESH_S
from rltuned.daemon.run_times import LimitUseLearner
from rltuned.daemon.what_if import OtherRequest
from rltuned.domain.units import JobId
from rltuned.settings import Loaded, Settings
from tests.builders import NOW, job, snapshot, sure
from tests.fakes import ConstantOrder

KEPT = Expected(NOW, {JobId(1): Start(JobId(1), 1, 5.0, 6.0, 7.0)})


def look(*, later_s: float = 0.0) -> Look:
    seen = snapshot(job(1), job(2), taken_at=NOW + later_s)
    decision = decide(seen, ConstantOrder(), Knobs())
    nothing: Any = None
    return Look(
        decision, nothing, Loaded(Settings()), BackendChoice.SLURM, nothing, LimitUseLearner(),
        as_is=True,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "read_file", lambda _: ("test", KEPT, Hindsight()))


def test_the_daemons_last_forecast_is_shown_while_it_is_fresh_and_knows_the_job() -> None:
    assert look().expected() is KEPT
    assert look().expected(JobId(1)) is KEPT
    assert look(later_s=FRESH_S).expected() is KEPT
    played = look(later_s=FRESH_S + 1).expected()
    assert (played.at, played.line_jobs) == (NOW + FRESH_S + 1, 2)


def test_a_job_that_came_after_it_is_played_on_the_spot() -> None:
    found = sure(look().expected(JobId(2)).start_of(JobId(2)))
    assert (found.place, found.median_s) == (2, 0.0)


def test_without_a_learner_the_file_is_not_this_users() -> None:
    assert replace(look(), learner=None).expected().line_jobs == 2


def test_another_request_is_played_on_the_spot_too() -> None:
    waits = look().decision.snapshot.pending[0]
    found = look().what_if(waits, OtherRequest(gpus=400))["what_if"]
    assert (found["gpus"], found["expected_start"], found["line_place"]) == (400, None, 1)
