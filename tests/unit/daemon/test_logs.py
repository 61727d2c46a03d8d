"""Priorities for journald, and no user's data in what is logged."""

import io
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO, cast

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.select import Rules
from rltuned.daemon.logs import log_cycle, make_log
from rltuned.daemon.report import CycleReport, Mode, Skip, Stage
from rltuned.domain.plan import Outcome, Result
from tests.builders import NOW, job, running, snapshot
from tests.fakes import ConstantOrder

PRIVATE = "private"
"""Part of every text that a user has chosen."""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[TextIO]:
    with (tmp_path / "log").open("w+") as made:
        yield cast("TextIO", made)


class Full(io.StringIO):
    """Standard error on a full disk."""

    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")


def written(file: TextIO) -> list[str]:
    file.flush()
    file.seek(0)
    return file.read().splitlines()


def journal(file: TextIO) -> dict[str, str]:
    """What systemd would say if the file were its journal."""
    status = os.fstat(file.fileno())
    return {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}


def test_lines_for_journald_begin_with_their_priority(file: TextIO) -> None:
    log = make_log("console", "debug", file, journal(file))
    for level in ("debug", "info", "warning", "error"):
        getattr(log, level)("something")
    assert [line[:3] for line in written(file)] == ["<7>", "<6>", "<4>", "<3>"]


def test_json_stays_json_behind_the_priority(file: TextIO) -> None:
    make_log("json", "info", file, journal(file)).warning("note", note="a\nb")
    (line,) = written(file)
    assert line.startswith("<4>{")
    assert json.loads(line[3:])["note"] == "a\nb"


def test_every_line_of_a_traceback_has_it(file: TextIO) -> None:
    log = make_log("console", "info", file, journal(file))
    log.error("unexpected_error", exc_info=ValueError("on purpose"))
    lines = written(file)
    assert len(lines) > 1
    assert all(line.startswith("<3>") for line in lines)


@pytest.mark.parametrize("named", ["", "1:2", "nonsense"])
def test_elsewhere_there_is_none(file: TextIO, named: str) -> None:
    make_log("json", "info", file, {"JOURNAL_STREAM": named}).info("stopped")
    assert json.loads(written(file)[0])["event"] == "stopped"


def test_a_line_that_cannot_be_written_is_dropped() -> None:
    log = make_log("console", "info", cast("TextIO", Full()))
    log.info("stopped")
    log.error("unexpected_error", exc_info=ValueError("on purpose"))


def test_a_stream_without_a_file_is_no_journal() -> None:
    out = io.StringIO()
    make_log("json", "info", out, {"JOURNAL_STREAM": "1:2"}).info("stopped")
    assert json.loads(out.getvalue())["event"] == "stopped"


@pytest.mark.parametrize("mode", [*Mode])
def test_no_user_account_or_qos_in_any_line(mode: Mode) -> None:
    jobs = [
        replace(job(n, priority=400 - n), user=PRIVATE, account=PRIVATE, qos=PRIVATE)
        for n in (1, 2, 3)
    ]
    seen = snapshot(*jobs, runs=[running(9)])
    rules = Rules(excluded_users=frozenset({f"{PRIVATE}-other"}))
    decision = decide(seen, ConstantOrder((3, 2, 1)), Knobs(rules))
    assert decision.plan.actions
    results = [*Result] * len(decision.plan.actions)
    report = CycleReport(
        cycle=1,
        started_at=NOW,
        mode=mode,
        interval_s=60.0,
        stages={Stage.OBSERVE: 0.1},
        snapshot=seen,
        decision=decision,
        outcomes=tuple(Outcome(a, r) for a, r in zip(decision.plan.actions, results, strict=False)),
    )
    out = io.StringIO()
    log = make_log("json", "debug", out, {})
    log_cycle(log, report)
    log_cycle(log, replace(report, skip=Skip.POLICY, detail="no scores"))
    assert out.getvalue().count("\n") >= 2
    assert PRIVATE not in out.getvalue()
