"""Dumps of sacct in any order, overlap and cut give each job once, as it was in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC

from hypothesis import given
from hypothesis import strategies as st

from rltuned.lab.backtest.sacct_files import read_history
from rltuned.slurm.accounting import COLUMNS, SacctRecord

T0 = 1_795_000_000
Run = tuple[int, int, int]
"""Seconds until it is submitted (again), until it starts, and until it ends."""
runs = st.lists(st.tuples(st.integers(1, 900), st.integers(0, 900), st.integers(1, 900)),
                min_size=1, max_size=3)  # fmt: skip
Cells = Mapping[str, str]


def looked_at(number: int, job: Sequence[Run], now: int, array: str = "") -> list[Cells]:
    """What `sacct -D` shows of a job at a moment; each of its runs but the last is requeued."""
    rows, at = list[Cells](), T0
    for i, (wait, held, ran) in enumerate(job):
        submit = at + wait
        start, at = submit + held, submit + held + ran
        if submit > now:
            break
        waits, runs_on = start > now, at > now
        state = "REQUEUED" if i + 1 < len(job) else "COMPLETED"
        rows.append(
            dict.fromkeys(COLUMNS, "")
            | {
                "JobIDRaw": str(number),
                "JobID": f"{array}_{number}" if array else str(number),
                "Submit": str(submit),
                "Eligible": str(submit),
                "Start": "Unknown" if waits else str(start),
                "End": "Unknown" if runs_on else str(at),
                "ElapsedRaw": "0" if waits else str(min(at, now) - start),
                "State": "PENDING" if waits else "RUNNING" if runs_on else state,
                "TimelimitRaw": "60",
                "ReqTRES": "cpu=4,gres/gpu=1,node=1",
                "AllocTRES": "" if waits else "cpu=4,gres/gpu=1,node=1",
                "NodeList": "None assigned" if waits else "p1",
                "Partition": "gpu",
                "User": "ann",
            }
        )
    return rows


def read(rows: Sequence[Cells]) -> tuple[list[SacctRecord], int]:
    lines = ["|".join(COLUMNS), *("|".join(row[name] for name in COLUMNS) for row in rows)]
    found = read_history(lines, "rows", UTC)
    assert sum(found.left_out.values()) + len(found.records) == found.rows == len(rows)
    return sorted(
        (replace(r, line=0) for r in found.records), key=lambda r: (r.number, r.submit_s)
    ), len(found.left_out)


@given(st.lists(runs, min_size=1, max_size=6), st.data())
def test_each_job_is_there_once_with_its_end(jobs: list[list[Run]], data: st.DataObject) -> None:
    looks = data.draw(st.lists(st.integers(T0, T0 + 9_000), max_size=5))
    rows = [
        row
        for look in (*looks, T0 + 9_000)
        for number, job in enumerate(jobs, 1)
        for row in looked_at(number, job, look)
    ]
    kept = [row for row in rows if row["End"] != "Unknown" or data.draw(st.booleans())]
    shuffled = data.draw(st.permutations(kept))
    found, reasons = read(shuffled)
    last = [row for n, job in enumerate(jobs, 1) for row in looked_at(n, job, T0 + 9_000)]
    assert (found, reasons) == (read(last)[0], int(len(kept) > len(last)))
    assert len(found) == sum(map(len, jobs))
    assert all(record.end_s is not None for record in found)


@given(st.lists(runs, min_size=1, max_size=5), st.data())
def test_of_jobs_that_have_not_ended_the_last_look_counts(
    jobs: list[list[Run]], data: st.DataObject
) -> None:
    looks = sorted(data.draw(st.lists(st.integers(T0, T0 + 4_000), min_size=1, max_size=5)))
    seen = {
        look: [row for n, job in enumerate(jobs, 1) for row in looked_at(n, job, look)]
        for look in looks
    }
    rows = [row for look in looks for row in seen[look]]
    if rows:
        assert read(data.draw(st.permutations(rows)))[0] == read(seen[looks[-1]])[0]


@given(st.integers(2, 8), st.data())
def test_tasks_that_left_their_array_count_once(tasks: int, data: st.DataObject) -> None:
    left = data.draw(st.sets(st.integers(1, tasks), max_size=tasks))
    apart = [replaced(looked_at(100 + t, [(1, 5, 60)], T0 + 500)[0], f"7_{t}") for t in left]
    (waiting,) = looked_at(7, [(1, 900, 60)], T0 + 5)
    undivided = [replaced(waiting, f"7_[1-{tasks}%2]")]
    for named in (True, False):
        rows = data.draw(st.permutations([*apart, *undivided * 2]))
        drop = {} if named else {"JobIDRaw": ""}
        names = COLUMNS if named else COLUMNS[1:]
        lines = ["|".join(names), *("|".join((r | drop)[n] for n in names) for r in rows)]
        found = read_history(lines, "rows", UTC)
        assert sum(record.tasks for record in found.records) == tasks


def replaced(row: Cells, name: str) -> dict[str, str]:
    return {**row, "JobID": name}


@given(runs, runs, st.data())
def test_two_ends_of_one_run_are_doubt_about_that_job(
    job: list[Run], other: list[Run], data: st.DataObject
) -> None:
    true = looked_at(1, job, T0 + 9_000)
    which = data.draw(st.sampled_from(true))
    forged = {**which, "End": str(int(which["End"]) + 60)}
    beside = looked_at(2, other, T0 + 9_000)
    found, _ = read(data.draw(st.permutations([*true, forged, *beside])))
    others = [row for row in (*true, *beside) if row is not which]
    assert found == (read(others)[0] if others else [])
