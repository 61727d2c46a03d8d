"""Histories in the forms that sites save them in, on a cluster: none is refused for its form."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from rltuned.lab.backtest.past import Past, Span, past_of
from rltuned.lab.backtest.sacct_files import read_history
from rltuned.lab.backtest.site import read_site_model
from rltuned.lab.cli.traces import read_sacct_text
from rltuned.slurm.accounting import COLUMNS
from tests.backtest.worlds import jobs, site
from tests.histories import EPOCH

NAMES = tuple(name for name in COLUMNS if name != "ElapsedRaw")
"""Of the rows that tests.histories makes."""
Row = Mapping[str, str]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return site(tmp_path / "site", jobs(200))


def rows(saved: Path) -> list[dict[str, str]]:
    lines = (saved / "sacct.txt").read_text().splitlines()
    return [dict(zip(NAMES, line.split("|"), strict=True)) for line in lines]


def text(found: Sequence[Row], names: Sequence[str]) -> list[str]:
    return ["|".join(names), *("|".join(row.get(n, "") for n in names) for row in found)]


def played(saved: Path, lines: Sequence[str]) -> Past:
    return past_of(read_history(lines, "rows", UTC), read_site_model(saved), Span())


def waiting(number: int, name: str) -> dict[str, str]:
    times = {"Start": "Unknown", "End": "Unknown", "State": "PENDING", "NodeList": ""}
    asked = "cpu=1,gres/gpu=1,node=1"
    return times | {
        "JobIDRaw": str(number), "JobID": name, "Submit": str(EPOCH + 60), "ReqTRES": asked,
        "AllocTRES": "", "TimelimitRaw": "10", "Eligible": str(EPOCH + 60), "Partition": "gpu",
        "User": "u", "Account": "a",
    }  # fmt: skip


def test_jobs_known_by_their_names_alone_are_played(saved: Path) -> None:
    found = rows(saved)
    parts = [row | {"JobID": f"{row['JobID']}+{i}"} for row in found[50:53] for i in (0, 1)]
    more = [*parts, waiting(9000, "9000_[1-5,7,...]"), waiting(9100, "9100_[0-3]")]
    lines = text([*found[:50], *found[53:], *more], NAMES[1:])
    past = played(saved, lines)
    assert past.left_out == {"ended before the record begins": 1}
    assert sum(job.job_id.startswith("9000_") for job in past.jobs) == 6
    assert sum("+" in job.job_id for job in past.jobs) == 6


def test_a_suspended_job_is_played_without_its_suspension(saved: Path) -> None:
    found = [row | {"ElapsedRaw": str(int(row["End"]) - int(row["Start"]))} for row in rows(saved)]
    at = max(range(len(found)), key=lambda i: int(found[i]["ElapsedRaw"]))
    assert int(found[at]["ElapsedRaw"]) > 60
    found[at]["ElapsedRaw"] = "60"
    before, after = played(saved, text(found, NAMES)), played(saved, text(found, COLUMNS))
    mine = {job.job_id.partition("#")[0]: job.duration_s for job in after.jobs}
    others = {job.job_id.partition("#")[0]: job.duration_s for job in before.jobs}
    changed = {key: run for key, run in mine.items() if others[key] != run}
    assert changed == {found[at]["JobIDRaw"]: 60.0}
    assert (before.ended_s == after.ended_s).all(), "its end is when it was"


def test_a_job_that_ends_in_the_second_of_its_start_is_a_second_long(
    saved: Path, tmp_path: Path
) -> None:
    found = rows(saved)
    found[3] |= {"End": found[3]["Start"]}
    found[4] |= {"ReqTRES": "cpu=99999999999999999,gres/gpu=1", "AllocTRES": ""}
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(text(found, NAMES)))
    reading = read_sacct_text(path)
    assert len(reading.jobs) + len(reading.bad) == 200
    assert {j.job_id: j.duration_s for j in reading.jobs}[found[3]["JobIDRaw"]] == 1.0


def test_what_a_constraint_holds_changes_nothing(saved: Path) -> None:
    found = rows(saved)
    bound = [row | {"Constraints": "k80|p100" if i % 2 else ""} for i, row in enumerate(found)]
    for names in (NAMES, tuple(reversed(NAMES))):
        past = played(saved, text(bound, names))
        assert len(past.jobs) == 199
    plain = played(saved, text(found, NAMES))
    assert past.jobs == tuple(replace(job) for job in plain.jobs)
