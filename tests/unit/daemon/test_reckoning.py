"""The report that is left for the daemon: whole or not at all, and never believed blindly."""

import io
import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from rltuned.core.ladder import Ladder, Rung
from rltuned.daemon.audience import Publisher
from rltuned.daemon.effect import Effect
from rltuned.daemon.effect_metrics import AT, EffectMetrics
from rltuned.daemon.helping import Helping
from rltuned.daemon.logs import make_log
from rltuned.daemon.metrics import Metrics
from rltuned.daemon.reckoning import (
    FILE_NAME,
    MAX_BYTES,
    Interval,
    Kept,
    Reader,
    Reckoning,
    Replay,
    State,
    Trial,
    keep,
    read,
)
from rltuned.daemon.systemd import Notifier
from rltuned.errors import JournalError
from tests.builders import NOW
from tests.fakes import FakeClock
from tests.unit.daemon.test_loop import Bench

DAY_S = 86_400.0
REPLAY = Replay(
    policy="sjf",
    order="multifactor with this site's weights",
    jobs=200,
    ended=190,
    assumed=10,
    real_s=110.0,
    slurm_s=120.0,
    ours_s=90.0,
    difference=Interval(mean_s=-30.0, low_s=-50.0, high_s=-10.0),
)
MADE = Reckoning(
    made_at=NOW,
    took_s=9.5,
    cluster="test",
    first=NOW - 7 * DAY_S,
    last=NOW - 60.0,
    cycles=10_000,
    trial=Trial(treated=40, control=400, difference=None),
    replay=REPLAY,
)


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def test_it_comes_back_as_it_was_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    (tmp_path / f".{FILE_NAME}.new").write_text("of a run that was killed")
    path = keep(tmp_path, MADE)
    assert read(path) == MADE
    assert path.stat().st_mode & 0o777 == 0o600
    assert [f.name for f in tmp_path.iterdir()] == [FILE_NAME]
    keep(tmp_path, MADE.model_copy(update={"cycles": 3}))
    assert read(path).cycles == 3


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda p: p.write_text("{"), "the whole: Invalid JSON"),
        (lambda p: p.write_text(p.read_text().replace('"version": 1', '"version": 2')), "version"),
        (lambda p: p.write_text(p.read_text().replace("10000", '"many"')), "cycles"),
        (lambda p: p.write_text(p.read_text().replace("-50.0", "NaN")), "low_s"),
        (lambda p: p.write_text(p.read_text().replace("-50.0", "50.0")), "outside its interval"),
        (lambda p: p.write_text(p.read_text().replace("-50.0", "null")), "need each other"),
        (lambda p: p.write_text(" " * (MAX_BYTES + 1)), "is larger than"),
        (lambda p: p.chmod(0o606), "others may write to it"),
        (lambda p: os.truncate(p, 40), "the whole: Invalid JSON"),
        (lambda p: (p.unlink(), p.symlink_to("/etc/passwd")), "symbolic links"),
        (lambda p: (p.unlink(), p.mkdir()), "is not a regular file"),
        (make_fifo, "is not a regular file"),
    ],
)  # fmt: skip
def test_what_is_not_ours_or_damaged_is_not_believed(
    tmp_path: Path, spoil: Callable[[Path], Any], why: str
) -> None:
    path = keep(tmp_path, MADE)
    spoil(path)
    with pytest.raises(JournalError, match=why):
        read(path)
    kept = Reader(tmp_path, lambda: NOW, DAY_S).look("test")
    assert (kept.state, kept.found) == (State.UNUSABLE, None)
    assert str(path) in kept.why


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_of_another_user_it_is_not_believed(tmp_path: Path) -> None:
    path = keep(tmp_path, MADE)
    os.chown(path, 12_345, 12_345)
    with pytest.raises(JournalError, match="belongs to uid 12345"):
        read(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_made_by_root_it_belongs_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 12_345, 12_346)
    status = keep(tmp_path, MADE).stat()
    assert (status.st_uid, status.st_gid) == (12_345, 12_346)


def test_where_it_cannot_be_written_the_last_one_stays(tmp_path: Path) -> None:
    keep(tmp_path, MADE)
    (tmp_path / f".{FILE_NAME}.new").mkdir()
    with pytest.raises(JournalError, match="cannot be written"):
        keep(tmp_path, MADE.model_copy(update={"cycles": 3}))
    assert read(tmp_path / FILE_NAME) == MADE


def test_new_old_foreign_and_absent(tmp_path: Path) -> None:
    moment = NOW
    reader = Reader(tmp_path, lambda: moment, 2 * DAY_S)
    assert reader.look("test") == Kept(State.ABSENT)
    keep(tmp_path, MADE)
    assert reader.look("test") == reader.look(None) == Kept(State.FRESH, MADE)
    moment = NOW + 2 * DAY_S + 1
    assert reader.look("test") == Kept(State.STALE, MADE)
    newer = MADE.model_copy(update={"made_at": moment})
    keep(tmp_path, newer)
    assert reader.look("test") == Kept(State.FRESH, newer)
    other = reader.look("elsewhere")
    assert (other.state, other.found) == (State.UNUSABLE, None)
    assert "is of cluster 'test', not of 'elsewhere'" in other.why
    moment = NOW
    assert "was made 172801 s from now" in reader.look("test").why
    (tmp_path / FILE_NAME).unlink()
    assert reader.look("test") == Kept(State.ABSENT)


def test_metrics_say_nan_where_nothing_is_known() -> None:
    registry = CollectorRegistry()
    metrics = EffectMetrics(registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"rltuned_{name}", labels)

    def trial(source: str) -> list[float | None]:
        return [value("canary_wait_difference_seconds", source=source, at=at) for at in AT]

    unknown = [
        *trial("running"), *trial("report"), value("report_timestamp_seconds"),
        value("replay_wait_seconds", order="ours"), value("replay_jobs", what="compared"),
        value("canary_wait_jobs", source="running", arm="treated"),
    ]  # fmt: skip
    assert all(found is not None and math.isnan(found) for found in unknown)
    assert value("report_state", state="absent") == 1
    metrics.running(Effect(3, 4, 10.0, 12.0))
    assert all(math.isnan(found or 0.0) for found in trial("running"))
    assert value("canary_wait_jobs", source="running", arm="control") == 4
    metrics.running(Effect(40, 50, 10.0, 12.0, -2.0, -3.0, -1.0))
    assert trial("running") == [-2.0, -3.0, -1.0]
    metrics.kept(Kept(State.STALE, MADE))
    assert [value("replay_wait_difference_seconds", at=at) for at in AT] == [-30.0, -50.0, -10.0]
    assert value("replay_wait_seconds", order="slurm") == 120.0
    assert value("replay_jobs", what="assumed") == 10
    assert value("report_timestamp_seconds") == NOW
    assert value("report_span_seconds") == 7 * DAY_S - 60.0
    assert (value("report_state", state="stale"), value("report_state", state="absent")) == (1, 0)
    assert value("canary_wait_jobs", source="report", arm="control") == 400
    assert all(math.isnan(found or 0.0) for found in trial("report"))
    metrics.kept(Kept(State.UNUSABLE, why="damaged"))
    assert math.isnan(value("report_timestamp_seconds") or 0.0)
    assert math.isnan(value("replay_wait_difference_seconds", at="low") or 0.0)


def test_the_daemon_takes_a_new_report_over_and_complains_of_a_bad_one_once(
    tmp_path: Path,
) -> None:
    state, stream = tmp_path / "state", io.StringIO()
    state.mkdir()
    helping = Helping(Reader(state, lambda: NOW, DAY_S))
    metrics = Metrics(CollectorRegistry())
    log = make_log("json", "info", stream)
    publisher = Publisher(metrics, log, Notifier(None), FakeClock(), helping=helping)
    bench = Bench(tmp_path)
    cycle = bench.loop().cycle()

    def value(**labels: str) -> float | None:
        return metrics.registry.get_sample_value("rltuned_report_state", labels)

    publisher.loaded(replace(bench.loop().rig, ladder=Ladder(Rung.CANARY, fraction=0.5)))
    publisher.cycle(cycle)
    assert value(state="absent") == 1
    name = "rltuned_canary_wait_jobs"
    treated = {"source": "running", "arm": "treated"}
    assert metrics.registry.get_sample_value(name, treated) == 0
    keep(state, MADE)
    publisher.cycle(cycle)
    assert value(state="fresh") == 1
    (state / FILE_NAME).chmod(0o666)
    publisher.cycle(cycle)
    publisher.cycle(cycle)
    assert value(state="unusable") == 1
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [e["event"] for e in said if e["level"] == "warning"] == ["report_unusable"]
