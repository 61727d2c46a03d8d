"""Rows of sacct, in the forms that sites save them in: what is read, and what is left out."""

import gzip
import json
import math
import os
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from rltuned import files
from rltuned.errors import TraceError
from rltuned.lab.backtest.sacct_files import REQUIRED, STANDS_FOR, lines_of, read_history
from rltuned.lab.cli import traces
from rltuned.lab.cli.traces import read_sacct_text
from rltuned.lab.replay.trace_file import read_text
from rltuned.lab.train import imitation
from rltuned.slurm import accounting
from rltuned.slurm.accounting import COLUMNS, RESIZED, SacctAnswer, SacctRecord
from rltuned.slurm.columns import FIELD
from tests.histories import EPOCH

HOME = Path(__file__).resolve().parents[1] / "data" / "slurm"
GOOD = {
    "JobIDRaw": "7",
    "JobID": "7",
    "Submit": f"{EPOCH}",
    "Eligible": f"{EPOCH + 5}",
    "Start": f"{EPOCH + 60}",
    "End": f"{EPOCH + 90}",
    "ElapsedRaw": "30",
    "State": "COMPLETED",
    "TimelimitRaw": "10",
    "ReqTRES": "billing=2,cpu=2,gres/gpu=1,mem=4G,node=1",
    "AllocTRES": "billing=2,cpu=2,gres/gpu=1,mem=4G,node=1",
    "NodeList": "a1",
    "Partition": "gpu",
    "User": "ann",
    "Account": "lab",
    "QOS": "normal",
    "Priority": "1200",
    "Flags": "SchedMain",
    "Reservation": "",
    "Constraints": "",
}


def line(between: str = "|", names: Sequence[str] = COLUMNS, **changed: str) -> str:
    return between.join((GOOD | changed)[c] for c in names)


def read(*lines: str, since: float = -math.inf) -> SacctAnswer:
    return read_history(lines, "rows", UTC, since=since)


def test_a_row_becomes_a_record() -> None:
    (job,) = read(line()).records
    assert (job.submit_s, job.eligible_s, job.start_s, job.end_s) == (
        EPOCH,
        EPOCH + 5,
        EPOCH + 60,
        EPOCH + 90,
    )
    assert (job.gpus, job.cpus, job.mem_mib, job.nodes, job.limit_s) == (1, 2, 4096, None, 600.0)
    assert (job.priority, job.main, job.user) == (1200, True, "ann")


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_recorded_rows_of_three_releases(release: str) -> None:
    site = HOME / release / "site"
    ids = json.loads((site / "ids.json").read_text())
    found = read_history(lines_of(site / "sacct.txt"), "sacct.txt", UTC)
    by_key = {r.key: r for r in found.records}
    assert by_key[str(ids["done"])].state == "COMPLETED"
    assert by_key[str(ids["failed"])].gpus == 2
    whole = by_key[str(ids["whole"])]
    assert (whole.cpus, whole.alloc_cpus, whole.alloc_gpus) == (1, 16, 4)
    assert by_key[str(ids["cpu"])].gpus == 0
    assert by_key[str(ids["requeued"])].state == "REQUEUED"
    assert by_key[str(ids["het"])].het
    assert by_key[str(ids["running"])].end_s is None
    assert by_key[str(ids["waiting"])].start_s is None
    assert by_key[str(ids["waiting_array"])].tasks == 5
    assert by_key[str(ids["bound"])].constrained
    # slurmdbd shows no job that was held until it was cancelled, nor one whose time has not come
    assert {str(ids["withdrawn"]), str(ids["later"])}.isdisjoint(by_key)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"JobIDRaw": "7.batch"}, "steps of jobs"),
        ({"JobIDRaw": "seven"}, "cannot be read: JobIDRaw is no number"),
        ({"JobIDRaw": "7" * 5_000}, "cannot be read: JobIDRaw is no number"),
        ({"JobIDRaw": "²"}, "cannot be read: JobIDRaw is no number"),
        ({"TimelimitRaw": "9" * 400}, "cannot be read: TimelimitRaw"),
        ({"End": "9" * 400}, "cannot be read: End is no time"),
        ({"Eligible": "9999-12-31T23:59:59+00:00"}, "cannot be read: Eligible is no time"),
        ({"Submit": "0001-01-01T00:00:00"}, "cannot be read: Submit is no time"),
        ({"Submit": "Unknown"}, "no submit time"),
        ({"Start": "Unknown", "State": "CANCELLED by 0"}, "ended while it waited"),
        ({"NodeList": "None assigned", "State": "CANCELLED"}, "ended while it waited"),
        ({"End": f"{EPOCH + 1}"}, "ends before it starts"),
        ({"Start": f"{EPOCH - 1}"}, "starts before it is submitted"),
        ({"End": "Unknown"}, "state COMPLETED without an end"),
        ({"ReqTRES": "", "AllocTRES": ""}, "neither ReqTRES nor AllocTRES"),
        ({"ReqTRES": "cpu=lots"}, "cannot be read"),
        ({"TimelimitRaw": "1:00"}, "cannot be read: TimelimitRaw"),
        ({"Start": "yesterday"}, "cannot be read: Start is no time"),
        ({"ReqTRES": "gres/gpu:a=1,gres/gpu:b=1"}, "asks for several types"),
    ],
)
def test_rows_that_are_left_out_are_counted(changed: dict[str, str], why: str) -> None:
    found = read(line(), line(**{"JobIDRaw": "8"} | changed))
    assert len(found.records) == 1
    ((reason, count),) = found.left_out.items()
    assert why in reason
    assert count == 1
    assert found.lines[reason] == [2]


def test_a_row_cut_short_and_one_that_comes_again_are_counted() -> None:
    found = read(line(), line(), line()[:40], line(Submit=f"{EPOCH + 1}"))
    assert found.left_out["the same record again"] == 1
    assert len(found.records) == 2  # requeued: the same id, submitted again
    assert sum(found.left_out.values()) + len(found.records) == found.rows == 4


def test_a_header_may_have_any_order_and_may_lack_what_is_not_needed() -> None:
    names = [*reversed(COLUMNS[:14])]
    text = ["|".join(names), "|".join(GOOD[n] for n in names)]
    found = read(*text)
    assert found.records[0].gpus == 1
    assert found.records[0].priority is None
    assert "Priority" in found.missing


def test_times_without_a_zone_are_read_in_the_one_that_is_named() -> None:
    local = {"Submit": "2026-07-01T12:00:00", "Eligible": "Unknown"}
    local |= {"Start": "2026-07-01T12:01:00", "End": "2026-07-01T12:02:00"}
    found = read_history([line(**local)], "rows", ZoneInfo("Europe/Paris"))
    assert found.records[0].submit_s == 1_782_900_000.0
    assert found.records[0].eligible_s == found.records[0].submit_s
    assert found.zoneless == 3


def test_what_ended_before_is_not_kept() -> None:
    assert read(line(), since=EPOCH + 91.0).left_out == {"ended before the record begins": 1}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "rows: empty"),
        (["JobID|State", "1|COMPLETED"], "rows:1: header: no column 'Submit'"),
        (["a,b,c"], "rows:1: no header of sacct"),
        (["|".join(["x"] * len(COLUMNS))], "rows:1: no header of sacct"),
        (["1|2|3"], "rows:1: no header of sacct"),
    ],
)
def test_what_is_no_history_is_refused(lines: list[str], why: str) -> None:
    with pytest.raises(TraceError, match=why):
        read(*lines)


def test_too_long_a_history_is_refused_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "MOST_RECORDS", 1)
    with pytest.raises(TraceError, match="more than 1 records: choose a later --since"):
        read(line(), line(JobIDRaw="8"))


def test_gzip_is_read_and_a_truncated_one_named(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt.gz"
    packed = gzip.compress("\n".join(line(JobIDRaw=str(i)) for i in range(1, 200)).encode())
    path.write_bytes(packed)
    assert len(read_history(lines_of(path), "x", UTC).records) == 199
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceError, match=r"sacct.txt.gz: cannot be read"):
        read_history(lines_of(path), "x", UTC)
    path.write_bytes(packed[:20] + bytes(len(packed) - 20))
    with pytest.raises(TraceError, match=r"sacct.txt.gz: cannot be read"):
        read_history(lines_of(path), "x", UTC)
    with pytest.raises(TraceError, match=r"nothing.txt: cannot be read: No such file"):
        list(lines_of(tmp_path / "nothing.txt"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match=r"pipe: cannot be read: it is a pipe"):
        list(lines_of(tmp_path / "pipe"))


def test_a_file_that_unpacks_to_too_much_is_refused_with_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three million bytes can make three thousand million, of one line or of many."""
    path = tmp_path / "sacct.txt.gz"
    path.write_bytes(gzip.compress(b"\n" * 100_000))
    for bound, ends in ((100_000, True), (99_999, False)):
        monkeypatch.setattr(files, "MOST_TEXT_BYTES", bound)
        for read_it in (lambda: list(lines_of(path)), lambda: read_text(path)):
            if ends:
                read_it()
                continue
            with pytest.raises(TraceError, match=rf"sacct.txt.gz: .*more than {bound} bytes"):
                read_it()
    monkeypatch.undo()
    path.write_bytes(gzip.compress(b"x" * 2_000_000))
    with pytest.raises(TraceError, match=r"sacct.txt.gz: .*a line of more than 1048576 char"):
        list(lines_of(path))
    with gzip.open(path, "wb", compresslevel=1) as packed:
        for _ in range(600):
            packed.write(bytes(1024**2))
    with pytest.raises(TraceError, match=r"sacct.txt.gz: .*more than 536870912 bytes"):
        read_text(path)


OLDER = tuple(name for name in COLUMNS if name != "ElapsedRaw")


@pytest.mark.parametrize("names", [COLUMNS, OLDER], ids=["now", "before"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("end", ["", "|"], ids=["parsable2", "parsable"])
def test_a_bar_in_a_constraint_costs_nothing(names: Sequence[str], header: bool, end: str) -> None:
    wanted = [line(names=names, JobIDRaw=str(i), Constraints=c) + end
              for i, c in enumerate(("k80|p100", "", "[a|b|c]&d", "x"), 1)]  # fmt: skip
    found = read(*(["|".join(names) + end] if header else []), *wanted)
    assert not found.left_out
    assert [r.constrained for r in found.records] == [True, False, True, True]
    assert [r.user for r in found.records] == ["ann"] * 4
    assert found.missing == (() if names is COLUMNS else ("ElapsedRaw",))


def test_what_collect_saves_has_a_character_between_fields_that_stands_in_none() -> None:
    rows = [line(FIELD, JobIDRaw=str(i), Constraints="a|b", Reservation="x|y") for i in (1, 2)]
    found = read(*rows, line(JobIDRaw="3"))
    assert [(r.key, r.reserved) for r in found.records] == [("1", True), ("2", True), ("3", False)]


def test_of_several_texts_the_columns_around_them_are_read() -> None:
    names = ("JobID", "JobName", "Constraints", *COLUMNS[2:14])
    values = GOOD | {"JobName": "a|b", "Constraints": "c|d"}
    (job,) = read("|".join(names), "|".join(values[n] for n in names)).records
    assert (job.user, job.gpus) == ("ann", 1)
    apart = ("JobName", *COLUMNS)
    bad = read("|".join(apart), f"a|b|{line(Constraints='c|d')}", f"a|{line()}")
    assert bad.left_out == {"cannot be read: 23 fields instead of 21": 1}
    assert len(bad.records) == 1


def test_rows_before_the_first_that_is_one_cost_themselves() -> None:
    found = read("sacct: error: some remark", "", line(), line(JobIDRaw="8"))
    assert ([r.key for r in found.records], found.lines.popitem()[1]) == (["7", "8"], [1])
    named = read("a shell's greeting", "|".join(COLUMNS), line())
    assert len(named.records) == 1


@pytest.mark.parametrize("required", [REQUIRED, imitation.COLUMNS, traces.COLUMNS])
def test_the_documented_columns_are_enough_for_every_reader(required: tuple[str, ...]) -> None:
    found = read_history(["|".join(COLUMNS), line()], "rows", UTC, required=required)
    assert len(found.records) == 1
    asked = (STANDS_FOR.get(name, name) for name in required)
    other = tuple(name if name in GOOD else required[i] for i, name in enumerate(asked))
    text = "|".join(GOOD.get(n) or GOOD[STANDS_FOR[n]] for n in other)
    text = text.replace("|10|", "|00:10:00|") if "Timelimit" in other else text
    assert len(read_history(["|".join(other), text], "rows", UTC, required=required).records) == 1


@pytest.mark.parametrize(
    ("named", "number", "tasks"),
    [("12+1", (12, 1), 1), ("17_[1-5]", (17, 1, 5), 5), ("17_4", (17, 4), 1), ("9", (9,), 1)],
)
def test_a_job_known_by_its_name_alone(named: str, number: tuple[int, ...], tasks: int) -> None:
    names = COLUMNS[1:]
    waits = {"Start": "Unknown", "End": "Unknown", "State": "PENDING", "NodeList": ""}
    more = waits if tasks > 1 else {}
    found = read("|".join(names), line(names=names, JobID=named, **more))
    (job,) = found.records
    assert (job.key, job.tasks, job.number) == (named, tasks, number)
    assert read("|".join(names), line(names=names, JobID="seven")).left_out == {
        "cannot be read: JobID is no number": 1
    }


@pytest.mark.parametrize(
    ("listed", "tasks"),
    [("1-5", 5), ("0,3,6,9,...", 4), ("0,3,6,1...", 3), ("0-99:2,200,...%3", 51), ("...", 1)],
)
def test_a_list_of_tasks_that_is_cut_counts_as_far_as_it_goes(listed: str, tasks: int) -> None:
    waits = {"Start": "Unknown", "End": "Unknown", "State": "PENDING", "NodeList": ""}
    assert read(line(JobID=f"7_[{listed}]", **waits)).records[0].tasks == tasks


@pytest.mark.parametrize(
    ("column", "text", "ran_s"),
    [
        ("ElapsedRaw", "10", 10.0),
        ("ElapsedRaw", "0", 1.0),
        ("ElapsedRaw", "", 30.0),
        ("Elapsed", "00:00:20", 20.0),
        ("Suspended", "00:00:25", 5.0),
        ("Suspended", "00:00:00", 30.0),
    ],
)
def test_a_suspended_job_ran_while_it_was_not(column: str, text: str, ran_s: float) -> None:
    names = (*OLDER, column)
    values = GOOD | {column: text}
    (job,) = read("|".join(names), "|".join(values[n] for n in names)).records
    assert job.ran_s == ran_s


SACCT = Path(__file__).resolve().parents[1] / "data" / "slurm" / "22.05" / "sacct"


def records() -> dict[tuple[str, float], SacctRecord]:
    reply = read_history(lines_of(SACCT / "backtest.txt"), "backtest", UTC)
    assert reply.left_out == {RESIZED: 1}
    return {(r.key, r.submit_s): r for r in reply.records}


def test_a_resized_job_counts_once_from_its_start_to_its_end() -> None:
    (job,) = (r for r in records().values() if r.key == "1")
    assert (job.submit_s, job.start_s, job.end_s) == (1795331345, 1795331346, 1795331354)
    assert (job.gpus, job.state) == (2, "COMPLETED")


def test_gpus_are_counted_where_only_their_type_is_reported() -> None:
    found = {r.key: (r.gpus, r.gpu_types, r.limit_s) for r in records().values()}
    assert found["4"] == (4, ("t4",), 300.0)
    assert found["8"] == (0, (), 60_000_000.0)


@pytest.mark.parametrize("name", ["trace", "trace-epoch"])
def test_a_trace_has_the_same_jobs_in_either_form_of_time(name: str) -> None:
    reading = read_sacct_text(SACCT / f"{name}.txt")
    dup = name == "trace-epoch"
    assert [b.why for b in reading.bad] == [RESIZED]
    want = sorted(
        (r.submit_s, (r.end_s or 0) - (r.start_s or 0), r.gpus, r.mem_mib, r.limit_s)
        for r in records().values()
        if dup or r.state != "REQUEUED"
    )
    assert want == sorted(
        (j.submit_s, j.duration_s, j.gpus, j.mem_mib, j.time_limit_s) for j in reading.jobs
    )
    assert len({j.job_id for j in reading.jobs}) == len(reading.jobs)


def test_a_job_that_ends_in_the_second_of_its_start_is_a_second_long(tmp_path: Path) -> None:
    path, wide = tmp_path / "rows.txt", "cpu=99999999999999999,gres/gpu=1"
    rows = [
        line(names=OLDER, End=GOOD["Start"]),
        line(names=OLDER, JobIDRaw="8", ReqTRES=wide, AllocTRES=""),
    ]
    path.write_text("\n".join(["|".join(OLDER), *rows]))
    reading = read_sacct_text(path)
    assert len(reading.jobs) + len(reading.bad) == 2
    assert {j.job_id: j.duration_s for j in reading.jobs}["7"] == 1.0
