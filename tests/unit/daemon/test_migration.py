"""Journals of other releases are left alone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.schema import TABLES
from rltuned.journal.snapshots import APPLICATION_ID, FILE_NAME
from tests.builders import NOW


def journal_of(folder: Path, tables: str, version: int) -> Path:
    """A file as a killed process of a release leaves it."""
    path = folder / FILE_NAME
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            f"PRAGMA journal_mode = WAL; BEGIN; {tables} PRAGMA user_version = {version};"
            f" PRAGMA application_id = {APPLICATION_ID}; COMMIT;"
        )
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("version", [4, 7, 9])
def test_another_release_is_refused_and_not_touched(tmp_path: Path, version: int) -> None:
    path = journal_of(tmp_path, TABLES, version)
    before = path.read_bytes()
    says = rf"another release \(schema {version}, not 8\): restore with the release that wrote it"
    with closing(Journal(tmp_path)) as journal:
        for act in (lambda: journal.claims("test"), lambda: journal.remember("a", 1, NOW)):
            with pytest.raises(JournalError, match=says):
                act()
    assert path.read_bytes() == before
