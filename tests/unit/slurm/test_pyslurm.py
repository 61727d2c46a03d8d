"""pyslurm in its own process: what it tells, and what happens when it cannot."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rltuned.domain.jobs import PendingJob
from rltuned.domain.snapshot import Unreadable
from rltuned.domain.units import JobId
from rltuned.errors import BackendError, SnapshotError
from rltuned.run import Call
from rltuned.slurm.pyslurm import (
    FIELDS,
    PYSLURM,
    REST_S,
    TEXT,
    TOLD,
    ReaderChoice,
    UnusableError,
    ask_pyslurm,
    row_of,
    rows_of,
)
from rltuned.slurm.run import Commands, SlurmCli
from rltuned.slurm.squeue import TWICE, QueueReader
from tests.programs import executable
from tests.recorded import DATA, Recording, replay, replay_beside
from tests.unit.slurm.rows import ROW

RECORDED = Recording(DATA / "26.05")
CHILD_OF = """#!/bin/sh
shift 2  # -I -B
exec {python} -B -c 'import runpy, sys
sys.path.insert(0, "{folder}")
runpy.run_path(sys.argv[1], run_name="__main__")' "$1"
"""
MODULE = """
__version__ = "26.5.0"
class RPCError(Exception):
    pass
class Job:
    {fields}
    def __init__(self, **known):
        self.__dict__.update(known)
class Jobs(dict):
    @staticmethod
    def load():
        {load}
"""


def interpreter(folder: Path, load: str, version: str = "26.5.0") -> Path:
    """A Python whose pyslurm has the documented classes and does `load` when asked for jobs."""
    fields = "; ".join(f"{name} = None" for name in FIELDS)
    module = MODULE.format(fields=fields, load=load).replace("26.5.0", version)
    (folder / "pyslurm.py").write_text(module)
    python = folder / "python"
    python.write_text(CHILD_OF.format(python=sys.executable, folder=folder))
    python.chmod(0o755)
    return python


def job(**known: Any) -> dict[str, Any]:
    """A job as pyslurm has it: an ordinary pending one, changed."""
    usual: dict[str, Any] = {
        **dict.fromkeys(FIELDS),
        "id": 7,
        "state": "PENDING",
        "state_reason": "Priority",
        "priority": 4294901757,
        "nice": 0,
        "submit_time": 1795249208,
        "user_id": 0,
        "is_cronjob": False,
    }
    return usual | known


def line_of(known: dict[str, Any]) -> str:
    return json.dumps([known[name] for name in FIELDS], separators=(",", ":"))


def ask(python: Path, timeout_s: float = 60.0) -> tuple[str, dict[str, str]]:
    return ask_pyslurm(Commands(SlurmCli(timeout_s=timeout_s)), python, (26, 5))


def test_what_is_printed_by_pyslurm_does_not_get_into_the_answer(tmp_path: Path) -> None:
    known = {"id": 7, "priority": 3, "excluded_nodes": "n[1-2]"}
    load = "print('tres gpu'); return Jobs({7: Job(id=7, priority=3, excluded_nodes='n[1-2]')})"
    expected = {"7": line_of(dict.fromkeys(FIELDS) | known)}
    assert ask(interpreter(tmp_path, load)) == ("26.5.0", expected)


def test_bytes_that_are_no_utf8_are_escaped_as_in_text(tmp_path: Path) -> None:
    load = (
        "setattr(Job, 'account', property(lambda self: b'a\\xffb'.decode()))"
        "; return Jobs({7: Job(id=7)})"
    )
    (line,) = ask(interpreter(tmp_path, load))[1].values()
    assert json.loads(line)[FIELDS.index("account")] == "a\\xffb"


@pytest.mark.parametrize(
    ("load", "version", "edit", "why"),
    [
        ("return Jobs()", "25.11.2", "", "pyslurm 25.11.2 of .* is not of slurmctld's release, 26"),
        ("return Jobs()", "", "", r"pyslurm \? of .* is not of slurmctld's release"),
        ("import os; os.abort()", "26.5.0", "", "ended with -6"),
        ("raise KeyError('gpu')", "26.5.0", "", "ended with 1: .*KeyError: 'gpu'"),
        ("return Jobs()", "26.5.0", "is_cronjob = None", r"26\.5\.0: a Job has no is_cronjob"),
        ("return Jobs()", "26.5.0", "class Jobs(dict)", r"26\.5\.0: has no class Jobs"),
    ],
)
def test_a_pyslurm_that_is_unfit_says_why(
    tmp_path: Path, load: str, version: str, edit: str, why: str
) -> None:
    python, module = interpreter(tmp_path, load, version), tmp_path / "pyslurm.py"
    if edit:
        other = "class Other(dict)" if "class" in edit else "pass"
        module.write_text(module.read_text().replace(edit, other))
    with pytest.raises(UnusableError, match=why):
        ask(python)


def test_a_python_without_pyslurm_or_no_python_is_unfit(tmp_path: Path) -> None:
    for python, why in (
        (Path(sys.executable), "No module named 'pyslurm'"),
        (tmp_path / "nowhere", r"pyslurm is not installed in .*/nowhere"),
    ):
        with pytest.raises(UnusableError, match=why):
            ask(python)


def test_a_controller_that_is_away_is_no_reason_for_text(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="pyslurm: Unable to contact") as caught:
        ask(interpreter(tmp_path, "raise RPCError('Unable to contact slurm controller')"))
    assert not isinstance(caught.value, UnusableError)


def test_a_call_that_hangs_is_ended_in_time_and_counted(tmp_path: Path) -> None:
    calls: list[Call] = []
    python = interpreter(tmp_path, "import time; time.sleep(600)")
    commands = Commands(SlurmCli(timeout_s=1.0), calls.append)
    with pytest.raises(BackendError, match="pyslurm gave no answer within 1 s") as caught:
        ask_pyslurm(commands, python, (26, 5))
    assert not isinstance(caught.value, UnusableError)
    assert [(c.program, c.exit_code) for c in calls] == [("pyslurm", None)]


HEAD = '{"pyslurm":"26.5.0","jobs":%s}\n%s'
CUT = "jobs in the answer, .* were announced"


@pytest.mark.parametrize(
    ("out", "why"),
    [
        *((out, "pyslurm: ") for out in ("", "[]", "{")),
        *((HEAD % said, CUT) for said in (("null", ""), ("[7]", "[7]\n"), ("2", "[7]\n"))),
    ],
)
def test_an_answer_that_is_none_or_cut_is_refused(tmp_path: Path, out: str, why: str) -> None:
    with pytest.raises(SnapshotError, match=why):
        ask(answering(tmp_path, out))


@pytest.mark.parametrize("line", ["[7]", "[7,", "7"])
def test_a_line_that_is_no_job_costs_that_job(line: str) -> None:
    bad = list[Unreadable]()
    assert list(rows_of({"7": line}, [{"jobid": "7"}, {"jobid": "7"}], bad)) == []
    assert [u.job_id for u in bad] == [7]


@pytest.mark.parametrize(("task", "changed"), [(None, False), (None, True), (3, True), (3, False)])
def test_a_second_row_of_squeue_is_doubt_unless_it_is_of_another_task(
    task: int | None, changed: bool
) -> None:
    known = {"array_id": None if task is None else 7, "array_tasks_waiting": task and "3-4"}
    lines = {str(n): line_of(job(id=n, **known)) for n in (7, 8)}
    first = {name: word for name, word in ROW.items() if name not in TOLD}
    second = first | ({"timelimit": "30-00:00:00"} if changed else {})
    asks = [{"jobid": n, **more} for n, more in (("7", first), ("8", first), ("7", second))]
    queue = QueueReader().read(rows_of(lines, [*asks, {"jobid": "9", **first}], []))
    doubted = [JobId(7)] if changed or task is None else []
    assert [(u.job_id, u.why) for u in queue.unreadable] == [(n, TWICE) for n in doubted]
    assert sorted(j.job_id for j in queue.pending) == [n for n in (7, 8) if n not in doubted]


def answering(folder: Path, out: str) -> Path:
    python = folder / "python"
    (folder / "out").write_text(out)
    return executable(python, f"#!/bin/sh\nexec cat {folder}/out\n")


ARRAY = {"array_id": 7, "array_tasks_waiting": "0-9", "array_tasks_parallel": None}
OFTEN = {"afterok": [3, "4_*"], "afterany": [5], "satisfy": "all"}


@pytest.mark.parametrize(
    ("known", "column", "text"),
    [
        (ARRAY, "arraytaskid", "0-9"),
        ({"array_id": 5, "array_task_id": None}, "arraytaskid", "0"),
        ({"state": "CONFIGURING"}, "statecompact", "CF"),
        ({"state": "SOMETHING_NEW"}, "statecompact", "OTH"),
        ({"dependencies": OFTEN}, "dependency", "afterok:3:4_*,afterany:5"),
        ({"dependencies": {"afterok": [3], "singleton": True, "satisfy": "any"}}, "dependency",
         "afterok:3?singleton"),
        ({"dependencies": {"afterok": [], "satisfy": "all"}}, "dependency", "of an unknown kind"),
        ({"heterogeneous_id": 7}, "hetjoboffset", "0"),
        ({"heterogeneous_id": 6, "heterogeneous_offset": 1}, "hetjoboffset", "1"),
        ({"user_id": 4_000_000_000}, "username", "4000000000"),
        ({"start_time": None}, "starttime", "N/A"),
    ],
)  # fmt: skip
def test_what_the_recorded_queue_does_not_hold(
    known: dict[str, Any], column: str, text: str
) -> None:
    assert row_of(line_of(job(**known)))[column] == text


@pytest.mark.parametrize(
    "known",
    [
        {"priority": "UNLIMITED"},
        {"priority": True},
        {"id": 7, "nice": 1.5},
        {"user_id": None},
        {"is_cronjob": None},
        {"state": 3},
        {"dependencies": 3},
    ],
)
def test_a_value_of_another_kind_costs_that_job(known: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is no|neither|are no"):
        row_of(line_of(job(**known)))


def watched(
    folder: Path, python: Path
) -> tuple[Callable[[float], list[PendingJob]], list[ReaderChoice]]:
    """A way to observe the recorded cluster at a time of one's choice, and who read."""
    received: list[ReaderChoice] = []
    now = [RECORDED.taken_at]
    backend = replay_beside(
        python, folder, RECORDED, on_reading=received.append, now=lambda: now[0]
    )

    def observe(later_s: float) -> list[PendingJob]:
        now[0] = RECORDED.taken_at + later_s
        return list(backend.observe().pending)

    return observe, received


def test_text_stands_in_says_so_once_and_pyslurm_is_tried_again_later(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    python = interpreter(other, "return Jobs()", "25.11.2")
    observe, received = watched(tmp_path, python)
    expected = replay(tmp_path, RECORDED).observe()
    assert observe(0.0) == list(expected.pending)
    assert [(r.wanted, r.reader, r.stands_in) for r in received] == [(PYSLURM, TEXT, True)]
    interpreter(other, "return Jobs()")  # the right release is installed
    assert observe(REST_S / 2) == list(expected.pending)
    assert len(received) == 1
    assert observe(REST_S + 1) == []  # asked again; it knows no job, so none is reported
    assert [(r.reader, r.stands_in) for r in received[1:]] == [(PYSLURM, False)]


def test_jobs_that_only_one_of_both_knows_are_left_out(tmp_path: Path) -> None:
    ids = RECORDED.ids
    known = [job(id=ids["nice"]), job(id=999_999, state="COMPLETED")]
    first = json.dumps({"pyslurm": "26.5.0", "jobs": len(known)})
    (tmp_path / "p").mkdir()
    answering(tmp_path / "p", "\n".join([first, *map(line_of, known)]))
    observe, _ = watched(tmp_path, tmp_path / "p" / "python")
    assert [j.job_id for j in observe(0.0)] == [ids["nice"]]


def test_check_says_who_reads(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    python = interpreter(tmp_path / "p", "return Jobs()", "25.11.2")
    backend = replay_beside(python, tmp_path, RECORDED)
    reading = backend.reading()
    assert reading.stands_in
    assert "25.11.2" in reading.detail
    interpreter(tmp_path / "p", "return Jobs({7: Job(id=7)})")
    reading = backend.reading()
    assert (reading.stands_in, reading.detail) == (False, "pyslurm 26.5.0, 1 jobs")
