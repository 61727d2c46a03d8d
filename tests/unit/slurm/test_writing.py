"""What is sent for an action, and what is made of the answer and the look back."""

import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.domain.jobs import PendingJob
from rltuned.domain.plan import (
    NICE,
    OVERSUBSCRIBE,
    PRIORITY,
    RELEASE,
    SITE_FACTOR,
    Action,
    Plan,
    Result,
    Target,
    target_of,
)
from rltuned.domain.units import JobId, UnixTime
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.columns import FIELD, WATCH_COLUMNS
from rltuned.slurm.priority import Factors
from rltuned.slurm.run import SlurmCli
from rltuned.slurm.writer import SLOW_S, against, command_lines, judge, read_complaints
from tests.builders import job
from tests.programs import executable
from tests.recorded import DATA, MARKS, Recording, replay

RECORDED = Recording(DATA / "22.05")


def target(job_id: int = 12, address: str = "", submitted: float = 100.0) -> Target:
    return Target(JobId(job_id), UnixTime(submitted), address or str(job_id))


def row(priority: int = 5, nice: int = 0) -> PendingJob:
    """A pending record as it is read back without sprio; a priority of 0 is held."""
    bare = job(12, submitted_at=100.0, priority=priority, nice=nice)
    return replace(bare, site_factor=None, oversubscribe="")


@pytest.mark.parametrize(
    "address",
    ["", "0", "12\n", "12 13", "12,13", "[11-13]", "12_[1]x", "12;id", "-1", "12_[1\n]", "١٢"],
)
def test_no_odd_address_is_ever_sent(address: str) -> None:
    with pytest.raises(ValueError, match="nothing was sent"):
        command_lines(Action(PRIORITY, target(), 1, 7, 3), address)


def test_line_too_long_for_scontrol_is_not_sent() -> None:
    tasks = ",".join(str(n) for n in range(0, 60_000, 2))
    with pytest.raises(ValueError, match="too long"):
        command_lines(Action(RELEASE, target(), 1, None, 0), f"12_[{tasks}]")


def test_complaints_are_matched_to_their_job() -> None:
    out = read_complaints(
        "scontrol: update JobId=9 Priority=1\n"
        "Invalid job id specified for job 999999\n"
        "27_0-3,5: No error\n"
        "27_4: Job is in held state, pending scheduler release\n"
        "28_[6]: Access/permission denied\n"
        "Job has already finished for job 1\n"
        "Unexpected message received for job 27_0-1,3,5\n"
        "slurm_suspend error: Invalid job id specified\n"
        "Invalid user id for job 62+1\n"
    )
    assert out == {
        "999999": "Invalid job id specified",
        "27_4": "Job is in held state, pending scheduler release",
        "28_6": "Access/permission denied",
        "1": "Job has already finished",
        "27_0-1,3,5": "Unexpected message received",
        "62+1": "Invalid user id",
    }


SET = Action(PRIORITY, target(), 1, 7, 0)
SITE = Action(SITE_FACTOR, target(), 0, 7)
UNSEEN = Action(SITE_FACTOR, target(), 0, 7, priority=2)
FREE = Action(RELEASE, target(), 7, None, 30)
SHARE = Action(OVERSUBSCRIBE, target(), "NO", "YES")


AGAIN = Action(NICE, target(), 0, 30)
SHARED = replace(row(), oversubscribe="YES")


@pytest.mark.parametrize(
    ("action", "seen", "factors", "out", "expected"),
    [
        (SET, row(7), None, "", (Result.APPLIED, "")),
        (SET, row(7), None, "Unexpected message received", (Result.APPLIED, "")),
        (SET, None, None, "", (Result.GONE, "no longer pending")),
        (SET, None, None, "Invalid job id specified", (Result.GONE, "Invalid job id")),
        (SET, row(3), None, "", (Result.FAILED, "reads back priority 3")),
        (SET, row(3), None, "Access/permission denied", (Result.REFUSED, "denied")),
        (SET, row(0), None, "", (Result.FAILED, "held")),
        (SET, row(0), None, "12: Job is in held state", (Result.REFUSED, "held state")),
        (SET, row(3), None, "Job has already finished", (Result.FAILED, "finished")),
        (SET, row(3), None, "Unexpected message received", (Result.FAILED, "Unexpected")),
        (SET, row(3), None, "scontrol gave no answer within 20 s", (Result.FAILED, "no answer")),
        (SITE, row(9), Factors(9, 7, True), "", (Result.APPLIED, "")),
        (SITE, row(9), Factors(9, 0, False), "", (Result.FAILED, "site factor 0")),
        (SITE, row(9), None, "", (Result.FAILED, "does not show")),
        (SITE, row(9), Factors(9, None, True), "", (Result.FAILED, "does not show")),
        (UNSEEN, row(9), None, "", (Result.APPLIED, "")),
        (UNSEEN, row(2), None, "", (Result.FAILED, "has not moved")),
        (UNSEEN, row(2), Factors(2, 7, True), "", (Result.APPLIED, "")),
        (FREE, row(9, 30), Factors(9, 0, True), "", (Result.APPLIED, "")),
        (FREE, row(7, 30), Factors(7, 0, True), "", (Result.APPLIED, "")),
        (FREE, row(9, 30), None, "", (Result.APPLIED, "")),
        (FREE, row(7, 30), Factors(7, 0, False), "", (Result.FAILED, "priority 7")),
        (FREE, row(9, 0), Factors(9, 0, True), "", (Result.FAILED, "nice 0")),
        (AGAIN, row(0, 30), None, "", (Result.APPLIED, "")),
        (AGAIN, row(0, 0), None, "", (Result.FAILED, "held")),
        (AGAIN, row(9, 0), None, "", (Result.FAILED, "reads back nice 0")),
        (SHARE, SHARED, None, "", (Result.APPLIED, "")),
        (SHARE, row(), None, "", (Result.FAILED, "reads back OverSubscribe=")),
        (SHARE, row(), None, "Access/permission denied", (Result.REFUSED, "denied")),
        (SHARE, None, None, "Job is no longer pending execution", (Result.GONE, "no longer")),
        (FREE, row(0, 30), None, "", (Result.FAILED, "held")),
        (SITE, row(0), None, "", (Result.FAILED, "it is held")),
        (SITE, row(0), None, "Job has already finished", (Result.FAILED, "it is held")),
        (SITE, row(9), None, "Access/permission denied", (Result.FAILED, "denied")),
        (SITE, row(9), Factors(9, 0, True), "Access/permission denied", (Result.REFUSED, "denied")),
        (UNSEEN, row(0), None, "", (Result.FAILED, "it is held")),
    ],
)
def test_judge(
    action: Action,
    seen: PendingJob | None,
    factors: Factors | None,
    out: str,
    expected: tuple[Result, str],
) -> None:
    if seen is not None and factors is not None:
        seen = replace(seen, site_factor=factors.site_factor, live=factors.live)
    outcome = judge(action, seen, out)
    assert (outcome.action, outcome.result) == (action, expected[0])
    assert expected[1] in outcome.detail


@pytest.mark.parametrize(
    ("action", "seen", "why"),
    [
        (AGAIN, replace(row(0, 0), held_by="user"), ""),
        (AGAIN, replace(row(0, 0), held_by="admin"), ""),
        (AGAIN, row(400, 0), ""),
        (AGAIN, replace(row(0, 8), held_by="user"), "its nice is 8 meanwhile"),
        (AGAIN, row(0, 0), "it is held by no user and cannot start"),
        (FREE, row(7, 0), ""),
        (FREE, replace(row(0, 0), held_by="user"), "it is held: a release would start"),
    ],
)
def test_a_job_is_given_back_only_as_it_still_stands(
    action: Action, seen: PendingJob, why: str
) -> None:
    found = against(action, seen, dealt=False)
    assert found.startswith(why)
    assert bool(found) is bool(why)


def test_where_numbers_are_dealt_out_a_nice_alone_is_never_sent() -> None:
    held = replace(row(0, 0), held_by="user")
    assert "would free a held job" in against(AGAIN, held, dealt=True)
    assert against(FREE, row(7, 0), dealt=True) == ""


def test_empty_plan_starts_nothing(tmp_path: Path) -> None:
    assert SlurmBackend(SlurmCli(bin_dir=tmp_path), time.time).apply(Plan()) == ()


def test_without_scontrol_every_action_fails_and_none_raises(tmp_path: Path) -> None:
    it = SlurmBackend(SlurmCli(bin_dir=tmp_path), time.time)
    outcomes = it.apply(Plan((SET, FREE)))
    assert [o.result for o in outcomes] == [Result.FAILED, Result.FAILED]
    assert "scontrol is not installed" in outcomes[0].detail
    assert [o.action for o in outcomes] == [SET, FREE]


def test_scontrol_that_hangs_costs_one_timeout_and_is_looked_back_on(tmp_path: Path) -> None:
    replay(tmp_path, RECORDED)
    (tmp_path / "scontrol").write_text(
        f'#!/bin/sh\ncase "$1" in show | -o) exec cat {tmp_path}/answers/config;; esac\n'
        f'cat > "{tmp_path}/got"\n'
        'echo called >> "$0.count"\nsleep 600\n'
    )
    it = SlurmBackend(
        SlurmCli(bin_dir=tmp_path, timeout_s=0.7, chunk=1), lambda: RECORDED.taken_at, marks=MARKS
    )
    pending = it.observe().pending
    named = {name: i for name, i in RECORDED.ids.items() if name in {"on_p1", "unlimited"}}
    jobs = [j for j in pending if j.job_id in named.values()]
    plan = Plan(
        tuple(
            Action(PRIORITY, target_of(j), j.priority, j.priority + n, 0)
            for n, j in enumerate(jobs)
        )
    )
    outcomes = it.apply(plan)
    # the first asks for the value that the look back shows, as if the write had just got through
    assert [o.result for o in outcomes] == [Result.APPLIED, Result.FAILED]
    assert "gave no answer within 0.7 s" in outcomes[1].detail
    assert (tmp_path / "scontrol.count").read_text() == "called\n"


def world(folder: Path, *, squeue_s: float = 0.0) -> SlurmBackend:
    """Two pending jobs; the first scontrol that updates a job holds the second."""
    head = "".join(f"{name.upper()}{FIELD}" for name in WATCH_COLUMNS)[: -len(FIELD)]
    rows = [f"{n}|{n}|N/A|PD|@{n}|$P{n}|0|100|N/A|N/A|OK" for n in (12, 13)]
    table = "".join(line.replace("|", FIELD) + MARKS.record + "\n" for line in (head, *rows))
    (folder / "table").write_text(table)
    (folder / "P12").write_text("7")
    (folder / "P13").write_text("7")
    programs = {
        "squeue": f'[ "$1" = --help ] && exit 0\nsleep {squeue_s}\n'
        "held=Priority; [ -e held ] && held=JobHeldUser\n"
        'exec sed "s/\\$P12/$(cat P12)/;s/\\$P13/$(cat P13)/;s/@12/Priority/;s/@13/$held/" table',
        "scontrol": f'if [ "$1" != -v ]; then printf %s {shlex.quote(CONFIG)}; exit; fi\n'
        'shift; { [ $# = 0 ] && cat || echo arguments "$*"; } >>sent\n'
        "grep -q 'release 12' sent && { echo 5 >P12; touch held; echo 0 >P13; }\n"
        "grep -q 'release 13' sent && echo 5 >P13\nexit 0",
    }
    for name, does in programs.items():
        executable(folder / name, f'#!/bin/sh\ncd "{folder}" || exit 1\n{does}\n')
    return SlurmBackend(SlurmCli(bin_dir=folder), lambda: 1.0, marks=MARKS)


CONFIG = (
    "ClusterName = test\nSLURM_VERSION = 22.05.8\nPriorityType = priority/basic\n"
    "SelectTypeParameters = CR_CORE\nPreemptType = preempt/none\n"
)


@pytest.mark.parametrize("squeue_s", [0.0, SLOW_S + 0.1])
def test_a_job_held_after_the_first_release_is_never_released(
    tmp_path: Path, squeue_s: float
) -> None:
    plan = Plan((Action(RELEASE, target(12), 7, None, 0), Action(RELEASE, target(13), 7, None, 0)))
    outcomes = world(tmp_path, squeue_s=squeue_s).apply(plan)
    assert [o.result for o in outcomes] == [Result.APPLIED, Result.REFUSED]
    assert "held" in outcomes[1].detail
    assert (tmp_path / "sent").read_text() == "release 12\n"


def test_a_long_line_goes_as_arguments(tmp_path: Path) -> None:
    tasks = ",".join(str(n) for n in range(0, 4000, 2))
    address = f"12_[{tasks}]"
    action = Action(PRIORITY, target(12, address), 1, 5, 0)
    world(tmp_path).apply(Plan((action, Action(PRIORITY, target(13), 1, 6, 0))))
    reply = (tmp_path / "sent").read_text().splitlines()
    assert reply == ["update JobId=13 Priority=6", f"arguments update JobId={address} Priority=5"]


RELEASED = Action(RELEASE, target(12), 7, None, 0)
OTHER = Action(PRIORITY, target(13), 1, 6, 0)
BACK = Action(RELEASE, target(12), 7, 9, 0)
SAME = Action(PRIORITY, target(12), 1, 6, 0)
REFUSED, FAILED, APPLIED = Result.REFUSED, Result.FAILED, Result.APPLIED


@pytest.mark.parametrize(
    ("answer", "asked", "expected", "sent"),
    [
        # a row that cannot be read is neither gone nor released
        (("P12", "INVALID"), (RELEASED, SAME), (REFUSED, FAILED, "cannot be read"), SAME),
        # Reason=Priority at 0: held by nobody that is named
        (("P12", "0"), (RELEASED,), (REFUSED, "it is held: a release would start it"), None),
        # under priority/basic: what the update leaves there
        (("P12", "9"), (BACK,), (APPLIED, "priority 7 -> 9, nice counted in"), BACK),
        (("table", "noise"), (RELEASED, OTHER), (FAILED, FAILED, "no header"), OTHER),
    ],
)
def test_what_is_sent_and_what_comes_of_it(
    tmp_path: Path,
    answer: tuple[str, str],
    asked: tuple[Action, ...],
    expected: tuple[Result | str, ...],
    sent: Action | None,
) -> None:
    found = world(tmp_path)
    (tmp_path / answer[0]).write_text(answer[1])
    outcomes = found.apply(Plan(asked))
    assert [o.action for o in outcomes] == [*asked]
    assert [o.result for o in outcomes] == [*expected[:-1]]
    assert all(str(expected[-1]) in o.detail for o in outcomes)
    lines = (tmp_path / "sent").read_text() if (tmp_path / "sent").exists() else ""
    assert lines == (
        f"update JobId={sent.target.job_id} Priority={sent.new}\n" if sent is not None else ""
    )
