"""A snapshot survives being written down; what is no snapshot is refused."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given

from rltuned.domain.jobs import Ownership
from rltuned.domain.snapshot import NO_CONTEXT, Context, RunTime, Snapshot
from rltuned.domain.units import JobId
from rltuned.errors import SnapshotError
from rltuned.journal.cycles import decode_snapshot, encode_snapshot
from tests.builders import job, running, snapshot
from tests.property import worlds


@given(worlds.snapshots(), worlds.contexts)
def test_decoded_is_what_was_encoded(world: Snapshot, context: Context) -> None:
    data = encode_snapshot(world, context)
    assert decode_snapshot(data) == (world, context)
    assert encode_snapshot(*decode_snapshot(data)) == data


def test_no_name_that_a_user_chose_is_taken_for_a_limit() -> None:
    ours = Ownership("priority", 7, nice=3, original=5, earlier=(5, 6))
    named = job(user="unlimited", account="inf", partition="unlimited", owned=ours)
    world = snapshot(named, runs=(running(time_limit_s=math.inf),))
    assert decode_snapshot(encode_snapshot(world)) == (world, NO_CONTEXT)


def test_the_bytes_tell_worlds_apart_and_not_the_order_of_listing() -> None:
    one, two = job(1), job(2)
    both = encode_snapshot(snapshot(one, two))
    assert both == encode_snapshot(snapshot(two, one))
    assert both != encode_snapshot(snapshot(one, replace(two, priority=5)))


def test_predictions_of_a_release_that_named_their_parts_are_read() -> None:
    known = RunTime(900.0, 800.0, 60.0, 600.0, 3_000.0, ends=7)
    both = snapshot(job(1)), Context(run_times={JobId(1): known})
    data = encode_snapshot(*both)
    listed = json.dumps([*known], separators=(",", ":")).encode()
    assert listed in data
    assert decode_snapshot(data) == both
    assert decode_snapshot(data.replace(listed, json.dumps(known._asdict()).encode())) == both


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
