"""What the daemon answers about single jobs, and to whom."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.cli.explain import in_words
from rltuned.core.decide import Knobs, decide
from rltuned.core.line import present_line
from rltuned.core.starts import expectation, expected_of
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import HealthState
from rltuned.daemon.web.server import NO_DECISION, NOT_SHOWN, Answers, Asker
from rltuned.daemon.what_if import Document, OtherRequest, WhatIf
from rltuned.domain.plan import SITE_FACTOR, Plan
from rltuned.domain.units import JobId, UnixTime
from rltuned.journal.journal import Journal
from tests.builders import NOW, decided, job, running, snapshot
from tests.fakes import ConstantOrder

ROOT = Asker("root", is_admin=True, sees_all=True)
ANN, BOB, NO_ONE, EVERYONE = Asker("ann"), Asker("bob"), Asker(), Asker(sees_all=True)


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    made = Answers(tmp_path / "journal.sqlite")
    seen = snapshot(
        job(1, user="ann"), job(2, user="bob"), runs=[running(9, user="ann"), running(8)]
    )
    made.cycle(decided(decide(seen, ConstantOrder(), Knobs())))
    return made


def test_a_job_is_shown_to_its_user_and_to_the_administrator(answers: Answers) -> None:
    for asker in (ANN, ROOT, EVERYONE):
        assert answers.explain("1", asker)["job"]["job_id"] == 1
    assert answers.explain("9", ANN)["job"]["state"] == "RUNNING"
    assert "journal.sqlite" in answers.explain("1", ANN)["job"]["history_unknown"]
    assert "no pending or running job 77" in answers.explain("77", ROOT)["why"]


@pytest.mark.parametrize("name", ["1", "2", "8", "77", ""])
def test_no_one_else_learns_even_whether_there_is_such_a_job(answers: Answers, name: str) -> None:
    assert answers.explain(name, NO_ONE)["why"] == NOT_SHOWN
    if name != "1":
        assert answers.explain(name, ANN)["why"] == NOT_SHOWN


def test_a_plan_has_the_jobs_that_one_may_see(answers: Answers, tmp_path: Path) -> None:
    def shown(asker: Asker, of: Answers = answers) -> list[tuple[int, str]]:
        return [(one["job_id"], one["user"]) for one in of.plan(asker)["plan"]["jobs"]]

    assert shown(ROOT) == [(1, "ann"), (2, "bob")]
    assert shown(ANN) == [(1, "ann")]
    assert shown(EVERYONE) == [(1, ""), (2, "")]
    assert answers.plan(NO_ONE)["why"] == NOT_SHOWN
    assert Answers(tmp_path / "none").plan(ROOT)["why"] == NO_DECISION
    assert Answers(tmp_path / "none").explain("1", ROOT)["why"] == NO_DECISION


class Played(WhatIf):
    """Plays nothing, and says who asked for what."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, OtherRequest, str, bool]] = []

    def ask(self, job: JobId, other: OtherRequest, user: str, *, is_admin: bool) -> Document:
        self.asked.append((job, other, user, is_admin))
        return {"what_if": {"line_place": 1}}


@pytest.mark.parametrize("name", ["1", "1;test", "9", "9;test"])
def test_a_job_with_its_cluster_is_its_users(tmp_path: Path, name: str) -> None:
    """In review a running one was hidden from its user."""
    made = Answers(tmp_path / "journal.sqlite")
    seen = snapshot(job(1, user="ann"), runs=[running(9, user="ann")])
    made.cycle(decided(decide(seen, ConstantOrder(), Knobs())))
    assert made.explain(name, ANN)["job"]["job_id"] == int(name[0])
    assert made.explain(name, BOB)["why"] == NOT_SHOWN


def test_another_request_is_played_for_those_who_see_the_job(tmp_path: Path) -> None:
    played, other = Played(), OtherRequest(600.0)
    made = Answers(tmp_path / "journal.sqlite", what_if=played)
    seen = snapshot(job(1, user="ann"), job(2, user="bob"), runs=[running(9, user="ann")])
    made.cycle(decided(decide(seen, ConstantOrder(), Knobs())))
    for name, asker in (("2", ANN), ("1", NO_ONE), ("77", ROOT), ("9", ANN)):
        assert "what_if" not in made.explain(name, asker, other).get("job", {})
    assert "what_if" not in made.explain("1", ANN)["job"]
    assert played.asked == []
    assert made.explain("1", ANN, other)["job"]["what_if"] == {"line_place": 1}
    assert made.explain("2", ROOT, other)["job"]["what_if"] == {"line_place": 1}
    assert played.asked == [(1, other, "ann", False), (2, other, "root", True)]


def test_a_job_that_came_after_the_last_forecast_is_played_when_it_is_asked_for(
    tmp_path: Path,
) -> None:
    seen = snapshot(job(1, user="ann"), job(2, user="ann"), job(3, user="bob"))
    line = present_line(snapshot(job(2, user="ann")))

    class Plays(Played):
        def ask(self, job: JobId, other: OtherRequest, user: str, *, is_admin: bool) -> Document:
            super().ask(job, other, user, is_admin=is_admin)
            now = expectation(expected_of(present_line(seen), {}, draws=1), job, NOW)
            return {"what_if": None if job == 3 else {"limit_s": None, **now}}

    plays = Plays()
    made = Answers(
        tmp_path / "journal.sqlite",
        expected=lambda: expected_of(line, {}, draws=1),
        now=lambda: NOW,
        what_if=plays,
    )
    made.cycle(decided(decide(seen, ConstantOrder(), Knobs())))
    assert made.explain("1", NO_ONE)["why"] == NOT_SHOWN
    assert made.explain("2", ANN)["job"]["line_jobs"] == 1
    assert plays.asked == []
    found = made.explain("1", ANN)["job"]
    assert (found["line_jobs"], found["expected_start"]["median_s"]) == (3, NOW)
    assert "limit_s" not in found
    assert plays.asked == [(1, OtherRequest(), "ann", False)]
    # the forecast of what is would take the user's turn
    assert made.explain("1", ANN, OtherRequest(600.0))["job"]["what_if"]["line_jobs"] == 3
    assert plays.asked[1:] == [(1, OtherRequest(600.0), "ann", False)]
    told = made.explain("3", ROOT)["job"]
    assert (told["expected_start"], told["line_jobs"]) == (None, 1)
    assert "it came after the last forecast" in told["expected_why"]


def test_a_daemon_that_only_observes_answers_what_slurm_shows(tmp_path: Path) -> None:
    first, second = job(1, user="ann", priority=5), job(2, user="bob", priority=9)
    seen = snapshot(first, second)
    expected = expected_of(present_line(seen), {}, draws=1)
    made = Answers(tmp_path / "journal.sqlite", expected=lambda: expected, now=lambda: NOW + 180.0)
    made.cycle(CycleReport(1, NOW, HealthState.OBSERVE, 60.0, {}, seen))
    found = made.explain("1", ANN)["job"]
    assert (found["line_place"], found["line_jobs"]) == (2, 2)
    assert found["expected_start"]["median_s"] == NOW
    assert (found["current_priority"], found["planned_priority"]) == (5, None)
    assert made.explain("2", ANN)["why"] == NOT_SHOWN
    assert made.plan(ROOT)["why"] == NO_DECISION
    text = in_words(found)
    assert "expected to start now (by time limits); 2nd of 2." in text[0]
    assert "The forecast is 3m old." in text
    assert "The daemon only observes: it orders nothing." in text


def test_a_job_with_an_id_that_is_used_again_shows_nothing_of_the_job_before(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o700)
    before, now = job(1, user="bob", submitted_at=NOW - 900), job(1, user="ann", submitted_at=NOW)
    runs = replace(running(1, user="ann"), submitted_at=UnixTime(NOW))
    with closing(Journal(tmp_path)) as journal:
        plan = Plan((SITE_FACTOR.to(replace(before, site_factor=0), -500),))
        journal.intend(plan, cluster=snapshot().cluster, cycle=1, at=NOW - 600)
    made = Answers(tmp_path / "journal.sqlite")
    for seen in (snapshot(now), snapshot(runs=[runs])):
        made.cycle(decided(decide(seen, ConstantOrder(), Knobs())))
        assert made.explain("1", ANN)["job"]["history"] == []
    made.cycle(decided(decide(snapshot(before), ConstantOrder(), Knobs())))
    assert [row["new"] for row in made.explain("1", Asker("bob"))["job"]["history"]] == [-500]
