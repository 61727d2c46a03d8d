"""A journal of 0.2.0 opens; those of other releases are left alone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rltuned.domain.units import JobId, UnixTime
from rltuned.errors import JournalError
from rltuned.journal.journal import Journal
from rltuned.journal.schema import TABLES
from rltuned.journal.snapshots import APPLICATION_ID, FILE_NAME, SCHEMA_VERSION
from tests.builders import NOW

OF_0_2_0 = TABLES.replace("'num_nodes')", "'excluded_nodes', 'num_nodes')").replace(
    ",\n    sums TEXT NOT NULL DEFAULT '{}'", ""
)
"""Its table of changes takes one field more, which it never wrote, and that of cycles one less."""
ROWS = """
INSERT INTO cycles (cycle, at, cluster, mode, skipped, policy, pending, chosen, proposed, applied,
    seconds) VALUES (41, 9.0, 'test', 'live', '', 'sjf', 2, 2, 1, 1, 0.3);
INSERT INTO changes (id, cycle, at, cluster, job_id, submitted_at, address, field, old, new, nice,
    closed) VALUES
    (1, 41, 9.5, 'test', 1, 1.5, '1', 'priority', 300, 900, 7, NULL),
    (2, 41, 9.5, 'test', 2, 1.5, '2', 'site_factor', 40, 500, NULL, NULL),
    (3, 41, 9.5, 'test', 3, 1.5, '3', 'priority', 300, 900, 0, 'gone'),
    (4, 41, 9.5, 'test', 4, 1.5, '4', 'oversubscribe', 'NO', 'YES', NULL, NULL),
    (5, 41, 9.5, 'test', 5, 1.5, '5', 'num_nodes', '1-4', '2-2', NULL, NULL);
"""


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


def test_what_0_2_0_holds_is_known(tmp_path: Path) -> None:
    journal_of(tmp_path, OF_0_2_0 + ROWS, SCHEMA_VERSION)
    with closing(Journal(tmp_path)) as journal:
        held = {(int(claim.target.job_id), claim.field.name) for claim in journal.claims("test")}
        assert held == {
            (1, "priority"), (2, "site_factor"), (4, "oversubscribe"), (5, "num_nodes")
        }  # fmt: skip
        assert journal.owned("test")[JobId(1), UnixTime(1.5)].nice == 7
        assert journal.last_cycle() == 41
        journal.remember("a", 1, NOW)
        assert [(p.at, p.mode, p.sums) for p in journal.past("test", 0.0)] == [(9.0, "live", {})]


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (4, r"a release before 0.2.0 \(schema 4\); give everything back with that one"),
        (6, r"a release before 0.2.0 \(schema 6\)"),
        (8, r"newer rltuned \(schema 8, this release .* 7\)"),
    ],
)
def test_another_release_is_refused_and_not_touched(
    tmp_path: Path, version: int, says: str
) -> None:
    path = journal_of(tmp_path, OF_0_2_0 + ROWS, version)
    before = path.read_bytes()
    with closing(Journal(tmp_path)) as journal:
        for act in (lambda: journal.claims("test"), lambda: journal.remember("a", 1, NOW)):
            with pytest.raises(JournalError, match=says):
                act()
    assert path.read_bytes() == before
