"""A long play says how far it is."""

from threading import Event

import pytest

from rltuned.errors import TraceError
from rltuned.lab.replay import protocol
from rltuned.lab.replay.protocol import watched


def test_a_play_is_watched_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_S", 0.001)
    seen, parts = list[tuple[float, float]](), iter([0.0, 0.25, 0.5])
    enough = Event()

    def watcher(part: float, left_s: float) -> None:
        seen.append((part, left_s))
        if len(seen) == 2:
            enough.set()

    with protocol.watching(watcher):
        assert watched(lambda: enough.wait(60), lambda: next(parts, 0.5))
    assert [part for part, _ in seen[:2]] == [0.25, 0.5], "nothing can be said of a part of 0"
    assert all(left_s > 0.0 for _, left_s in seen)


def test_what_a_play_raises_is_raised_with_a_watcher_and_without() -> None:
    def bad() -> None:
        raise TraceError("no")

    with pytest.raises(TraceError), protocol.watching(lambda _part, _left_s: None):
        watched(bad, lambda: 0.5)
    with pytest.raises(TraceError):
        watched(bad, lambda: 0.5)
    assert watched(lambda: 7, lambda: 0.5) == 7
