"""Readiness and log lines: what a cycle leaves for people to see."""

import io
from pathlib import Path

import pytest

from rltuned.core.decide import Knobs
from rltuned.daemon.logger import make_log
from rltuned.daemon.report import CycleReport, Skip
from rltuned.daemon.state import HealthState
from rltuned.daemon.wiring import Rig
from rltuned.domain.plan import Outcome, Result
from tests.builders import basic
from tests.fakes import ConstantOrder, FakeBackend
from tests.loops import DECISION, SEEN, Desk, report


@pytest.fixture
def desk() -> Desk:
    return Desk()


def skipped(skip: Skip = Skip.BACKEND) -> CycleReport:
    return report(
        decision=None, snapshot=None, skip=skip, detail="squeue is away", backoff_s=120.0
    )  # fmt: skip


def rig(tmp_path: Path) -> Rig:
    world = FakeBackend(SEEN)
    return Rig(world, ConstantOrder(), Knobs(), True, 60.0, tmp_path / "PAUSE")


def test_ready_means_a_fresh_result_and_good_files(desk: Desk, tmp_path: Path) -> None:
    assert not desk.publisher.health().ready
    desk.publisher.cycle(report())
    assert desk.publisher.health().ready
    desk.clock.advance(179)
    desk.publisher.cycle(skipped())
    assert desk.publisher.health().ready
    desk.clock.advance(2)
    assert not desk.publisher.health().ready
    desk.publisher.cycle(report())
    desk.publisher.not_loaded("line 3 is wrong")
    assert not desk.publisher.health().ready
    desk.publisher.loaded(rig(tmp_path))
    assert desk.publisher.health().ready


def test_a_dry_cycle_is_a_line_and_one_per_proposal(desk: Desk) -> None:
    desk.publisher.cycle(report())
    (cycle,) = desk.lines("cycle")
    assert (cycle["mode"], cycle["proposed"], cycle["observe_s"]) == ("dry_run", 2, 0.25)
    first, second = desk.lines("proposal")
    assert (first["job"], first["old"], first["new"]) == (2, 200, basic(0.0))
    assert (second["rank_before"], second["rank_after"]) == (1, 2)
    assert "mallory" not in desk.stream.getvalue()


def test_a_live_cycle_names_only_what_failed(desk: Desk) -> None:
    one, two = DECISION.plan.actions
    outcomes = (Outcome(one, Result.APPLIED), Outcome(two, Result.REFUSED, "Access denied"))
    desk.publisher.cycle(report(HealthState.LIVE, outcomes=outcomes))
    assert desk.lines("proposal") == []
    (cycle,) = desk.lines("cycle")
    assert (cycle["applied"], cycle["refused"], cycle["left_alone"]) == (1, 1, 0)
    (failure,) = desk.lines("change_failed")
    assert (failure["level"], failure["detail"]) == ("warning", "Access denied")


def test_the_same_failure_of_many_jobs_is_one_line(desk: Desk) -> None:
    outcomes = tuple(Outcome(a, Result.REFUSED, "Access denied") for a in DECISION.plan.actions)
    desk.publisher.cycle(report(HealthState.LIVE, outcomes=outcomes))
    (failure,) = desk.lines("change_failed")
    assert (failure["job"], failure["jobs"]) == (2, 2)


def test_a_skipped_cycle_says_why_and_when_it_goes_on(desk: Desk) -> None:
    desk.publisher.cycle(skipped())
    desk.publisher.cycle(skipped(Skip.UNEXPECTED))
    first, second = desk.lines("cycle_skipped")
    assert (first["level"], first["detail"], first["next_try_s"]) == (
        "warning", "squeue is away", 120.0,
    )  # fmt: skip
    assert second["level"] == "error"


def test_a_bug_leaves_its_traceback(desk: Desk) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 // int("0")
    desk.publisher.unexpected(caught.value)
    (line,) = desk.lines("unexpected_error")
    assert "ZeroDivisionError: " in line["exception"]


def test_a_journal_that_cannot_be_used_is_a_warning(desk: Desk) -> None:
    desk.publisher.cycle(
        report(HealthState.OBSERVE, reasons={HealthState.JOURNAL_UNUSABLE: "disk full"})
    )
    assert desk.lines("cycle")[0]["level"] == "warning"
    assert desk.lines("cycle")[0]["journal"] == "disk full"


def test_the_level_is_honoured() -> None:
    desk = Desk(level="warning")
    desk.publisher.cycle(report())
    assert desk.stream.getvalue() == ""


def test_text_for_eyes_has_no_escape_codes_in_a_file() -> None:
    stream = io.StringIO()
    make_log("console", "info", stream).info("cycle", mode="live")
    assert "mode=live" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_console_lines_cannot_steer_a_terminal_or_be_forged() -> None:
    stream = io.StringIO()
    log = make_log("console", "info", stream)
    log.info("note", note="a\x1b[2J\nforged\r\x9b line")
    log.info("note", note="no\x1b[2Jblank\x9b")
    first, second = stream.getvalue().splitlines()
    assert first.isprintable()
    assert second.endswith("note=no\\x1b[2Jblank\\x9b")
