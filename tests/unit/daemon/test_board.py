"""The status document and its page: what is shown, what is not, and that nothing escapes."""

import json
from dataclasses import replace
from pathlib import Path

from rltuned.core.switchback import Switchback
from rltuned.daemon.canary.effect import Effect
from rltuned.daemon.canary.monitor import CanaryStatus
from rltuned.daemon.report import CycleReport
from rltuned.daemon.runtime import Rig
from rltuned.daemon.state import Condition, Health, HealthState
from rltuned.daemon.web.server import page
from rltuned.daemon.web.status import CYCLES, Board, Showing
from rltuned.errors import BackendError
from tests.builders import NOW, job
from tests.loops import FRESH, UNJUDGED, Bench, Received

EVIL = '<script>alert("x")</script>'


class Watching(Received):
    """An audience with a board."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self.board = board

    def cycle(self, report: CycleReport) -> None:
        super().cycle(report)
        self.board.cycle(report)

    def loaded(self, rig: Rig) -> None:
        super().loaded(rig)
        self.board.loaded(rig)


def board_after(tmp_path: Path, showing: Showing, cycles: int = 1) -> Board:
    board = Board(showing, lambda: NOW)
    bench = Bench(tmp_path, received=Watching(board))
    bench.world.put(job(77, user=EVIL, partition=EVIL, priority=7))
    loop = bench.loop()
    board.loaded(loop.rig)
    loop.run(cycles)
    return board


def test_single_jobs_are_reported_only_where_the_settings_say_so(tmp_path: Path) -> None:
    document = board_after(tmp_path, Showing()).document(FRESH, UNJUDGED)
    assert document["jobs"] is None
    (alone,) = [p for p in document["partitions"] if p["partition"] == EVIL]
    assert [alone[way] for way in ("up", "down", "same", "left_alone")] == [0, 0, 1, 0]
    assert "Single jobs are not shown" in page(document)
    json.dumps(document, allow_nan=False)


def test_users_are_reported_by_a_setting_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    hidden = board_after(tmp_path / "a", Showing(jobs=True)).document(FRESH, UNJUDGED)["jobs"]
    assert {row["user"] for row in hidden} == {None}
    assert [row["rank_after"] for row in hidden] == list(range(1, len(hidden) + 1))
    shown = board_after(tmp_path / "b", Showing(jobs=True, users=True)).document(FRESH, UNJUDGED)[
        "jobs"
    ]
    assert EVIL in {row["user"] for row in shown}


def test_waits_changes_and_the_effect_are_shown(tmp_path: Path) -> None:
    board = board_after(tmp_path, Showing(jobs=True))
    effect = Effect()
    for _ in range(10):
        effect += Effect.of(600.0, 1_200.0)
    document = board.document(FRESH, replace(UNJUDGED, effect=effect))
    assert document["changes"]
    first = document["changes"][0]
    assert {"job", "old", "new", "cycle", "at"} == first.keys()
    (row,) = [p for p in document["partitions"] if p["partition"] == "gpu"]
    assert 0 <= row["waited_mean_s"] <= row["waited_most_s"]
    text = page(document)
    assert 'aria-label="Mean wait with delays 10m, without them 20m"' in text
    assert "width=115 height=22" in text
    assert "width=230 height=22" in text
    assert "Last changes" in text
    hidden = board_after(tmp_path, Showing()).document(FRESH, UNJUDGED)
    assert hidden["changes"] is None
    assert "Last changes" not in page(hidden)
    assert "<svg" not in page(hidden)


def test_a_job_is_found_by_its_name_where_jobs_are_shown(tmp_path: Path) -> None:
    board = board_after(tmp_path, Showing(jobs=True))
    document = board.document(FRESH, UNJUDGED)
    last = document["jobs"][-1]
    assert board.find(f" {last['job']} ") == [last]
    text = page(document, name=last["job"], found=[last])
    assert f">Job {last['job']}</caption>" in text
    assert board.find("4711") == board.find(EVIL) == board.find("") == []
    text = page(document, name=EVIL)
    assert EVIL not in text
    assert "No waiting job &lt;script&gt;" in text
    alone = [{"job": "9", "reason": "held"}]
    assert "Job 9 is left alone: held." in page(document, name="9", found=alone)
    (tmp_path / "hidden").mkdir()
    assert board_after(tmp_path / "hidden", Showing()).find(last["job"]) == []


def test_what_slurm_says_is_never_markup(tmp_path: Path) -> None:
    board = board_after(tmp_path, Showing(jobs=True, users=True))
    text = page(board.document(Health([Condition(HealthState.SLURM_UNREACHABLE, EVIL)]), UNJUDGED))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_before_the_first_cycle_and_without_one(tmp_path: Path) -> None:
    empty = Board(Showing(), lambda: NOW)
    assert "a cluster not seen yet" in page(empty.document(FRESH, UNJUDGED))
    board = Board(Showing(), lambda: NOW)
    bench = Bench(tmp_path, received=Watching(board))
    bench.world.script = [BackendError("slurmctld is away")]
    loop = bench.loop()
    board.loaded(loop.rig)
    loop.run(1)
    document = board.document(FRESH, UNJUDGED)
    assert document["cycles"][0]["skip"] == "backend"
    assert document["cycles"][0]["pending"] is None
    assert "backend" in page(document)


def test_the_last_cycles_are_kept_the_latest_first(tmp_path: Path) -> None:
    cycles = board_after(tmp_path, Showing(), CYCLES + 5).document(FRESH, UNJUDGED)["cycles"]
    assert [c["cycle"] for c in cycles] == list(range(CYCLES + 5, 5, -1))


def test_a_switchback_is_shown_and_its_absence_reported() -> None:
    board = Board(Showing(), lambda: NOW)
    assert board.document(FRESH, UNJUDGED)["effect"] is None
    assert "no off blocks to compare with" in page(board.document(FRESH, UNJUDGED))
    block = replace(Switchback().block("gpu", NOW), on=False)
    document = board.document(FRESH, CanaryStatus(effect=Effect(3), blocks={"gpu": block}))
    assert document["effect"]["pairs"] == 3
    assert document["blocks"] == [{"partition": "gpu", "on": False, "until": block.ends_at}]
    assert "Too little to say" in page(document)
    assert "Off blocks now, in Slurm's own order: gpu until" in page(document)
