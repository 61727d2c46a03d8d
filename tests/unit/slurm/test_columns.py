"""Tables cannot be forged, cut or short without our noticing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm import columns
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.columns import FIELD, JOB_COLUMNS, Marks
from rltuned.slurm.commands import Commands, SlurmCli
from rltuned.slurm.talk import Answer, Stream
from tests.programs import executable
from tests.recorded import DATA, Recording, replay

MARKS = Marks(record="\x1e#t")
RECORDED = Recording(DATA / "22.05")


def table(*rows: tuple[str, ...]) -> str:
    return "".join(FIELD.join(row) + MARKS.record + "\n" for row in rows)


def rows(text: str, stderr: str = "", width: int = 3) -> list[list[str]]:
    return list(MARKS.rows("squeue", Answer(text, stderr, 0), width))


HEAD = ("JOBID", "PRIORITY", "ACCOUNT")


def streamed(folder: Path, text: str) -> Stream:
    """What a program says of a table, in pieces of at most 65,536 bytes."""
    (folder / "table").write_text(text)
    executable(folder / "squeue", f'#!/bin/sh\nexec cat "{folder}/table"\n')
    return Commands(SlurmCli(bin_dir=folder), lambda _: None).stream("squeue")


def test_rows_without_the_header() -> None:
    assert rows(table(HEAD, ("1", "2", "x"))) == [["1", "2", "x"]]
    assert rows(table(HEAD)) == []


def test_account_with_our_separators_and_newlines_stays_one_field() -> None:
    evil = f"x\n1{FIELD}2{FIELD}y\x1e\n"
    assert rows(table(HEAD, ("1", "2", evil), ("3", "4", "z"))) == [
        ["1", "2", evil],
        ["3", "4", "z"],
    ]


@pytest.mark.parametrize(
    ("text", "stderr", "says"),
    [
        ("", "", "no header"),
        ("garbage\n", "", "no header: 'garbage'"),
        (table(HEAD, ("1", "2", "x"))[:-1], "", "cut after"),
        (table(HEAD) + "1\x1f2", "", "cut after 0 records"),
        (table(("JOBID", "", "ACCOUNT"), ("1", "", "x")), "", "has not the 3 columns"),
        (table(("JOBID", "ACCOUNT")), "", "has not the 3 columns"),
        (table(HEAD, ("1", "2", "x"), ("1", "2")), "", "record 2 has 2 of 3 columns"),
        (
            table(("JOBID", "", "ACCOUNT")),
            "squeue: error: Invalid job format specification: x",
            "complained: .*format.*: .* not the 3 columns",
        ),
        ("", "squeue: error: slurm_load_jobs: no answer", "complained: .*no answer.*: .*no header"),
    ],
)
def test_broken_tables_name_the_command_and_the_record(text: str, stderr: str, says: str) -> None:
    with pytest.raises(SnapshotError, match=f"squeue.*{says}"):
        rows(text, stderr)


def test_records_over_several_pieces_and_marks_between_two_are_read(tmp_path: Path) -> None:
    said = [("1", "2", "x" * 200_000), *((str(n), "2", "y") for n in range(50_000))]
    found = list(MARKS.rows("squeue", streamed(tmp_path, table(HEAD, *said)), 3))
    assert found == [list(row) for row in said]


class Typed:
    """An answer that comes letter by letter."""

    stderr = ""

    def __init__(self, text: str) -> None:
        self._text = text

    def __iter__(self) -> Iterator[str]:
        return iter(self._text)


def test_a_mark_in_any_number_of_pieces_is_found() -> None:
    said = [("1", "2", "x"), ("3", "4", "y")]
    pieces = Typed(table(HEAD, *said))
    assert list(MARKS.rows("squeue", pieces, 3)) == [list(row) for row in said]  # type: ignore[arg-type]


def test_a_record_without_end_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MOST_CHARACTERS", 300_000)
    header = table(HEAD)
    for text, why in (("", "the answer has no header"), (header, "more than 300000 characters")):
        with pytest.raises(SnapshotError, match=why):
            list(MARKS.rows("squeue", streamed(tmp_path, text + "x" * 400_000), 3))


@pytest.mark.parametrize("word", ["warning", "error", "fatal"])
def test_a_whole_answer_is_used_whatever_stands_beside_it(word: str) -> None:
    assert rows(table(HEAD, ("1", "2", "x")), f"squeue: {word}: old") == [["1", "2", "x"]]


def test_no_call_has_the_marks_of_the_one_before(tmp_path: Path) -> None:
    """Everyone can read the arguments of a command, and then name a folder after them."""
    replay(tmp_path, RECORDED)
    sinfo = tmp_path / "sinfo"
    sinfo.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\nexec false\n')
    world = SlurmBackend(SlurmCli(bin_dir=tmp_path), lambda: RECORDED.taken_at)
    for _ in range(3):
        with pytest.raises((BackendError, SnapshotError)):
            world.observe()
    asked = (tmp_path / "asked").read_text().split("\n")[:-1]
    assert len(asked) == len(set(asked)) == 3


def test_marks_differ_between_calls_and_formats_are_pinned() -> None:
    assert Marks().record != Marks().record
    assert MARKS.columns(("a", "b")) == "a:\x1f,b:\x1e#t"
    assert MARKS.letters("iY") == "%i\x1f%Y\x1e#t"
    assert JOB_COLUMNS[-1] == "account"
    assert not {"name", "comment", "command", "workdir", "wckey"} & set(JOB_COLUMNS)
