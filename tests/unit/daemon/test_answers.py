"""What the daemon answers about single jobs, and to whom."""

import os
import pwd
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.daemon.web.answers import NO_DECISION, NOT_SHOWN, Answers
from rltuned.daemon.web.askers import Asker, asker_of
from tests.builders import decided, job, running, snapshot
from tests.fakes import ConstantOrder

ROOT = Asker("root", is_admin=True, sees_all=True)
ANN, NO_ONE, EVERYONE = Asker("ann"), Asker(), Asker(sees_all=True)


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


@pytest.fixture(params=["127.0.0.1", "::1"])
def connections(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        server = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip(f"no {request.param} here")
    with closing(server), socket.create_connection(server.getsockname()[:2]) as client:
        accepted, _ = server.accept()
        with closing(accepted):
            yield client, accepted


def test_the_kernel_says_who_is_at_the_other_end(
    connections: tuple[socket.socket, socket.socket],
) -> None:
    client, accepted = connections
    name = pwd.getpwuid(os.geteuid()).pw_name
    assert asker_of(accepted) == Asker(name, is_admin=True, sees_all=True)
    client.close()  # what is left of it would be uid 0's
    assert asker_of(accepted) == Asker()
    assert asker_of(accepted, everyone=True) == EVERYONE
