"""Snapshots in the journal: kept once, read without touching the file, refused when damaged."""

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from rltuned.domain.jobs import Ownership
from rltuned.domain.snapshot import NO_CONTEXT, Context, Snapshot
from rltuned.domain.units import UnixTime
from rltuned.errors import JournalError, SnapshotError
from rltuned.journal.cycles import decode_snapshot, encode_snapshot, pack, recorded, unpack
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME, reading
from tests.builders import NOW, job, running, sight, snapshot
from tests.property import worlds

SEEN = snapshot(job(1), job(2))


@given(worlds.snapshots(), worlds.contexts)
def test_what_is_written_is_read_back(world: Snapshot, context: Context) -> None:
    data = encode_snapshot(world, context)
    assert decode_snapshot(data) == (world, context)
    assert encode_snapshot(*decode_snapshot(data)) == data
    assert unpack(*pack(world), world.taken_at)[0] == world


def test_the_digest_knows_the_cluster_and_neither_the_moment_nor_the_order_of_listing() -> None:
    later = replace(SEEN, taken_at=UnixTime(NOW + 60))
    assert pack(later) == pack(SEEN) == pack(snapshot(job(2), job(1)))
    assert pack(snapshot(job(1), job(2, priority=7)))[0] != pack(SEEN)[0]


def test_a_damaged_body_is_refused() -> None:
    digest, body = pack(SEEN)
    with pytest.raises(SnapshotError, match=digest[:12]):
        unpack(digest, body[:-9], NOW)
    with pytest.raises(SnapshotError, match="digest does not fit"):
        unpack("0" * 64, body, NOW)


def keep(journal: Journal, *snapshots: Snapshot) -> None:
    for cycle, seen in enumerate(snapshots, start=1):
        journal.keep(sight(seen, cycle=cycle, at=seen.taken_at))


def test_an_unchanged_cluster_is_kept_once_and_read_at_both_moments(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    later = replace(SEEN, taken_at=UnixTime(NOW + 60))
    keep(journal, SEEN, later, snapshot(job(1), taken_at=NOW + 120))
    found = list(recorded(tmp_path / FILE_NAME))
    assert [r.cycle for r in found] == [1, 2, 3]
    assert [r.snapshot for r in found][:2] == [SEEN, later]
    with reading(tmp_path / FILE_NAME) as db:
        assert db.execute("SELECT count(*) FROM snapshots").fetchone() == (2,)
    journal.close()


def test_a_reader_cannot_write_and_waits_for_no_open_change(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path)
    keep(journal, SEEN)
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM snapshots")
        assert len(list(recorded(tmp_path / FILE_NAME))) == 1
        with (
            reading(tmp_path / FILE_NAME) as db,
            pytest.raises(sqlite3.OperationalError, match="readonly"),
        ):
            db.execute("DELETE FROM cycles")
        writer.execute("ROLLBACK")
    journal.close()


@pytest.mark.parametrize("content", [b"garbage" * 100, None])
def test_what_is_no_journal_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "some file?mode=rwc"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(JournalError, match="some file"):
        list(recorded(path))
    with pytest.raises(JournalError, match="not a regular file"):
        list(recorded(tmp_path))


def test_no_name_that_a_user_chose_is_taken_for_a_limit() -> None:
    ours = Ownership("priority", 7, nice=3, original=5, earlier=(5, 6))
    named = job(user="unlimited", account="inf", partition="unlimited", owned=ours)
    world = snapshot(named, runs=(running(time_limit_s=math.inf),))
    assert decode_snapshot(encode_snapshot(world)) == (world, NO_CONTEXT)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "snapshot: "),
        (b"{}", "snapshot field taken_at"),
        (b"\xff", "snapshot: "),
        (encode_snapshot(snapshot(job())).replace(b'"version":1', b'"version":9'), "version 9"),
        (
            encode_snapshot(snapshot(job())).replace(b'"priority":1000', b'"priority":-1'),
            "negative",
        ),
    ],
)
def test_what_is_no_snapshot_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(SnapshotError, match=message):
        decode_snapshot(data)
