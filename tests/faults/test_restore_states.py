"""`rltuned restore --all` in every state of the state folder and of Slurm: it never lies.

Each test starts from what one live cycle left: a journal, and site factors on three jobs. Then the
folder gets into a state, and Slurm into one. Afterwards either every number of rltuned is gone, or
the exit code is 3 and every job that has one is named.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from rltuned.cli import app
from rltuned.errors import RltunedError
from rltuned.journal.store import SCHEMA_VERSION
from tests.faults.case import Case, fill
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

JOURNAL: Final = "journal.sqlite"
BASIC: Final = '"$REAL" "$@" | sed "s|priority/multifactor|priority/basic|"'


@dataclass(frozen=True)
class Left:
    """What one live cycle left. before: the folder as it was before the first write."""

    case: Case
    folder: Path
    before: Path
    numbers: dict[int, int]
    marks: dict[Path, bytes]
    """What lies outside the folder."""

    @property
    def state(self) -> Path:
        return self.case.state

    @property
    def journal(self) -> Path:
        return self.state / JOURNAL

    def factors(self) -> dict[int, int]:
        """What Slurm shows, the faults in its commands left out."""
        return {job: int(line.split()[-1]) for job, line in self.case.sprio().items()}


@pytest.fixture(scope="module")
def left(faulty_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    faulty_lab.clear()
    folder = tmp_path_factory.mktemp("left")
    with Case(faulty_lab, folder) as case:
        case.succeeds("run", "--once", "--stage", "observe")
        before = shutil.copytree(case.state, folder / "before")
        case.succeeds("run", "--live", "--once")
        kept = shutil.copytree(case.state, folder / "kept")
        marks = {path: path.read_bytes() for path in folder.glob("journal-mark-*")}
        assert len(marks) == 1
        found = Left(case, kept, before, {}, marks)
        found.numbers.update({job: n for job, n in found.factors().items() if n})
        assert len(found.numbers) >= 2
        yield found
    faulty_lab.clear()


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def in_place(left: Left, make: Callable[[Path], object]) -> None:
    left.journal.unlink()
    make(left.journal)


def cut(path: Path, share: float) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def killed_while_it_wrote(left: Left) -> None:
    program = (
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA cache_size = 1')\n"
        "db.execute('BEGIN IMMEDIATE')\n"
        "db.execute('DELETE FROM owned')\n"
        "db.execute('CREATE TABLE filler AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL'"
        " ' SELECT i + 1 FROM n WHERE i < 5000) SELECT hex(randomblob(100)) FROM n')\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(left.journal)], check=False)


def mark_of(left: Left) -> Path:
    (mark,) = left.marks
    return mark


def only(left: Left, *names: str) -> None:
    """Leave these files alone in the folder."""
    for file in left.state.iterdir():
        if file.name not in names:
            shutil.rmtree(file) if file.is_dir() else file.unlink()


def as_an_older_copy(left: Left, *names: str) -> None:
    for name in names:
        shutil.copy(left.before / name, left.state / name)


def gone(left: Left) -> None:
    shutil.rmtree(left.state)


def of_another_cluster(left: Left) -> None:
    change(left.journal, "UPDATE owned SET cluster = 'elsewhere'")
    change(left.journal, "UPDATE cycles SET cluster = 'elsewhere'")


def an_older_whole_folder(left: Left) -> None:
    gone(left)
    shutil.copytree(left.before, left.state)


def an_older_folder_alone(left: Left) -> None:
    an_older_whole_folder(left)
    for path in left.marks:
        path.unlink()


def a_file_for_a_folder(left: Left) -> None:
    gone(left)
    left.state.write_text("")


WHOLE = {
    "whole": lambda _: None,
    "without its lock file": lambda left: (left.state / "writer.lock").unlink(),
    "without its mark": lambda left: mark_of(left).unlink(),
    "its mark spoilt": lambda left: mark_of(left).write_bytes(b"\xff"),
    "without its rollback journal": lambda left: (left.state / f"{JOURNAL}-journal").unlink(),
    "the file alone": lambda left: only(left, JOURNAL),
    "in the folder of another user, restored by root": lambda left: os.chown(
        left.state, 65534, 65534
    ),
    "killed while it wrote": killed_while_it_wrote,
}
"""All is in the journal: 0, and nothing is left."""
UNWRITABLE = {"read-only": "ro", "full": "full"}
"""The journal can be read: nothing is left, and 3 says where it was not noted."""
LOST: dict[str, Callable[[Left], object]] = {
    "missing": lambda left: left.journal.unlink(),
    "empty": lambda left: left.journal.write_bytes(b""),
    "only the lock file": lambda left: only(left, "writer.lock"),
    "a link": lambda left: in_place(left, lambda p: p.symlink_to(left.folder / JOURNAL)),
    "a link to nothing": lambda left: in_place(left, lambda p: p.symlink_to("nowhere")),
    "a link to itself": lambda left: in_place(left, lambda p: p.symlink_to(p)),
    "a named pipe": lambda left: in_place(left, os.mkfifo),
    "a folder": lambda left: in_place(left, Path.mkdir),
    "another user's": lambda left: os.chown(left.journal, 65534, 65534),
    "writable by all": lambda left: left.journal.chmod(0o666),
    "in a folder writable by all": lambda left: left.state.chmod(0o777),
    "cut in half": lambda left: cut(left.journal, 0.5),
    "cut to its head": lambda left: os.truncate(left.journal, 100),
    "cut to a page": lambda left: os.truncate(left.journal, 4096),
    "text": lambda left: left.journal.write_text("no journal\n" * 100),
    "an older copy": lambda left: as_an_older_copy(left, JOURNAL),
    "an older copy of the folder": an_older_whole_folder,
    "its mark of another": lambda left: mark_of(left).write_text('[1, "another"]'),
}
"""It is known that rltuned wrote: nothing is left, and 3 says by what it went."""
UNKNOWN: dict[str, Callable[[Left], object]] = {
    "no folder": gone,
    "an empty folder": only,
    "a file in place of the folder": a_file_for_a_folder,
    "an older copy of the folder, after a new start of the machine": an_older_folder_alone,
    "another cluster's": of_another_cluster,
    "a newer release's": lambda left: change(
        left.journal, f"PRAGMA user_version = {SCHEMA_VERSION + 1}"
    ),
}
"""Whose the numbers are is not known: they stay, and 3 names them."""


@contextmanager
def disk(left: Left, how: str) -> Iterator[None]:
    """The folder on a disk of its own, read-only or full."""
    state = left.state
    gone(left)
    state.mkdir(mode=0o700)
    options = ["-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(state)]
    subprocess.run(["mount", *options], check=True, timeout=300)
    try:
        shutil.copytree(left.folder, state, dirs_exist_ok=True)
        if how == "full":
            fill(state / "filler")
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(state)], check=True, timeout=300)
        yield
    finally:
        subprocess.run(["umount", str(state)], check=True, timeout=300)


@pytest.fixture
def again(left: Left) -> Iterator[Left]:
    """The numbers and the folder as the live cycle left them."""
    case = left.case
    for job, number in left.numbers.items():
        case.lab.scontrol("update", f"JobId={job}", f"SiteFactor={number}")
    if left.state.is_file():
        left.state.unlink()
    shutil.rmtree(left.state, ignore_errors=True)
    shutil.copytree(left.folder, left.state)
    left.state.chmod(0o700)
    for path, mark in left.marks.items():
        path.write_bytes(mark)
    yield left
    for name in ("squeue", "sprio", "scontrol", "sinfo"):
        case.shims.clear(name)


def restored(left: Left, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    """Exit code and all that `restore --all` says, as its main function ends."""
    words = ["restore", "--all", "--patience", "0", "--config", str(left.case.config), *more]
    capsys.readouterr()
    try:
        app(words, prog_name="rltuned", standalone_mode=True)
        code = 0
    except SystemExit as end:
        code = int(str(end.code or 0))
    except RltunedError as error:
        return 1, str(error)
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def names_what_is_left(left: Left, code: int, said: str) -> None:
    """The law: nothing is left, or 3 and its name."""
    remaining = [job for job, number in left.factors().items() if number]
    assert code == 3 or not remaining, said
    for job in remaining:
        assert str(job) in said, said


@pytest.mark.parametrize("state", WHOLE)
def test_by_a_whole_journal_everything_is_given_back(
    again: Left, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    WHOLE[state](again)
    code, said = restored(again, capsys)
    assert code == 0, said
    assert again.case.sprio() == again.case.natural


@pytest.mark.parametrize("how", UNWRITABLE)
def test_no_byte_of_disk_is_needed(
    again: Left, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with disk(again, UNWRITABLE[how]):
        code, said = restored(again, capsys)
    # a full disk has room for what goes into pages that the file has already
    assert code == 3 or (code == 0 and how == "full"), said
    assert ("restored, and not noted" in said) == (code == 3), said
    assert again.case.sprio() == again.case.natural


@pytest.mark.parametrize("state", LOST)
def test_without_a_journal_what_slurm_shows_is_given_back(
    again: Left, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    LOST[state](again)
    code, said = restored(again, capsys)
    assert code == 3, said
    assert "not known without the journal" in said
    assert again.case.sprio() == again.case.natural


@pytest.mark.parametrize("state", UNKNOWN)
def test_numbers_of_which_nothing_is_known_are_named_and_stay(
    again: Left, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    UNKNOWN[state](again)
    code, said = restored(again, capsys)
    assert again.factors() | again.numbers == again.factors(), "nobody has asked for that"
    assert code == 3, said
    names_what_is_left(again, code, said)
    code, said = restored(again, capsys, "--as-shown")
    assert again.case.sprio() == again.case.natural, said


@pytest.mark.parametrize("state", [*WHOLE, *LOST, *UNKNOWN])
def test_while_slurm_is_away_it_says_so(
    again: Left, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    {**WHOLE, **LOST, **UNKNOWN}[state](again)
    for name in ("squeue", "sprio", "scontrol"):
        again.case.shims.always(name, "echo away >&2; exit 1")
    code, said = restored(again, capsys)
    assert "away" in said
    assert again.factors() | again.numbers == again.factors()
    if state in WHOLE:
        names_what_is_left(again, code, said)
    # a journal in which nothing is owned: no more is known, and a service must stop
    assert code == (0 if UNKNOWN.get(state) is an_older_folder_alone else 3), said


@pytest.mark.parametrize("state", [*WHOLE, *LOST, *UNKNOWN])
def test_under_priority_basic_it_says_so_once(
    again: Left, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In review it repeated "6 left" every second, and gave no reason."""
    {**WHOLE, **LOST, **UNKNOWN}[state](again)
    again.case.shims.always("scontrol", BASIC, "show config")
    code, said = restored(again, capsys, "--patience", "30")
    assert again.factors() | again.numbers == again.factors()
    if UNKNOWN.get(state) is an_older_folder_alone:
        assert code == 0, said
        return
    assert code == 3, said
    assert "priority/basic" in said or "another cluster" in said or "newer" in said, said
    assert said.count(" left; ") <= 1, said
