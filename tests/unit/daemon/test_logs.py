"""Priorities for journald, and no user's data in what is logged."""

import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO, cast

import pytest

from rltuned.core.decide import Knobs, decide
from rltuned.core.select import Scope
from rltuned.daemon.logger import make_log
from rltuned.daemon.observers import MOST_REMARKS, Logged, log_cycle
from rltuned.daemon.report import CycleReport, CycleStage, Skip
from rltuned.daemon.state import HealthState
from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import Outcome, Result
from tests.builders import NOW, job, running, set_priority, snapshot
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


@pytest.mark.parametrize("mode", [*HealthState])
def test_no_user_account_or_qos_in_any_line(mode: HealthState) -> None:
    jobs = [
        replace(job(n, priority=400 - n), user=PRIVATE, account=PRIVATE, qos=PRIVATE)
        for n in (1, 2, 3)
    ]
    seen = snapshot(*jobs, runs=[running(9)])
    rules = Scope(excluded_users=frozenset({f"{PRIVATE}-other"}))
    decision = decide(seen, ConstantOrder((3, 2, 1)), Knobs(rules))
    assert decision.plan.actions
    results = [*Result] * len(decision.plan.actions)
    report = CycleReport(
        cycle=1,
        started_at=NOW,
        mode=mode,
        interval_s=60.0,
        stages={CycleStage.OBSERVE: 0.1},
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


PENDING = 318
"""As in the review, where the shadow logged 63 kB a cycle."""


def shadow(cycle: int, jobs: list[PendingJob], results: Mapping[Any, Outcome] | None = None) -> Any:
    """A cycle whose policy turns the queue around."""
    seen = snapshot(*jobs, taken_at=NOW + 60 * cycle)
    order = tuple(sorted((j.job_id for j in jobs), reverse=True))
    decision = decide(seen, ConstantOrder(order), Knobs(Scope()))
    outcomes = tuple(
        Outcome(a, results[a.target.job_id].result, results[a.target.job_id].detail)
        for a in decision.plan.actions
        if results and a.target.job_id in results
    )
    return CycleReport(
        cycle=cycle,
        started_at=NOW + 60 * cycle,
        mode=HealthState.LIVE if results else HealthState.SHADOW,
        interval_s=60.0,
        stages={CycleStage.OBSERVE: 0.1},
        snapshot=seen,
        decision=decision,
        outcomes=outcomes,
    )


def queue_at(cycle: int, numbers: range) -> list[PendingJob]:
    """Their priorities grow with age, so that every number is another one in every cycle."""
    return [job(n, priority=10_000 - 10 * n + cycle) for n in numbers]


def lines_of(printed: Logged, report: CycleReport) -> list[dict[str, Any]]:
    out = io.StringIO()
    log_cycle(make_log("json", "info", out, {}), report, printed)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_proposal_is_logged_when_it_changes() -> None:
    printed = Logged()
    counts, sizes = [], []
    for cycle in range(5):
        lines = lines_of(printed, shadow(cycle, queue_at(cycle, range(1, PENDING + 1))))
        counts.append(sum(line["event"] == "proposal" for line in lines))
        sizes.append(len(json.dumps(lines)))
    assert counts[0] > PENDING * 0.9
    assert counts[1:] == [0, 0, 0, 0]
    assert sizes[1] < sizes[0] / 50
    # the first job starts: all move up by one, and nothing was decided again
    after = lines_of(printed, shadow(5, queue_at(5, range(2, PENDING + 1))))
    assert sum(line["event"] == "proposal" for line in after) <= 2
    # a job comes, and takes a place of its own
    lines = lines_of(printed, shadow(6, queue_at(6, range(2, PENDING + 2))))
    assert PENDING + 1 in [line["job"] for line in lines if line["event"] == "proposal"]
    assert sum(line["event"] == "proposal" for line in lines) < PENDING / 3, "256 changes a cycle"


def test_every_cycle_is_a_sentence() -> None:
    proposed = shadow(0, queue_at(0, range(1, 6)))
    (line,) = [one for one in lines_of(Logged(), proposed) if one["event"] == "cycle"]
    assert line["summary"] == (
        "5 waiting, 5 ordered; furthest up: 5 (5 to 1), 4 (4 to 2); 5 proposed, nothing written; "
        "0.1 s"
    )
    results = {n: Outcome(set_priority(job(n), 9), Result.APPLIED) for n in (1, 2)}
    results[3] = Outcome(set_priority(job(3), 9), Result.FAILED, "no")
    assert "; 2 written, 1 not; " in shadow(0, queue_at(0, range(1, 6)), results).sentence()
    nothing = shadow(1, [])
    assert nothing.sentence() == "0 waiting, 0 ordered; 0 proposed, nothing written; 0.1 s"


def test_a_change_that_fails_is_logged_once_per_job_and_reason() -> None:
    printed, jobs = Logged(), queue_at(0, range(1, PENDING + 1))

    def failed(cycle: int, words: Mapping[Any, str]) -> list[dict[str, Any]]:
        results = {
            j.job_id: Outcome(set_priority(j, 9), Result.REFUSED, words.get(j.job_id, "no rights"))
            for j in jobs
        }
        lines = lines_of(printed, shadow(cycle, jobs, results))
        assert lines[-1]["refused"] > PENDING * 0.9, "the cycle's line counts them all"
        return [line for line in lines if line["event"] == "change_failed"]

    (first,) = failed(0, {})
    assert first["jobs"] > PENDING * 0.9
    assert failed(1, {}) == []
    (other,) = failed(2, {7: "it is held"})
    assert (other["job"], other["jobs"], other["detail"]) == (7, 1, "it is held")
    (again,) = failed(3, {})
    assert (again["job"], again["detail"]) == (7, "no rights")
    words = {j.job_id: f"Priority is {j.job_id}" for j in jobs}
    assert len(failed(4, words)) == 1, "numbers make no other reason"
    assert failed(5, {n: f"{text}0" for n, text in words.items()}) == []


def test_a_remark_is_new_once_for_each_command_and_not_for_its_numbers() -> None:
    known = Logged()
    assert known.remarks("squeue", ["node n1 is odd", "old"]) == ["node n1 is odd", "old"]
    assert known.remarks("squeue", ["node n2 is odd", "old"]) == []
    assert known.remarks("sinfo", ["old"]) == ["old"]
    many = known.remarks("sinfo", ["x" * n for n in range(1, 2 * MOST_REMARKS)])
    assert len(many) == MOST_REMARKS - 3
