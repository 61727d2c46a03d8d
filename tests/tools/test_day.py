"""The judge of `make day`, its table and its counters; no Slurm."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.tools.day import Meters, Row, due, hours_of, judged, read, table
from scripts.tools.fast_daemon import rpc_counts
from tests.lab import SlurmLab

USED = {"rss_mib": 90.0, "cpu_s": 9.0, "rpcs": 60}
PART: Row = {
    "kind": "part", "part": 1, "hour": 0.0, "commit": "abc", "cores": "2", "processor": "P",
    "asked": {"hours": 0.5, "nodes": 9, "waiting": 5, "seed": 1, "speed": 24.0},
}  # fmt: skip
QUARTER: Row = {
    "kind": "quarter", "part": 1, "hour": 0.25, "late_s": [0.0, 1.5], "happened": [],
    "waiting": 5, "running": 2, "cycles": 15, "cycle_s": 0.2, "applied": 4, "skipped": {},
    "numbers": 3, "earlier": 0, "lost": [], "did": {"submitted": 2}, "rltuned": USED,
    "slurmctld": {**USED, "rpcs": 150},
}  # fmt: skip
END: Row = {
    "kind": "end", "part": 1, "restored": [], "restore_s": 1.0, "tune": 3, "tune_said": "few",
    "loaded": 3, "reload_failed": 0, "states": {"learning": 1}, "pairs": 1, "breakers": [],
}  # fmt: skip


def day(first: Row | None = None, second: Row | None = None, end: Row | None = None) -> list[Row]:
    """Half an hour that went well, but for what is given."""
    return [PART, QUARTER | (first or {}), QUARTER | {"hour": 0.5} | (second or {}),
            END | (end or {})]  # fmt: skip


def test_a_day_that_went_well_has_nothing_wrong() -> None:
    assert judged(day()) == []
    assert hours_of(day()) == 0.5


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (day({"lost": ["7: 5, journal: None"]}), "7: 5, journal: None"),
        (day({"skipped": {"policy": 1}}), "1 cycles were skipped: policy"),
        (day({"skipped": {"backend": 1}}), "slurmctld was not stopped"),
        (day({"cycles": 0}, {"cycles": 10}), "10 cycles in 30 minutes"),
        (day(end={"restored": ["site factors left: [(7, 5)]"]}), "part 1, restore: site factors"),
        (day(end={"reload_failed": 1}), "1 reloads were refused"),
        (day(end={"tune": 2}), "tune ended with 2: few"),
        (day(end={"states": {"numbers_unexplained": 1}}), "state numbers_unexplained"),
        (day()[:-1], "part 1 was interrupted"),
        ([*day()[:2], END], "0.25 of 0.5 hours: start it again"),
        ([], "there are no rows"),
    ],
)
def test_what_is_wrong_is_named(rows: list[Row], words: str) -> None:
    (wrong,) = judged(rows)
    assert words in wrong


def test_cycles_without_an_answer_are_excused_around_a_restart() -> None:
    stopped = {"happened": ["restart"], "skipped": {"backend": 2}}
    assert judged(day(stopped, {"skipped": {"backend": 1}})) == []
    assert len(judged(day({"skipped": {"backend": 1}}, stopped))) == 1


def test_the_table_has_the_daemon_beside_slurmctld() -> None:
    lines = list(table(day()))
    assert "| processor, seconds per hour of the day | 36.0 | 36.0 |" in lines
    assert "| RPCs per minute | 4.0 | 10.0 |" in lines
    assert "30 cycles in 30 minutes; skipped {}" in lines
    assert list(table([PART])) == []


def test_a_line_that_was_cut_is_no_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    assert read(file) == []
    file.write_text(json.dumps(PART) + "\n" + json.dumps(QUARTER)[:-5])
    assert read(file) == [PART]


def test_a_counter_that_begins_anew_has_risen_by_what_it_shows() -> None:
    meters = Meters()
    assert meters.rose("rpcs", 10) == 10
    meters.note("rpcs", 14)
    assert meters.rose("rpcs", 3) == 4 + 3
    assert meters.rose("rpcs", 5) == 2


def test_who_is_due_leaves_the_book() -> None:
    book = {"1": 5, "2": 9}
    assert due(book, 5) == ["1"]
    assert book == {"2": 9}


def test_rpcs_are_counted_by_user_and_by_type(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "Remote Procedure Call statistics by message type\n"
        "\tREQUEST_JOB_INFO           ( 2003) count:3      ave_time:10   total_time:30\n\n"
        "Remote Procedure Call statistics by user\n"
        "\troot            (       0) count:12     ave_time:9    total_time:108\n"
        "\tlp              (       7) count:5      ave_time:9    total_time:45\n\n"
        "Pending RPC statistics\n\tNo pending RPCs\n"
    )

    def run(_: SlurmLab, *_argv: str, **_options: Any) -> str:
        return said

    monkeypatch.setattr(SlurmLab, "run", run)
    assert rpc_counts(SlurmLab()) == {"REQUEST_JOB_INFO": 3}
    assert rpc_counts(SlurmLab(), "user") == {"root": 12, "lp": 5}
