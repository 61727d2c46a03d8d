"""Rows of sacct: what is read, and that every row that is not used is counted by its reason."""

import gzip
import json
import math
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from rltuned.errors import TraceError
from rltuned.slurm import accounting
from rltuned.slurm.accounting import SacctAnswer, read_history
from rltuned.slurm.sacct import COLUMNS, lines_of
from tests.histories import EPOCH

HOME = Path(__file__).resolve().parents[1] / "data" / "slurm"
GOOD = {
    "JobIDRaw": "7",
    "JobID": "7",
    "Submit": f"{EPOCH}",
    "Eligible": f"{EPOCH + 5}",
    "Start": f"{EPOCH + 60}",
    "End": f"{EPOCH + 90}",
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


def line(**changed: str) -> str:
    return "|".join((GOOD | changed)[c] for c in COLUMNS)


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
    names = [*reversed(COLUMNS[:13])]
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
