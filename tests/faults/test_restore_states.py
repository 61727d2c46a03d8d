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
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from rltuned.journal.store import SCHEMA_VERSION
from tests.faults.case import Case, fill
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

JOURNAL: Final = "journal.sqlite"
KILLED: Final = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('PRAGMA cache_size = 1')
db.execute('BEGIN IMMEDIATE')
db.execute('DELETE FROM owned')
db.execute('CREATE TABLE filler AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL'
           ' SELECT i + 1 FROM n WHERE i < 5000) SELECT hex(randomblob(100)) FROM n')
os._exit(9)
"""


@dataclass(frozen=True)
class Left:
    """What one live cycle left, in `kept` and in the case's own folder; `before`: the folder as it
    was before the first write. mark: what lies outside the folder.
    """

    case: Case
    kept: Path
    before: Path
    numbers: dict[int, int]
    mark: Path

    @property
    def state(self) -> Path:
        return self.case.state

    @property
    def journal(self) -> Path:
        return self.state / JOURNAL

    def factors(self) -> dict[int, int]:
        """What Slurm shows, the faults in its commands left out."""
        return {job: int(line.split()[-1]) for job, line in self.case.sprio().items()}

    def unchanged(self) -> bool:
        return self.factors() | self.numbers == self.factors()

    def restored(self, *more: str) -> tuple[int, str]:
        """Exit code and all that `restore --all` says."""
        done = self.case.rltuned("restore", "--all", "--patience", "0", *more)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def lived(faulty_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    faulty_lab.clear()
    folder = tmp_path_factory.mktemp("left")
    with Case(faulty_lab, folder) as case:
        case.succeeds("run", "--once", "--stage", "observe")
        before = shutil.copytree(case.state, folder / "before")
        case.succeeds("run", "--live", "--once")
        kept = shutil.copytree(case.state, folder / "kept")
        (mark,) = folder.glob("journal-mark-*")
        shutil.copy(mark, folder / "mark")
        found = Left(case, kept, before, {}, mark)
        found.numbers.update({job: n for job, n in found.factors().items() if n})
        assert len(found.numbers) >= 2
        yield found
    faulty_lab.clear()


@pytest.fixture
def left(lived: Left) -> Iterator[Left]:
    """The numbers and the folder as the live cycle left them."""
    case = lived.case
    for job, number in lived.numbers.items():
        case.lab.scontrol("update", f"JobId={job}", f"SiteFactor={number}")
    gone(lived)
    shutil.copytree(lived.kept, lived.state)
    lived.state.chmod(0o700)
    shutil.copy(case.folder / "mark", lived.mark)
    yield lived
    for name in ("squeue", "sprio", "scontrol"):
        case.shims.clear(name)


def change(left: Left, *statements: str) -> None:
    with closing(sqlite3.connect(left.journal)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def in_place(left: Left, make: Callable[[Path], object]) -> None:
    left.journal.unlink()
    make(left.journal)


def only(left: Left, *names: str) -> None:
    """Leave these files alone in the folder."""
    for file in left.state.iterdir():
        if file.name not in names:
            file.unlink()


def gone(left: Left) -> None:
    if left.state.is_file():
        left.state.unlink()
    shutil.rmtree(left.state, ignore_errors=True)


def an_older_folder(left: Left) -> None:
    gone(left)
    shutil.copytree(left.before, left.state)


def an_older_folder_alone(left: Left) -> None:
    an_older_folder(left)
    left.mark.unlink()


def a_file(left: Left) -> None:
    gone(left)
    left.state.write_text("")


def of_another_cluster(left: Left) -> None:
    change(
        left, "UPDATE owned SET cluster = 'elsewhere'", "UPDATE cycles SET cluster = 'elsewhere'"
    )


State = Callable[[Left], object]
WHOLE: dict[str, State] = {
    "whole": lambda _: None,
    "without its lock file": lambda left: (left.state / "writer.lock").unlink(),
    "without its mark": lambda left: left.mark.unlink(),
    "its mark spoilt": lambda left: left.mark.write_bytes(b"\xff"),
    "without its rollback journal": lambda left: (left.state / f"{JOURNAL}-journal").unlink(),
    "the file alone": lambda left: only(left, JOURNAL),
    "in the folder of another user": lambda left: os.chown(left.state, 65534, 65534),
    "killed while it wrote": lambda left: subprocess.run(
        [sys.executable, "-c", KILLED, str(left.journal)], check=False
    ),
}
"""All is in the journal: 0, and nothing is left."""
LOST: dict[str, State] = {
    "missing": lambda left: left.journal.unlink(),
    "empty": lambda left: left.journal.write_bytes(b""),
    "only the lock file": lambda left: only(left, "writer.lock"),
    "a link": lambda left: in_place(left, lambda p: p.symlink_to(left.kept / JOURNAL)),
    "a link to nothing": lambda left: in_place(left, lambda p: p.symlink_to("nowhere")),
    "a link to itself": lambda left: in_place(left, lambda p: p.symlink_to(p)),
    "a named pipe": lambda left: in_place(left, os.mkfifo),
    "a folder": lambda left: in_place(left, Path.mkdir),
    "another user's": lambda left: os.chown(left.journal, 65534, 65534),
    "writable by all": lambda left: left.journal.chmod(0o666),
    "in a folder writable by all": lambda left: left.state.chmod(0o777),
    "cut in half": lambda left: os.truncate(left.journal, left.journal.stat().st_size // 2),
    "cut to its head": lambda left: os.truncate(left.journal, 100),
    "cut to a page": lambda left: os.truncate(left.journal, 4096),
    "text": lambda left: left.journal.write_text("no journal\n" * 100),
    "an older copy": lambda left: shutil.copy(left.before / JOURNAL, left.journal),
    "an older copy of the folder": an_older_folder,
    "its mark of another": lambda left: left.mark.write_text('[1, "another"]'),
}
"""It is known that rltuned wrote: nothing is left, and 3 says by what it went."""
UNKNOWN: dict[str, State] = {
    "no folder": gone,
    "an empty folder": only,
    "a file in place of the folder": a_file,
    "an older copy of the folder, after a new start of the machine": an_older_folder_alone,
    "another cluster's": of_another_cluster,
    "a newer release's": lambda left: change(left, f"PRAGMA user_version = {SCHEMA_VERSION + 1}"),
}
"""Whose the numbers are is not known: they stay, and 3 names them."""
ALL = {**WHOLE, **LOST, **UNKNOWN}


@pytest.mark.parametrize("state", ALL)
def test_what_is_known_is_given_back_and_the_rest_is_named(left: Left, state: str) -> None:
    ALL[state](left)
    code, said = left.restored()
    assert code == (0 if state in WHOLE else 3), said
    if state in UNKNOWN:
        assert left.unchanged(), "nobody has asked for that"
        assert all(str(job) in said for job in left.numbers), said
        code, said = left.restored("--as-shown")
    elif state in LOST:
        assert "not known without the journal" in said
    assert left.case.sprio() == left.case.natural, said


@pytest.mark.parametrize("how", ["read-only", "full"])
def test_no_byte_of_disk_is_needed(left: Left, how: str) -> None:
    """The journal can be read: nothing is left, and 3 says where it was not noted."""
    state = str(left.state)
    gone(left)
    left.state.mkdir(mode=0o700)
    with ExitStack() as stack:
        options = ["-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", state]
        subprocess.run(["mount", *options], check=True, timeout=300)
        stack.callback(subprocess.run, ["umount", state], check=True, timeout=300)
        shutil.copytree(left.kept, left.state, dirs_exist_ok=True)
        if how == "full":
            fill(left.state / "filler")
        else:
            subprocess.run(["mount", "-o", "remount,ro", state], check=True, timeout=300)
        code, said = left.restored()
    # a full disk has room for what goes into pages that the file has already
    assert code == 3 or (code == 0 and how == "full"), said
    assert ("restored, and not noted" in said) == (code == 3), said
    assert left.case.sprio() == left.case.natural


@pytest.mark.parametrize("slurm", ["away", "basic"])
@pytest.mark.parametrize("state", ALL)
def test_where_slurm_takes_nothing_it_says_so_once(left: Left, state: str, slurm: str) -> None:
    """In review it repeated "6 left" every second under priority/basic, and gave no reason."""
    ALL[state](left)
    if slurm == "away":
        for name in ("squeue", "sprio", "scontrol"):
            left.case.shims.always(name, "echo away >&2; exit 1")
        code, said = left.restored()
    else:
        edit = '"$REAL" "$@" | sed "s|priority/multifactor|priority/basic|"'
        left.case.shims.always("scontrol", edit, "show config")
        code, said = left.restored("--patience", "30")
    assert left.unchanged()
    # a journal in which nothing is owned: no more is known, and a service must stop
    knows_of_none = UNKNOWN.get(state) is an_older_folder_alone
    assert code == (0 if knows_of_none else 3), said
    assert said.count(" left; ") <= 1 or slurm == "away", said
    if slurm == "away":
        assert "away" in said
        assert state not in WHOLE or all(str(job) in said for job in left.numbers), said
    elif not knows_of_none:
        assert any(why in said for why in ("priority/basic", "another cluster", "newer")), said
