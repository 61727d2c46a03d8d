"""What another request would change: who may ask, how often, and what an idle process answers."""

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.forecast import NO_ARRIVALS
from rltuned.core.line import present_line
from rltuned.core.starts import Scales, to_play
from rltuned.daemon import what_if as module
from rltuned.daemon.child import ChildError, IdleChild, packed
from rltuned.daemon.what_if import (
    APART_S,
    BUSY,
    GONE,
    NOT_YET,
    TOO_SOON,
    UNKNOWN,
    LastForecast,
    OtherRequest,
    WhatIf,
    answered,
    other_of,
)
from rltuned.domain.cluster import Resources
from rltuned.domain.snapshot import NO_CONTEXT, Snapshot
from rltuned.domain.units import JobId
from rltuned.settings import Settings
from tests.builders import node, request, running
from tests.fakes import ConstantOrder, FakeClock
from tests.programs import executable
from tests.unit.cli.journalled import live, world

HOUR = 3_600.0
SHORT = OtherRequest(limit_s=600.0)


@pytest.mark.parametrize(
    ("limit", "gpus", "found"),
    [
        (None, None, None),
        ("2:00:00", None, OtherRequest(7_200.0)),
        ("UNLIMITED", "0", OtherRequest(math.inf, 0)),
        # as Slurm 22.05 shows jobs that are submitted with them
        *(
            (text, None, OtherRequest(math.inf))
            for text in ("0", "-1", "0-0", "0:0", "0:0:0", "INFINITE", "Infinite", "unlimited")
        ),
        ("2-", None, OtherRequest(172_800.0)),
        ("1:30", None, OtherRequest(120.0)),
        ("0:30", None, OtherRequest(60.0)),
        ("1-1:1:1", None, OtherRequest(90_120.0)),
        ("1-99:99:99", None, OtherRequest(448_860.0)),
        ("0-1", None, OtherRequest(3_600.0)),
        (None, "8", OtherRequest(None, 8)),
    ],
)
def test_what_is_asked(limit: str | None, gpus: str | None, found: OtherRequest | None) -> None:
    assert other_of(limit, gpus) == found


@pytest.mark.parametrize(
    ("limit", "gpus"),
    [
        ("soon", None),
        *(
            (text, None)
            for text in (
                "-2:",
                "2-:",
                "1:",
                ":5",
                "-",
                "--",
                "1-1-",
                "1:1:1:1",
                "5 ",
                "inf",
                "5m",
                "N/A",
                "none",
                "(null)",
                "1-2-3",
            )
        ),
        ("INVALID", None),
        (" invalid ", None),
        (None, "-1"),
        (None, "x"),
        (None, "9" * 5_000),
        ("9" * 5_000, None),
        (None, "²"),
    ],
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


# -- Who may ask, and how often -------------------------------------------------------------------


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


# -- What is answered -----------------------------------------------------------------------------


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


def test_a_shorter_limit_moves_a_job_forward_in_the_order_that_is_proposed(
    settings: Settings,
) -> None:
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


def test_more_gpus_than_there_are_never_start_and_no_limit_is_no_number(
    settings: Settings,
) -> None:
    found = asked_of(settings, 1, OtherRequest(math.inf, 400))["what_if"]
    assert (found["limit_s"], found["unlimited"], found["expected_start"]) == (None, True, None)
    assert "no node that could carry it" in found["expected_why"]


def test_a_job_that_has_gone_is_said(settings: Settings) -> None:
    assert asked_of(settings, 77, SHORT) == {"what_if": None, "what_if_why": GONE}


def test_a_process_of_its_own_answers_the_same(settings: Settings) -> None:
    asked = WhatIf(IdleChild(), lambda: settings, lambda: last_of(world()))
    found = asked.ask(JobId(1), SHORT, "alice", is_admin=False)
    assert found == asked_of(settings, 1, SHORT)


def test_a_process_that_takes_too_long_is_ended(
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
            order=lambda seen, _: decide(seen, ConstantOrder(), Knobs()), running={},
            arrivals=NO_ARRIVALS, scales=scales, late=lambda: False,
        )  # fmt: skip
        return float(found["what_if"]["expected_start"]["high_s"])

    assert high_s(Scales(1.0, 3.0)) > high_s(Scales()) + 60.0
