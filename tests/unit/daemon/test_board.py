"""The status document and its page: what is told, what is not, and that nothing escapes."""

import json
from dataclasses import replace
from pathlib import Path

from rltuned.core.decide import span
from rltuned.core.ladder import Ladder, Rung
from rltuned.daemon.board import CYCLES, Board, Showing
from rltuned.daemon.helping import Helping
from rltuned.daemon.http import Health
from rltuned.daemon.page import page
from rltuned.daemon.report import CycleReport
from rltuned.daemon.seams import Rig
from rltuned.errors import BackendError
from tests.builders import NOW, job, snapshot
from tests.unit.daemon.test_loop import Bench, Heard

FRESH = Health(ready=True, reason="fresh")
EVIL = '<script>alert("x")</script>'


class Watching(Heard):
    """An audience with a board."""

    def __init__(self, board: Board, helping: Helping) -> None:
        super().__init__()
        self.board, self.helping = board, helping

    def cycle(self, report: CycleReport) -> None:
        super().cycle(report)
        self.helping.cycle(report)
        self.board.cycle(report)

    def loaded(self, rig: Rig) -> None:
        super().loaded(rig)
        self.helping.loaded(rig)
        self.board.loaded(rig)


def board_after(tmp_path: Path, showing: Showing, cycles: int = 1) -> Board:
    helping = Helping()
    board = Board(showing, lambda: NOW, helping)
    bench = Bench(tmp_path, heard=Watching(board, helping))
    bench.world.put(job(77, user=EVIL, partition=EVIL, priority=7))
    loop = bench.loop()
    board.loaded(loop.rig)
    loop.run(cycles)
    return board


def test_single_jobs_are_told_only_where_the_settings_say_so(tmp_path: Path) -> None:
    document = board_after(tmp_path, Showing()).document(FRESH)
    assert document["jobs"] is None
    assert EVIL in {p["partition"] for p in document["partitions"]}
    assert "Single jobs are not shown" in page(document)
    json.dumps(document, allow_nan=False)


def test_users_are_told_by_a_setting_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    hidden = board_after(tmp_path / "a", Showing(jobs=True)).document(FRESH)["jobs"]
    assert {row["user"] for row in hidden} == {None}
    assert [row["rank_after"] for row in hidden] == list(range(1, len(hidden) + 1))
    shown = board_after(tmp_path / "b", Showing(jobs=True, users=True)).document(FRESH)["jobs"]
    assert EVIL in {row["user"] for row in shown}


def test_what_slurm_says_is_never_markup(tmp_path: Path) -> None:
    board = board_after(tmp_path, Showing(jobs=True, users=True))
    text = page(board.document(Health(ready=False, reason=EVIL)))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "not working" in text


def test_before_the_first_cycle_and_without_one(tmp_path: Path) -> None:
    empty = Board(Showing(), lambda: NOW, Helping())
    assert "a cluster not seen yet" in page(empty.document(FRESH))
    helping = Helping()
    board = Board(Showing(), lambda: NOW, helping)
    bench = Bench(tmp_path, heard=Watching(board, helping))
    bench.world.script = [BackendError("slurmctld is away")]
    loop = bench.loop()
    board.loaded(loop.rig)
    loop.run(1)
    document = board.document(FRESH)
    assert document["cycles"][0]["skip"] == "backend"
    assert document["cycles"][0]["pending"] is None
    assert "backend" in page(document)


def test_the_last_cycles_are_kept_the_latest_first(tmp_path: Path) -> None:
    cycles = board_after(tmp_path, Showing(), CYCLES + 5).document(FRESH)["cycles"]
    assert [c["cycle"] for c in cycles] == list(range(CYCLES + 5, 5, -1))


def test_a_canary_is_compared_and_its_absence_said(tmp_path: Path) -> None:
    helping = Helping()
    board = Board(Showing(), lambda: NOW, helping)
    assert board.document(FRESH)["effect"] is None
    assert "no control to compare with" in page(board.document(FRESH))
    bench = Bench(tmp_path)
    rig = replace(bench.loop().rig, ladder=Ladder(Rung.CANARY, fraction=0.5))
    helping.loaded(rig)
    helping.cycle(replace(bench.loop().cycle(), snapshot=snapshot(job(1))))
    effect = board.document(FRESH)["effect"]
    assert (effect["treated"], effect["control"]) == (0, 0)
    assert "Too little to say" in page(board.document(FRESH))


def told(state: str, **found: object) -> str:
    board = Board(Showing(), lambda: NOW, Helping())
    document = board.document(FRESH)
    return page({**document, "report": {"state": state, "why": "", "found": found or None}})


def test_the_last_report_is_shown_with_its_age_and_what_it_lacks() -> None:
    apart = {"mean_s": -30.0, "low_s": -50.0, "high_s": -10.0}
    replay = {
        "policy": "sjf", "order": EVIL, "jobs": 200, "ended": 190, "assumed": 10,
        "real_s": 110.0, "slurm_s": 120.0, "ours_s": 90.0, "difference": apart,
    }  # fmt: skip
    made = {"made_at": NOW - 3_600.0, "first": NOW - 90_000.0, "last": NOW - 3_600.0}
    text = told("fresh", **made, replay=replay, not_replayed="")
    assert "-30 s, 95 % interval -50 to -10 s" in text
    assert f"({span(3_600.0)} ago)" in text
    assert "<script" not in text
    none = {"mean_s": -30.0, "low_s": None, "high_s": None}
    text = told("stale", **made, replay=replay | {"difference": none}, not_replayed="")
    assert "It is stale." in text
    assert "too few jobs for an interval" in text
    assert "Nothing was played again: 3 jobs" in told(
        "fresh", **made, replay=None, not_replayed="3 jobs"
    )
    assert "No report is kept" in told("absent")
