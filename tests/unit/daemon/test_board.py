"""The status document, its page and its charts: what is shown, and that nothing escapes."""

import json
import re
from contextlib import closing
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

from rltuned.core.ladder import Switchback
from rltuned.core.starts import Expected, Start
from rltuned.daemon.breaker import Effect
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.documents import Document
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import Condition, Health, HealthState
from rltuned.daemon.web import pages
from rltuned.daemon.web.board import CYCLES, Board, moves, nodes
from rltuned.daemon.web.series import RANGES, Series
from rltuned.domain.jobs import PendingJob
from rltuned.domain.units import JobId
from rltuned.errors import BackendError
from rltuned.journal.journal import Journal
from rltuned.policies.generations import would_it_help, write_state
from rltuned.report.charts import Drawn, ceiling, over_time, spark
from rltuned.text import between, span
from tests.builders import NOW, job, node, running, snapshot
from tests.fakes import FakeBackend
from tests.loops import EVIL, FRESH, UNJUDGED, Bench, Watching


def page(document: Document, board: Board | None = None, **asked: str) -> str:
    """The status page as a request gets it."""
    return pages.page(document, board or Board(lambda: NOW), asked)


class Shown:
    """A board after cycles of a loop, and what requests get of it.

    put: jobs that wait besides; script: what Slurm answers first; more: of the board.
    """

    def __init__(
        self, folder: Path, *put: PendingJob, cycles: int = 1, script: Any = (), **more: Any
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.board = Board(lambda: NOW, **more)
        bench = Bench(folder, received=Watching(self.board))
        bench.world.put(*put)
        bench.world.script = [*script]
        loop = bench.loop()
        self.board.loaded(loop.rig)
        loop.run(cycles)
        self.document = self.board.document(FRESH, UNJUDGED)

    def page(self, **asked: str) -> str:
        return page(self.document, self.board, **asked)

    def job(self, name: str) -> tuple[int, str]:
        text, code = pages.job_page(self.document, self.board, {"id": name})
        return code, text


ODD = job(77, user=EVIL, partition=EVIL, priority=7)
UNTIL = between(NOW, NOW + 3_600.0, NOW)


def start(number: int) -> dict[JobId, Start]:
    """One that is expected within the hour."""
    return {JobId(number): Start(JobId(number), 1, 0.0, 300.0, 3_600.0)}


def test_jobs_and_their_changes_are_reported_only_where_the_settings_say_so(tmp_path: Path) -> None:
    hidden = Shown(tmp_path / "hidden", ODD)
    assert (hidden.document["jobs"], hidden.document["changes"]) == (None, None)
    assert hidden.job("3")[0] == 404
    assert "job?id=" not in hidden.page()
    (alone,) = [p for p in hidden.document["partitions"] if p["partition"] == EVIL]
    assert [alone[way] for way in ("up", "down", "same", "left_alone")] == [0, 0, 1, 0]
    (row,) = [p for p in hidden.document["partitions"] if p["partition"] == "gpu"]
    assert 0 <= row["waited_mean_s"] <= row["waited_most_s"]
    assert "Single jobs are not shown" in hidden.page()
    assert "numbers that were written" not in hidden.page()
    json.dumps(hidden.document, allow_nan=False)
    shown = Shown(tmp_path / "shown", jobs=True)
    assert {"job", "old", "new", "cycle", "at"} == shown.document["changes"][0].keys()
    assert "numbers that were written" in shown.page()


def test_users_are_reported_by_a_setting_of_their_own(tmp_path: Path) -> None:
    hidden = Shown(tmp_path / "a", ODD, jobs=True).document["jobs"]
    assert {row["user"] for row in hidden} == {""}
    assert [row["rank_now"] for row in hidden] == list(range(1, len(hidden) + 1))
    shown = Shown(tmp_path / "b", ODD, jobs=True, users=True)
    assert EVIL in {row["user"] for row in shown.document["jobs"]}
    assert "alice" in shown.page()


def test_a_lifted_job_stays_lifted_on_the_page(tmp_path: Path) -> None:
    shown = Shown(tmp_path, jobs=True, cycles=3)
    moves_shown = shown.document["moves"]
    assert shown.document["cycles"][0]["proposed"] == 0
    assert [moves_shown[way] for way in ("up", "down", "most_up")] == [1, 1, 2]
    for said in ("1 job moves up, 1 down", "3. job 3", '1. <a href="job?id=3">job 3</a>'):
        assert said in shown.page()
    assert "<line class=up x1=0 x2=100 y1=39 y2=13 />" in shown.page()


def test_jobs_that_share_the_lowest_number_are_said_to_have_no_order() -> None:
    nothing = Board(lambda: NOW).document(FRESH, UNJUDGED)
    for numbers, tied in (((1, 1), 2), ((1, 2), 0), ((2, 2), 0)):
        steps = zip((2, 1), (1, 2), numbers, strict=True)
        names = ("rank_before", "rank_to", "planned_priority")
        found = moves([{"waited_s": 1.0, **dict(zip(names, one, strict=True))} for one in steps])
        assert (found["up"], found["down"], found["tied"]) == (1, 1, tied)
        said = page({**nothing, "moves": found, "writes": True})
        assert "1 job moves up, 1 down, 0 stay" in said
        assert ("2 jobs share the lowest number, 1: Slurm takes them by their ids" in said) == (
            tied > 0
        )
    assert "1 job would move up, 1 down" in page({**nothing, "moves": found, "writes": False})


def test_gpus_users_and_reasons_are_shown_without_a_name(tmp_path: Path) -> None:
    shown = Shown(tmp_path, ODD)
    document = shown.document
    assert document["gpus"] == [{"type": "p100", "used": 0, "free": 4, "down": 0}]
    assert document["waiting"]["jobs"] == 4
    assert {u["user"] for u in document["users"]} <= {"user A", "user B"}
    assert (document["nodes"]["all"], document["nodes"]["idle"]) == (1, 1)
    assert re.search(r"<rect class=used x=0 width=0.0 .*<rect class=wanted x=0.0 width=100.0 ",
                     shown.page())  # fmt: skip
    for said in ("0 of 4 used", "p100: 4 of 4 free", "4 jobs, 4 GPUs", "user A", "4 Priority"):
        assert said in shown.page()
    assert "alice" not in shown.page()


def test_nodes_that_run_nothing_are_counted_and_the_next_end_is_first() -> None:
    runs = [
        running(1, node_name="n1", started_at=NOW - 900),
        running(2, node_name="n2", started_at=NOW - 1_800),
    ]
    seen = snapshot(runs=runs, nodes=[node(name) for name in ("n1", "n2", "n3")])
    found = nodes(seen, jobs=False)
    assert (found["all"], found["idle"], found["more"]) == (3, 1, 0)
    assert [row["node"] for row in found["rows"]] == ["n2", "n1"]
    assert [row["jobs"] for row in found["rows"]] == [None, None]
    assert [row["jobs"] for row in nodes(seen, jobs=True)["rows"]] == [["2"], ["1"]]


def test_the_table_sorts_filters_and_links(tmp_path: Path) -> None:
    shown = Shown(tmp_path, ODD, jobs=True)

    def jobs(**asked: str) -> list[str]:
        return re.findall(r'<th scope=row><a href="job\?id=(\d+)">', shown.page(**asked))

    assert jobs()[0] == "3"
    assert sorted(jobs()) == ["1", "2", "3", "77"]
    assert jobs(sort="before")[0] == "1"
    assert jobs(sort="before", way="down")[-1] == "1"
    assert jobs(q="77") == ["77"]
    assert "No waiting job fits." in shown.page(q="nothing")
    assert jobs(sort="madness", **{"from": "x", "range": "9y"})
    assert jobs(**{"from": "9" * 5_000})
    assert EVIL not in shown.page(q=EVIL)


def test_a_job_has_a_page_where_jobs_are_shown(tmp_path: Path) -> None:
    shown = Shown(tmp_path, ODD, jobs=True)
    code, text = shown.job(" 3 ")
    assert code == 200
    for said in (
        "Place 1 of 4 in Slurm's queue",
        "By Slurm's own order it is place 3; rltuned wants place 1.",
        "may be overtaken because of rltuned by jobs that",
        "Changes so far: unknown",
        "rltuned explain 3 --limit 30</code> says when it would start with a limit of 30m",
    ):
        assert said in unescape(text)
    assert "Who stands before it" in shown.job("1")[1]
    for name in ("4711", EVIL, ""):
        code, text = shown.job(name)
        assert code == 404
        assert EVIL not in text


def test_a_daemon_that_only_observes_shows_slurms_queue() -> None:
    seen = snapshot(job(1, priority=5), job(2, priority=9), job(3, priority=0, held_by="user"))
    board = Board(lambda: NOW, jobs=True, expected=lambda: Expected(NOW, start(2)))
    board.cycle(CycleReport(1, NOW, HealthState.OBSERVE, {}, seen))
    assert [(row["address"], row["rank_now"]) for row in board.rows()] == [
        ("2", 1), ("1", 2), ("3", None),
    ]  # fmt: skip
    document = board.document(FRESH, UNJUDGED)
    assert UNTIL in page(document, board)
    text, code = pages.job_page(document, board, {"id": "1"})
    assert code == 200
    for said in ("Place 2 of 2 in Slurm", "rltuned only observes: it orders nothing."):
        assert said in text
    assert "http.jobs" not in text


def test_an_expected_start_is_shown_where_there_is_one(tmp_path: Path) -> None:
    forecast: list[Expected | None] = [None]
    shown = Shown(tmp_path, job(9, submitted_at=NOW), jobs=True, expected=lambda: forecast[0])
    for name in ("3", "9"):  # one that is left alone has one too
        assert "expected start" not in shown.page()
        forecast[0] = Expected(NOW, start(int(name)))
        assert f"expected to start {UNTIL}" in shown.job(name)[1]
        assert f"<td class=text>{UNTIL}</td>" in shown.page()
        assert "expected start" in shown.page()
        forecast[0] = None


def test_a_job_that_is_left_alone_has_the_reason_in_words(tmp_path: Path) -> None:
    shown = Shown(tmp_path, job(9, priority=0, held_by="user"), jobs=True)
    assert "rltuned leaves it alone: its user holds it." in shown.job("9")[1]
    assert "1 held by their user" in shown.page()


def test_charts_begin_with_what_the_journal_knows(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.loop().run(3)
    with closing(Journal(tmp_path)) as journal:
        board = Board(lambda: NOW + 600.0, journal.past)
        again = Bench(tmp_path, received=Watching(board))
        again.clock.advance(600.0)
        loop = again.loop()
        board.loaded(loop.rig)
        loop.run(1)
    assert sum(bucket.looks for bucket in board.series._kept["24h"]) == 4
    text = page(board.document(FRESH, UNJUDGED), board)
    assert "GPUs used, and asked for by waiting jobs: used and asked for" in text
    assert "changes are written to Slurm" in text


def test_what_slurm_says_is_never_markup(tmp_path: Path) -> None:
    shown = Shown(tmp_path, ODD, jobs=True, users=True)
    away = Health([Condition(HealthState.SLURM_UNREACHABLE, EVIL)])
    text = page(shown.board.document(away, UNJUDGED), shown.board)
    assert re.findall(r"<script[^>]*>", text) == ["<script src=status.js defer>"]
    assert "&lt;script&gt;" in text


def test_before_the_first_cycle_and_without_one(tmp_path: Path) -> None:
    assert "a cluster not seen yet" in page(Board(lambda: NOW).document(FRESH, UNJUDGED))
    shown = Shown(tmp_path, script=[BackendError("slurmctld is away")])
    last = shown.document["cycles"][0]
    assert (last["skip"], last["pending"]) == ("backend", None)
    assert "backend" in shown.page()


def test_the_last_cycles_are_kept_the_latest_first(tmp_path: Path) -> None:
    cycles = Shown(tmp_path, cycles=CYCLES + 5).document["cycles"]
    assert [c["cycle"] for c in cycles] == list(range(CYCLES + 5, 5, -1))


def test_the_effect_is_shown_or_how_far_its_measurement_is() -> None:
    board = Board(lambda: NOW)
    assert board.document(FRESH, UNJUDGED)["effect"] is None
    assert "no off blocks to compare with" in page(board.document(FRESH, UNJUDGED))
    block = replace(Switchback().block("gpu", NOW), on=False)
    document = board.document(FRESH, CanaryStatus(effect=Effect(3), blocks={"gpu": block}))
    assert document["effect"]["pairs"] == 3
    assert document["blocks"] == [{"partition": "gpu", "on": False, "until": block.ends_at}]
    text = page(document)
    assert "3 of 10 comparisons" in text
    assert "Off block" in text
    effect = Effect()
    for _ in range(10):
        effect += Effect.of(600.0, 1_200.0)
    text = page(board.document(FRESH, replace(UNJUDGED, effect=effect)))
    assert "50% shorter waits" in text
    assert "95%: -50% to -50%, 10 comparisons" in text


def test_every_level_has_a_sign_and_paused_is_not_green() -> None:
    assert {state.level for state in HealthState} == set(pages.LEVELS)
    assert HealthState.PAUSED.level == "warning"


def test_what_was_not_seen_yet_is_not_said_to_be_empty() -> None:
    text = page(Board(lambda: NOW).document(FRESH, UNJUDGED))
    assert text.count("Not seen yet.") == 4
    for wrong in ("Nobody waits", "No job waits", "No job stands", "The last 0 cycles"):
        assert wrong not in text


def test_an_empty_queue_is_said_to_be_empty(tmp_path: Path) -> None:
    board = Board(lambda: NOW)
    bench = Bench(tmp_path, received=Watching(board), world=FakeBackend(snapshot()))
    bench.loop().run(1)
    text = page(board.document(FRESH, UNJUDGED), board)
    for said in (
        "No job waits</p>",
        "Nobody waits</p>",
        "Nobody waits.",
        "0 of 4 used",
        "The last cycle<",
    ):
        assert said in text
    assert "0.0 h" not in text
    assert "0 jobs" not in text


def test_pages_of_the_documentation_are_rendered() -> None:
    text = pages.text_page("# Title\n\nA [link](other.md) and [one](https://a.b/c), `code`.\n")
    assert '<h1 id="title">Title</h1>' in text
    assert "A link and" in text
    assert '<a href="https://a.b/c">one</a>' in text
    assert "<code>code</code>" in text


def test_the_replay_of_last_week_is_shown_at_every_stage(tmp_path: Path) -> None:
    week = {
        "at": float(NOW), "sentence": "Less.", "verdict": "close", "change": -0.31, "low": -0.38,
        "high": -0.24,
    }  # fmt: skip
    shown = {
        "31% shorter waits, simulated": week,
        "No proven difference": week | {"high": 0.1},
        "Cannot be said": week | {"verdict": "poor"},
    }
    nothing = Board(lambda: NOW).document(FRESH, UNJUDGED)
    assert "Would it have helped?" not in page(nothing)
    for at, (word, kept) in enumerate(shown.items()):
        write_state(tmp_path, last_week=kept)
        board = Shown(tmp_path / str(at), last_week=lambda: would_it_help(tmp_path, NOW))
        assert board.document["last_week"]["sentence"].startswith("Less. Replayed")
        assert word in board.page()


HOUR_S = 3_600.0


def looks(*waits_s: float, off: float = 0.0, used: int = 8) -> dict[str, object]:
    return {
        "used": used, "free": 2, "down": 0, "wanted": 20, "waiting": 5, "longest_s": 60,
        "waits_s": list(waits_s), "started": len(waits_s), "off": off,
    }  # fmt: skip


def series() -> Series:
    found = Series()
    for minute in range(12 * 60):
        at = NOW - 12 * HOUR_S + 60.0 * minute
        off = 1.0 if minute < 240 else 0.0
        found.add(at, looks(60.0, 120.0, 3_600.0, off=off) if minute % 10 == 0 else looks(off=off))
    return found


def test_every_range_holds_the_same_jobs() -> None:
    found = series()
    for name in RANGES:
        shown = found.shown(name, NOW)
        assert shown.started == 3 * 72
        assert {v for _, v in shown.used} == {8.0}
        assert {v for _, v in shown.wanted} == {28.0}
        assert {v for _, v in shown.median_s} == {120.0}
        assert {v for _, v in shown.late_s} == {3_600.0}


def test_off_blocks_are_spans_and_gaps_are_gaps() -> None:
    found = series()
    ((begin, end),) = found.shown("24h", NOW).off
    assert abs(end - begin - 4 * HOUR_S) <= 600.0
    found.add(NOW + 5 * HOUR_S, looks())
    assert None in [v for _, v in found.shown("24h", NOW + 5 * HOUR_S).used]


def test_what_is_too_old_or_was_not_seen_is_left_out() -> None:
    found = series()
    before = found.shown("24h", NOW).started
    found.add(NOW - 11 * HOUR_S, looks(1.0))
    found.add(NOW, {})
    assert found.shown("24h", NOW).started == before
    assert found.shown("24h", NOW + 30 * HOUR_S).used == []


def test_a_range_begins_with_what_was_seen_first() -> None:
    found = Series()
    found.add(NOW - 600.0, looks())
    assert found.shown("24h", NOW).begin == NOW - 6 * RANGES["24h"][1]
    assert series().shown("24h", NOW).begin == NOW - 12 * HOUR_S - (NOW - 12 * HOUR_S) % 600.0
    assert Series().shown("7d", NOW).begin == NOW - 7 * 24 * HOUR_S


def test_a_chart_says_in_words_what_it_draws() -> None:
    rows = [Drawn("wait <b>", "used", [(0.0, 60.0), (10.0, None), (20.0, 7_200.0)])]
    shaded = ("off", [(5.0, 15.0)])
    text = over_time("T", 0.0, 20.0, rows, shaded=shaded, say=span, tops=(HOUR_S, 4 * HOUR_S))
    assert 'aria-label="T: wait &lt;b&gt; 2h00m at last, between 1m and 2h00m"' in text
    assert "<li>4h00m<li>2h00m<li>0s" in text
    assert "<rect class=shade x=250 y=0 width=500" in text
    assert len(re.findall("<polyline", text)) == 2
    assert "style=" not in text
    assert over_time("T", 0.0, 1.0, [Drawn("x", "used", [(0.0, None)])]) == ""
    alone = over_time("T", 0.0, 20.0, [Drawn("x", "used", [(10.0, 4.0)], filled=True)])
    assert 'points="496,100 496,20 500,20 500,100"' in alone, "one look has a width"


def test_small_charts() -> None:
    assert [ceiling(v) for v in (0.0, 7.0, 13.0, 240.0, 1_000.0)] == [1e-9, 10, 20, 250, 1_000]
    assert ceiling(50.0, (60.0, 600.0)) == 60.0
    assert spark([1.0], "x") == ""
    assert 'aria-label="x"' in spark([1.0, None, 2.0, 3.0], "x")
