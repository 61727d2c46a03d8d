"""Tables cannot be forged, cut or short without our noticing, and lists of tasks neither."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rltuned.domain.kinds import Digester
from rltuned.domain.units import JobId
from rltuned.errors import SnapshotError
from rltuned.slurm import columns
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.columns import FIELD, JOB_COLUMNS, Marks
from rltuned.slurm.run import Commands, SlurmCli
from rltuned.slurm.squeue import MOST_ASKED, TWICE, SteppedTasks
from tests.programs import answer, executable
from tests.recorded import DATA, Recording, replay

MARKS = Marks(record="\x1e#t")
RECORDED = Recording(DATA / "22.05")


def table(*rows: tuple[str, ...]) -> str:
    return "".join(FIELD.join(row) + MARKS.record + "\n" for row in rows)


def rows(text: str, stderr: str = "", width: int = 3) -> list[list[str]]:
    return list(MARKS.rows(answer(text, stderr), width))


HEAD = ("JOBID", "PRIORITY", "ACCOUNT")


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


@pytest.mark.parametrize("size", [1, 3, 4096])
def test_records_and_marks_over_several_pieces_are_read(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("rltuned.run._PIECE", size)
    said = [("1", "2", "x" * 20_000), *((str(n), "2", "y") for n in range(100))]
    assert rows(table(HEAD, *said[size < 4096 :])) == [list(row) for row in said[size < 4096 :]]


def test_a_record_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MOST_BYTES", 300_000)
    monkeypatch.setattr("rltuned.run._PIECE", 4096)
    for text, why in (("", "the answer has no header"), (table(HEAD), "more than 300000 bytes")):
        with pytest.raises(SnapshotError, match=why):
            rows(text + "x" * 400_000)


def test_a_whole_answer_is_used_whatever_stands_beside_it() -> None:
    for word in ("", "squeue: warning: old", "squeue: error: old", "squeue: fatal: old"):
        assert rows(table(HEAD, ("1", "2", "x")), word) == [["1", "2", "x"]]
    assert rows(table(HEAD)) == []


@pytest.mark.parametrize(
    ("program", "name"), [("squeue", "SQUEUE_FORMAT2"), ("sprio", "SPRIO_FORMAT")]
)
def test_marks_stand_where_their_owner_alone_reads_them(
    tmp_path: Path, program: str, name: str
) -> None:
    """Everyone can read the arguments of a command, and then name a folder after them."""
    replay(tmp_path, RECORDED)
    (tmp_path / program).rename(tmp_path / "said")
    noted = f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\necho "${name}" >>{tmp_path}/told\n'
    executable(tmp_path / program, f'{noted}exec {tmp_path}/said "$@"\n')
    cli, digester = SlurmCli(bin_dir=tmp_path), Digester(bytes(32))
    reader = SlurmBackend(cli, lambda: 0.0, digester=digester)
    asks: list[Callable[[], object]] = [lambda: reader.pending(only=[])]
    if program == "squeue":
        asks = [
            lambda: reader.watch([], factors=False),
            lambda: reader.speeds(JobId(7)),
            lambda: reader.expected_start(JobId(7)),
            lambda: reader.pending(factors=False),
        ]
    for ask in asks * 2:
        with pytest.raises(SnapshotError, match="no header"):  # it knows no other mark than its own
            ask()
    assert not {"\x1e", "\x1f"} & set((tmp_path / "asked").read_text())
    told = [line for line in (tmp_path / "told").read_text().split("\n") if "\x1e" in line]
    assert len(told) == len(set(told)) == 2 * len(asks)


def test_marks_differ_between_calls_and_formats_are_pinned() -> None:
    assert Marks().record != Marks().record
    assert MARKS.columns(("a", "b")) == "a:\x1f,b:\x1e#t"
    assert MARKS.letters("iY") == "%i\x1f%Y\x1e#t"
    assert JOB_COLUMNS[-1] == "account"
    assert not {"name", "comment", "command", "workdir", "wckey"} & set(JOB_COLUMNS)


def shown(first: int, count: int, step: int) -> list[str]:
    return [str(first + step * at) for at in range(count)]


def tasks_where(folder: Path, says: str) -> SteppedTasks:
    """scontrol says this of job 3, and notes that it was asked."""
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\necho asked >>{folder}/asked\n{says}\n")
    program.chmod(0o755)
    return SteppedTasks(Commands(SlurmCli(bin_dir=folder)))


def line(tasks: str) -> str:
    return f"echo 'JobId=3 ArrayJobId=3 ArrayTaskId={tasks} JobName=a'"


def asked(folder: Path) -> int:
    return len((folder / "asked").read_text().splitlines())


@pytest.mark.parametrize(
    "tasks", [shown(0, 4, 2), shown(0, 90, 1), ["1", "3", "5", "7", "10"], ["0-98:2"], ["N/A"]]
)
def test_tasks_that_are_shown_whole(tmp_path: Path, tasks: list[str]) -> None:
    found = tasks_where(tmp_path, line("0-98:2"))
    assert found.whole("3", tasks) == tasks
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("says", "tasks"), [("0-98:2", shown(0, 50, 2)), ("0-96:2%3", shown(0, 49, 2))]
)
def test_scontrol_is_asked_once_as_long_as_squeue_shows_the_same(
    tmp_path: Path, says: str, tasks: list[str]
) -> None:
    found = tasks_where(tmp_path, line(says))
    for _ in range(3):
        found.look()
        assert found.whole("3", shown(0, 49, 2)) == tasks
        assert found.whole("3", shown(0, 49, 2)) == tasks
    assert asked(tmp_path) == 1
    with pytest.raises(ValueError, match="changed while"):
        found.whole("3", shown(2, 48, 2))
    assert asked(tmp_path) == 2


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (line("4-98:2"), "changed while"),
        (line("0-100:2"), "changed while"),
        (line("0-4000000000:2"), "changed while"),  # a job's name, and two thousand million tasks
        (f"{line('0-98:2')}; {line('0-96:2')}", TWICE),  # one of them is a job's name
        (line("0,2,4,x"), "no array tasks"),
        ("echo JobId=30 ArrayJobId=3 ArrayTaskId=0-98:2", "scontrol shows none"),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "shows none"),
    ],
)
def test_a_list_that_is_not_known_costs_the_job(tmp_path: Path, says: str, why: str) -> None:
    found = tasks_where(tmp_path, says)
    found.look()
    with pytest.raises(ValueError, match=why):
        found.whole("3", shown(0, 49, 2))


def test_no_cycle_asks_for_thousands(tmp_path: Path) -> None:
    found = tasks_where(tmp_path, line("0-98:2"))
    found.look()
    for at in range(MOST_ASKED):
        with pytest.raises(ValueError, match="changed while"):
            found.whole("3", shown(2, 40 + at, 2))
    with pytest.raises(ValueError, match="asked later"):
        found.whole("3", shown(0, 49, 2))
    found.look()
    assert found.whole("3", shown(0, 49, 2)) == shown(0, 50, 2)
