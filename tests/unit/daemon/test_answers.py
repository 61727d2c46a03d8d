"""What the daemon answers about single jobs and other requests, to whom, and how often."""

import math
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.forecast import NO_ARRIVALS
from rltuned.core.line import present_line
from rltuned.core.starts import Scales, ToPlay, expectation, expected_of, to_play
from rltuned.daemon import what_if as module
from rltuned.daemon.child import ChildError, IdleChild, packed
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import HealthState
from rltuned.daemon.web.board import NO_DECISION, NOT_SHOWN, Asker, Board
from rltuned.daemon.what_if import (
    APART_S,
    BUSY,
    GONE,
    NOT_YET,
    TOO_SOON,
    UNKNOWN,
    Document,
    LastForecast,
    OtherRequest,
    WhatIf,
    answered,
    other_of,
)
from rltuned.daemon.words import in_words
from rltuned.domain.cluster import Resources
from rltuned.domain.plan import SITE_FACTOR, Plan
from rltuned.domain.snapshot import NO_CONTEXT, Snapshot
from rltuned.domain.units import JobId, UnixTime
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME
from rltuned.settings import Settings
from tests.builders import NOW, decided, job, node, request, running, snapshot
from tests.fakes import ConstantOrder, FakeClock
from tests.programs import executable
from tests.unit.cli.journalled import live, world

ROOT, ANN, NO_ONE = Asker("root", is_admin=True), Asker("ann"), Asker()
SEEN = snapshot(job(1, user="ann"), job(2, user="bob"), runs=[running(9, user="ann"), running(8)])


def board_of(*looks: Snapshot, **more: Any) -> Board:
    """After a decision of each look."""
    made = Board(lambda: NOW, **more)
    for seen in looks:
        made.cycle(decided(decide(seen, ConstantOrder(), Knobs())))
    return made


def test_a_job_is_shown_to_its_user_and_to_the_administrator(tmp_path: Path) -> None:
    board = board_of(SEEN, journal=tmp_path / "journal.sqlite")
    for asker in (ANN, ROOT):
        assert board.explain("1", asker)["job"]["job_id"] == 1
    for name in ("9", "9;test"):
        assert board.explain(name, ANN)["job"]["state"] == "RUNNING"
    assert "journal.sqlite" in board.explain("1", ANN)["job"]["history_unknown"]
    assert "no pending or running job 77" in board.explain("77", ROOT)["why"]
    for_all = board_of(SEEN, jobs=True)
    assert [for_all.explain("1", one)["job"]["user"] for one in (NO_ONE, ROOT)] == ["", "ann"]


@pytest.mark.parametrize("name", ["1", "2", "8", "8;test", "77", ""])
def test_no_one_else_learns_even_whether_there_is_such_a_job(name: str) -> None:
    board = board_of(SEEN)
    assert board.explain(name, NO_ONE)["why"] == NOT_SHOWN
    if name != "1":
        assert board.explain(name, ANN)["why"] == NOT_SHOWN


def test_a_plan_has_the_jobs_that_one_may_see() -> None:
    def shown(asker: Asker, **more: Any) -> list[tuple[int, str]]:
        jobs = board_of(SEEN, **more).plan(asker)["plan"]["jobs"]
        return [(one["job_id"], one["user"]) for one in jobs]

    assert shown(ROOT) == [(1, "ann"), (2, "bob")]
    assert shown(ANN) == [(1, "ann")]
    assert shown(NO_ONE, jobs=True) == [(1, ""), (2, "")]
    assert shown(NO_ONE, jobs=True, users=True) == [(1, "ann"), (2, "bob")]
    assert board_of(SEEN).plan(NO_ONE)["why"] == NOT_SHOWN
    assert board_of().plan(ROOT)["why"] == board_of().explain("1", ROOT)["why"] == NO_DECISION


class Played(WhatIf):
    """Plays nothing, and says who asked for what."""

    def __init__(self, found: Callable[[JobId], Any] = lambda _job: {"line_place": 1}) -> None:
        self.found, self.asked = found, list[tuple[int, OtherRequest, str, bool]]()

    def ask(self, job: JobId, other: OtherRequest, user: str, *, is_admin: bool) -> Document:
        self.asked.append((job, other, user, is_admin))
        return {"what_if": self.found(job)}


def test_another_request_is_played_for_those_who_see_the_job() -> None:
    played, other = Played(), OtherRequest(600.0)
    board = board_of(SEEN, what_if=played)
    for name, asker in (("2", ANN), ("1", NO_ONE), ("77", ROOT), ("9", ANN)):
        assert "what_if" not in board.explain(name, asker, other).get("job", {})
    assert "what_if" not in board.explain("1", ANN)["job"]
    assert " is no" in board.asked({"job": "1", "limit": "soon"}, ANN)["why"]
    assert played.asked == []
    found = board.asked({"job": "1", "limit": "10", "gpus": ""}, ANN)["job"]
    assert found["what_if"] == {"line_place": 1}
    assert board.explain("2", ROOT, other)["job"]["what_if"] == {"line_place": 1}
    assert played.asked == [(1, other, "ann", False), (2, other, "root", True)]


def test_a_job_after_the_last_forecast_is_played_when_it_is_asked_for() -> None:
    seen = snapshot(job(1, user="ann"), job(2, user="ann"), job(3, user="bob"))
    before = expected_of(present_line(snapshot(job(2, user="ann"))), {}, draws=1)

    def found(job: JobId) -> Any:
        now = expectation(expected_of(present_line(seen), {}, draws=1), job, NOW)
        return None if job == 3 else {"limit_s": None, **now}

    plays = Played(found)
    board = board_of(seen, expected=lambda: before, what_if=plays)
    assert board.explain("1", NO_ONE)["why"] == NOT_SHOWN
    assert board.explain("2", ANN)["job"]["line_jobs"] == 1
    assert plays.asked == []
    told = board.explain("1", ANN)["job"]
    assert (told["line_jobs"], told["expected_start"]["median_s"]) == (3, NOW)
    assert plays.asked == [(1, OtherRequest(), "ann", False)]
    # the forecast of what is would take the user's turn
    assert board.explain("1", ANN, OtherRequest(600.0))["job"]["what_if"]["line_jobs"] == 3
    assert plays.asked[1:] == [(1, OtherRequest(600.0), "ann", False)]
    told = board.explain("3", ROOT)["job"]
    assert (told["expected_start"], told["line_jobs"]) == (None, 1)
    assert "it came after the last forecast" in told["expected_why"]


def test_a_daemon_that_only_observes_answers_what_slurm_shows() -> None:
    seen = snapshot(job(1, user="ann", priority=5), job(2, user="bob", priority=9))
    expected = expected_of(present_line(seen), {}, draws=1)
    board = Board(lambda: NOW + 180.0, expected=lambda: expected)
    board.cycle(CycleReport(1, NOW, HealthState.OBSERVE, {}, seen))
    found = board.explain("1", ANN)["job"]
    assert (found["line_place"], found["line_jobs"]) == (2, 2)
    assert (found["current_priority"], found["planned_priority"]) == (5, None)
    assert board.explain("2", ANN)["why"] == NOT_SHOWN
    assert board.plan(ROOT)["why"] == NO_DECISION
    text = in_words(found)
    assert "expected to start now (by time limits); 2nd of 2." in text[0]
    assert "The forecast is 3m old." in text
    assert "rltuned only observes: it orders nothing." in text


def test_a_job_whose_id_is_used_again_shows_nothing_of_the_job_before(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    before, now = job(1, user="bob", submitted_at=NOW - 900), job(1, user="ann", submitted_at=NOW)
    runs = replace(running(1, user="ann"), submitted_at=UnixTime(NOW))
    with closing(Journal(tmp_path)) as journal:
        plan = Plan((SITE_FACTOR.to(replace(before, site_factor=0), -500),))
        journal.intend(plan, cluster=snapshot().cluster, cycle=1, at=NOW - 600)

    def history(seen: Snapshot, user: str) -> list[Document]:
        found = board_of(seen, journal=tmp_path / FILE_NAME).explain("1", Asker(user))["job"]
        return list(found["history"])

    for seen in (snapshot(now), snapshot(runs=[runs])):
        assert history(seen, "ann") == []
    assert [row["new"] for row in history(snapshot(before), "bob")] == [-500]


SHORT = OtherRequest(limit_s=600.0)


ENDLESS = ("0", "-1", "0-0", "0:0", "0:0:0", "INFINITE", "Infinite", "unlimited")
"""As Slurm 22.05 shows jobs that are submitted with them."""
LIMITS_S = {
    "2:00:00": 7_200.0, "2-": 172_800.0, "1:30": 120.0, "0:30": 60.0, "1-1:1:1": 90_120.0,
    "1-99:99:99": 448_860.0, "0-1": 3_600.0, **dict.fromkeys(ENDLESS, math.inf),
}  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "gpus", "found"),
    [
        (None, None, None),
        ("UNLIMITED", "0", OtherRequest(math.inf, 0)),
        (None, "8", OtherRequest(None, 8)),
        *((text, None, OtherRequest(limit_s)) for text, limit_s in LIMITS_S.items()),
    ],
)
def test_what_is_asked(limit: str | None, gpus: str | None, found: OtherRequest | None) -> None:
    assert other_of(limit, gpus) == found


NO_LIMITS = (
    "soon", "-2:", "2-:", "1:", ":5", "-", "--", "1-1-", "1:1:1:1", "5 ", "inf", "5m", "N/A",
    "none", "(null)", "1-2-3", "INVALID", " invalid ", "9" * 5_000,
)  # fmt: skip
NO_GPUS = ("-1", "x", "9" * 5_000, "²")


@pytest.mark.parametrize(
    ("limit", "gpus"), [*((text, None) for text in NO_LIMITS), *((None, text) for text in NO_GPUS)]
)
def test_what_is_no_request(limit: str | None, gpus: str | None) -> None:
    with pytest.raises(ValueError, match=r"^.{12,80}$"):
        other_of(limit, gpus)


def test_cpus_and_memory_go_with_the_gpus() -> None:
    asks = request(gpus=4, cpus=6, mem_mib=1_000, nodes=2)
    assert OtherRequest(gpus=1).of(asks).total == Resources(1, 2, 250)
    assert OtherRequest(gpus=1).of(asks).nodes is None
    assert OtherRequest(60.0).of(asks) == replace(asks, time_limit_s=60.0)
    assert OtherRequest(gpus=2).of(request(gpus=0, cpus=3)).total == Resources(2, 3, 4_000)


class Fake(IdleChild):
    """Answers at once, or as it is told."""

    def __init__(self, answer: Callable[[], bytes] = lambda: b'{"what_if": {}}') -> None:
        super().__init__()
        self.answer, self.asked = answer, list[bytes]()

    def run(self, asked: Any, todo: bytes, wall_s: float, *, patience_s: float = -1.0) -> bytes:  # noqa: ARG002
        self.asked.append(todo)
        return self.answer()


LAST: LastForecast = b"{}", Scales(), False


def door(child: IdleChild, clock: FakeClock, last: LastForecast | None = LAST) -> WhatIf:
    return WhatIf(child, Settings, lambda: last, clock.monotonic)


def ask(of: WhatIf, user: str = "ann", *, is_admin: bool = False) -> Any:
    found = of.ask(JobId(1), SHORT, user, is_admin=is_admin)
    return found.get("what_if_why") or found["what_if"]


def test_a_user_waits_between_two_and_an_administrator_does_not() -> None:
    child, clock = Fake(), FakeClock()
    asked = door(child, clock)
    assert ask(asked) == {}
    assert ask(asked) == TOO_SOON
    assert ask(asked, "bob") == {}
    assert ask(asked, "root", is_admin=True) == {}
    assert ask(asked, "root", is_admin=True) == {}
    assert len(child.asked) == 4
    clock.wait(APART_S + 1)
    assert ask(asked) == {}


def test_who_is_not_known_plays_nothing() -> None:
    child = Fake()
    assert ask(door(child, FakeClock()), "") == UNKNOWN
    assert child.asked == []


def test_only_one_is_played_at_a_time() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> bytes:
        begun.set()
        assert go_on.wait(60)
        return b'{"what_if": {}}'

    asked = door(Fake(slowly), FakeClock())
    found: list[Any] = []
    first = threading.Thread(target=lambda: found.append(ask(asked)))
    first.start()
    assert begun.wait(60)
    assert ask(asked, "bob") == BUSY
    assert ask(asked, "root", is_admin=True) == BUSY
    go_on.set()
    first.join(60)
    assert found == [{}]
    assert ask(asked, "bob") == {}


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (TimeoutError(), BUSY),
        (ChildError("the child ended with -9"), "it could not be played: the child ended with -9"),
    ],
)
def test_a_process_that_fails_is_said_and_counts(error: Exception, why: str) -> None:
    def fails() -> bytes:
        raise error

    asked = door(Fake(fails), FakeClock())
    assert ask(asked) == why
    assert ask(asked) == TOO_SOON


def test_before_the_first_forecast_nothing_is_played() -> None:
    child = Fake()
    assert ask(door(child, FakeClock(), last=None)) == NOT_YET
    assert child.asked == []


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a daemon that has made a cycle on the fake world."""
    live(tmp_path)
    found = Settings()
    return found.model_copy(
        update={
            "daemon": found.daemon.model_copy(update={"state_dir": tmp_path}),
            "policy": found.policy.model_copy(update={"name": "sjf"}),
        }
    )


def last_of(seen: Snapshot, *, as_is: bool = False, scales: Scales | None = None) -> LastForecast:
    todo = packed(to_play(present_line(seen), {}, NO_ARRIVALS))
    return todo, scales or Scales(), as_is


def asked_of(settings: Settings, job: int, other: OtherRequest, *, as_is: bool = False) -> Any:
    """As WhatIf asks, and the process answers."""
    document = {
        "settings": settings.model_dump(mode="json"), "job": job, "gpus": other.gpus,
        "limit_s": None if other.limit_s is None else str(other.limit_s),
        "scales": (1.0, 1.0), "as_is": as_is,
    }  # fmt: skip
    ground = to_play(present_line(world()), {}, NO_ARRIVALS)
    return answered(document, ground)


def test_a_shorter_limit_moves_a_job_forward_in_the_proposed_order(settings: Settings) -> None:
    """sjf puts job 3 of 50 minutes first; with 10 minutes job 1 stands before it."""
    as_it_is = asked_of(settings, 1, OtherRequest())["what_if"]
    found = asked_of(settings, 1, SHORT)["what_if"]
    assert found["line_place"] < as_it_is["line_place"]
    assert (found["limit_s"], found["gpus"], found["unlimited"]) == (600.0, None, False)
    assert found["expected_start"]["median_s"] <= as_it_is["expected_start"]["median_s"]
    assert found["line_jobs"] == 4


def test_where_nothing_is_written_a_request_moves_no_job(settings: Settings) -> None:
    places = [
        asked_of(settings, 1, other, as_is=True)["what_if"]["line_place"]
        for other in (OtherRequest(), SHORT)
    ]
    assert places == [1, 1]


def test_too_many_gpus_never_start_and_no_limit_is_no_number(settings: Settings) -> None:
    found = asked_of(settings, 1, OtherRequest(math.inf, 400))["what_if"]
    assert (found["limit_s"], found["unlimited"], found["expected_start"]) == (None, True, None)
    assert "no node that could carry it" in found["expected_why"]


def test_a_job_that_has_gone_is_said(settings: Settings) -> None:
    assert asked_of(settings, 77, SHORT) == {"what_if": None, "what_if_why": GONE}


def test_a_process_of_its_own_answers_the_same(settings: Settings) -> None:
    asked = WhatIf(IdleChild(), lambda: settings, lambda: last_of(world()))
    found = asked.ask(JobId(1), SHORT, "alice", is_admin=False)
    assert found == asked_of(settings, 1, SHORT)


def test_a_slow_process_is_ended(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = executable(tmp_path / "slow", "#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr("sys.executable", str(slow))
    monkeypatch.setattr(module, "WALL_S", 0.5)
    asked = WhatIf(IdleChild(), lambda: settings, lambda: last_of(world()))
    found = asked.ask(JobId(1), SHORT, "alice", is_admin=False)
    assert "it could not be played: the child gave no answer within 0.5 s" in found["what_if_why"]


def test_one_process_at_a_time_and_none_after_the_end() -> None:
    child = IdleChild()
    with child._turn, pytest.raises(TimeoutError):
        child.run(None, b"", 1.0, patience_s=0.0)
    child.close()
    with pytest.raises(ChildError, match="is ending"):
        child.run(None, b"", 1.0)


def test_the_record_scales_what_is_answered_like_the_forecast() -> None:
    seen = world()
    seen = replace(seen, nodes=(node(free_gpus=0),), running=(running(gpus=4),))

    def high_s(scales: Scales) -> float:
        found = module.what_if(
            seen, NO_CONTEXT, seen.pending[0], OtherRequest(), look=lambda _: NO_CONTEXT,
            order=lambda seen, _: decide(seen, ConstantOrder(), Knobs()),
            last=ToPlay(seen, (), {}, NO_ARRIVALS), scales=scales,
        )  # fmt: skip
        return float(found["what_if"]["expected_start"]["high_s"])

    assert high_s(Scales(1.0, 3.0)) > high_s(Scales()) + 60.0
