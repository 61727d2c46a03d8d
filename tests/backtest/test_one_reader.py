"""One corpus of real sacct lines, and what the backtest, the training and a trace make of it.

Recorded on Slurm 22.05.8 with AccountingStorageTRES=gres/gpu:t4: a job that was resized, one that
was requeued, an array, one that asked for GPUs of any type, limits of none and of 694 days.
"""

import math
from datetime import UTC
from pathlib import Path

import pytest

from rltuned.lab.backtest.sacct_files import lines_of, read_history
from rltuned.lab.cli.traces import read_sacct_text
from rltuned.lab.train.imitation import COLUMNS, started_of
from rltuned.slurm.accounting import RESIZED, STEPS, SacctRecord

HOME = Path(__file__).resolve().parents[1] / "data" / "slurm" / "22.05" / "sacct"


def records() -> dict[tuple[str, float], SacctRecord]:
    reply = read_history(lines_of(HOME / "backtest.txt"), "backtest", UTC)
    assert reply.left_out == {RESIZED: 1}
    return {(r.key, r.submit_s): r for r in reply.records}


def test_a_resized_job_counts_once_from_its_start_to_its_end() -> None:
    (job,) = (r for r in records().values() if r.key == "1")
    assert (job.submit_s, job.start_s, job.end_s) == (1795331345, 1795331346, 1795331354)
    assert (job.gpus, job.state) == (2, "COMPLETED")


def test_a_requeued_job_is_there_with_both_its_runs() -> None:
    runs = [r for r in records().values() if r.key == "2"]
    assert [(r.state, r.start_s) for r in runs] == [
        ("REQUEUED", 1795331349), ("COMPLETED", 1795331472),
    ]  # fmt: skip
    assert {r.limit_s for r in runs} == {math.inf}
    assert {r.gpus for r in runs} == {2}


def test_gpus_are_counted_where_only_their_type_is_reported() -> None:
    found = {r.key: (r.gpus, r.gpu_types, r.limit_s) for r in records().values()}
    assert found["4"] == (4, ("t4",), 300.0)
    assert found["8"] == (0, (), 60_000_000.0)


def test_training_reads_the_same_jobs() -> None:
    reply = read_history(lines_of(HOME / "history.txt"), "history", UTC, required=COLUMNS)
    jobs = started_of(reply.records)
    # without -D the earlier run of the requeued job is not there
    want = sorted(
        (r.submit_s, r.start_s, r.end_s, r.gpus, r.mem_mib, r.limit_s)
        for r in records().values()
        if r.state != "REQUEUED"
    )
    assert want == sorted(
        (j.submit_s, j.start_s, j.end_s, r.total.gpus, r.total.mem_mib, r.time_limit_s)
        for j in jobs
        for r in [j.request]
    )


@pytest.mark.parametrize("name", ["trace", "trace-epoch"])
def test_a_trace_has_the_same_jobs_in_either_form_of_time(name: str) -> None:
    reading = read_sacct_text(HOME / f"{name}.txt")
    dup = name == "trace-epoch"
    assert [b.why for b in reading.bad] == [RESIZED]
    assert reading.passed_over == (0 if dup else 7)
    want = sorted(
        (r.submit_s, (r.end_s or 0) - (r.start_s or 0), r.gpus, r.mem_mib, r.limit_s)
        for r in records().values()
        if dup or r.state != "REQUEUED"
    )
    assert want == sorted(
        (j.submit_s, j.duration_s, j.gpus, j.mem_mib, j.time_limit_s) for j in reading.jobs
    )
    assert len({j.job_id for j in reading.jobs}) == len(reading.jobs)


def test_one_unreadable_row_costs_that_row() -> None:
    lines = list(lines_of(HOME / "backtest.txt"))
    lines[3] = lines[3].replace("UNLIMITED", "a while")
    lines.append("half a row")
    lines.append(lines[5].replace("4|4|", "9.batch|9.batch|"))
    reply = read_history(lines, "rows", UTC)
    assert len(reply.records) == len(records()) - 1
    assert reply.left_out[STEPS] == 1
    bad = {why: found for why, found in reply.lines.items() if why.startswith("cannot be read")}
    assert sorted(line for found in bad.values() for line in found) == [4, 11]
