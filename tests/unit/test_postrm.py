"""What the Debian package's postrm counts as a journal that owes something."""

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.domain.plan import SITE_FACTOR, Plan
from rltuned.journal.journal import Journal
from tests.builders import NOW, job, snapshot

POSTRM = Path(__file__).parents[2] / "deploy" / "debian" / "postrm"
pytestmark = pytest.mark.skipif(shutil.which("python3") is None, reason="needs python3")


def owing(state: Path) -> list[str]:
    """By the script's own function, with the state folder here."""
    _, begin, rest = POSTRM.read_text().partition("owing() {\n")
    body, end, _ = rest.partition("\n}\n")
    script = f"state={state}\n{begin}{body}{end}owing\n"
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()


def test_a_named_pipe_in_the_state_folder_is_not_waited_for(tmp_path: Path) -> None:
    """In review the removal of the package hung for ever."""
    os.mkfifo(tmp_path / "journal.sqlite")
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "journal.sqlite").symlink_to(tmp_path / "journal.sqlite")
    assert owing(tmp_path) == [
        f"{tmp_path}/journal.sqlite", f"{tmp_path}/cluster/journal.sqlite"
    ]  # fmt: skip


def test_a_journal_with_an_open_change_owes_and_one_without_does_not(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert owing(tmp_path) == []
    with closing(Journal(tmp_path)) as journal:
        journal.probe()
        assert owing(tmp_path) == []
        plan = Plan((SITE_FACTOR.to(job(1, site_factor=0), -500),))
        journal.intend(plan, cluster=snapshot().cluster, cycle=1, at=NOW)
    assert owing(tmp_path) == [f"{tmp_path}/journal.sqlite"]


def test_the_journal_of_another_release_counts(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db:
        db.execute("CREATE TABLE changes (id INTEGER)")
    assert owing(tmp_path) == [f"{tmp_path}/journal.sqlite"]
