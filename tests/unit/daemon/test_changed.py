"""When a waiting job last changed what it asks for."""

from dataclasses import replace
from typing import Any

import pytest

from rltuned.daemon.changed import ChangedRequests
from rltuned.domain.kinds import Kinds
from rltuned.domain.units import UnixTime
from tests.builders import NOW, job, request, snapshot

CHANGES: tuple[dict[str, Any], ...] = (
    {"request": request(time_limit_s=60.0)},
    {"request": request(gpus=3)},
    {"request": request(exclusive=True)},
    {"partitions": ("gpu", "long")},
    {"account": "other"},
    {"qos": "high"},
    {"kinds": Kinds(name=7)},
    {"kinds": Kinds(work_dir=7)},
    {"deadline_at": UnixTime(NOW + 9_000)},
)


@pytest.mark.parametrize("change", CHANGES)
def test_what_its_user_may_change_is_seen_and_kept(change: dict[str, Any]) -> None:
    seen, first = ChangedRequests(), job(1)
    assert seen.look(snapshot(first, job(2))).pending == (first, job(2))
    later = replace(snapshot(replace(first, **change), job(2)), taken_at=UnixTime(NOW + 60))
    assert [j.changed_at for j in seen.look(later).pending] == [NOW + 60, 0.0]
    again = replace(later, taken_at=UnixTime(NOW + 120))
    assert [j.changed_at for j in seen.look(again).pending] == [NOW + 60, 0.0]


def test_a_number_is_no_request() -> None:
    seen = ChangedRequests()
    seen.look(snapshot(job(1)))
    moved = seen.look(snapshot(job(1, priority=7, site_factor=-9, nice=3), taken_at=NOW + 60))
    assert moved.pending[0].changed_at == 0.0


def test_another_cluster_begins_anew() -> None:
    seen = ChangedRequests()
    seen.look(snapshot(job(1)))
    there = seen.look(snapshot(job(1, qos="high"), cluster="other", taken_at=NOW + 60))
    assert there.pending[0].changed_at == 0.0
