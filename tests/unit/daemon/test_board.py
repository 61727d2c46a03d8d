"""The status document and its page: what is shown, what is not, and that nothing escapes."""

import json
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rltuned.daemon.breaker import Effect

from rltuned.core.ladder import Switchback
from rltuned.core.starts import Expected, Start
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.report import CycleReport
from rltuned.daemon.state import Condition, Health, HealthState
from rltuned.daemon.web import pages
from rltuned.daemon.web.status import CYCLES, Board, Document, moves, nodes
from rltuned.domain.units import JobId
from rltuned.errors import BackendError
from rltuned.journal.journal import Journal
from rltuned.policies.tune_state import LastWeek, would_it_help, write_state
from rltuned.text import between
from tests.builders import NOW, decided, job, node, running, snapshot
from tests.fakes import FakeBackend
from tests.loops import DECISION, EVIL, FRESH, UNJUDGED, Bench, Watching, board_after


def page(document: Document, board: Board | None = None, **asked: str) -> str:
    """The status page as a request gets it."""
    return pages.answer("/", document, board, asked)[1]


def test_single_jobs_are_reported_only_where_the_settings_say_so(tmp_path: Path) -> None:
    document = board_after(tmp_path).document(FRESH, UNJUDGED)
    assert document["jobs"] is None
    (alone,) = [p for p in document["partitions"] if p["partition"] == EVIL]
    assert [alone[way] for way in ("up", "down", "same", "left_alone")] == [0, 0, 1, 0]
    assert "Single jobs are not shown" in page(document)
    json.dumps(document, allow_nan=False)


def test_users_are_reported_by_a_setting_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    hidden = board_after(tmp_path / "a", jobs=True).document(FRESH, UNJUDGED)["jobs"]
    assert {row["user"] for row in hidden} == {None}
    assert [row["rank_now"] for row in hidden] == list(range(1, len(hidden) + 1))
    shown = board_after(tmp_path / "b", jobs=True, users=True).document(FRESH, UNJUDGED)["jobs"]
    assert EVIL in {row["user"] for row in shown}


def test_changes_are_shown_where_jobs_are(tmp_path: Path) -> None:
    board = board_after(tmp_path, jobs=True)
    document = board.document(FRESH, UNJUDGED)
    assert {"job", "old", "new", "cycle", "at"} == document["changes"][0].keys()
    (row,) = [p for p in document["partitions"] if p["partition"] == "gpu"]
    assert 0 <= row["waited_mean_s"] <= row["waited_most_s"]
    assert "numbers that were written" in page(document, board)
    hidden = board_after(tmp_path)
    assert hidden.document(FRESH, UNJUDGED)["changes"] is None
    assert "numbers that were written" not in page(hidden.document(FRESH, UNJUDGED), hidden)
    assert hidden.rows() == []


def test_a_lifted_job_stays_lifted_on_the_page(tmp_path: Path) -> None:
    board = board_after(tmp_path, jobs=True, cycles=3)
    document = board.document(FRESH, UNJUDGED)
    assert document["cycles"][0]["proposed"] == 0
    assert (document["moves"]["up"], document["moves"]["down"]) == (1, 1)
    assert document["moves"]["most_up"] == 2
    text = page(document, board)
    assert "1 job moves up, 1 down" in text
    assert "3. job 3" in text
    assert '1. <a href="job?id=3">job 3</a>' in text


def test_jobs_that_share_the_lowest_number_are_said_to_have_no_order() -> None:
    entries = DECISION.entries
    for numbers, tied in (((1, 1), 2), ((1, 2), 0), ((2, 2), 0)):
        settled = [replace(e, settled=n) for e, n in zip(entries, numbers, strict=True)]
        report = decided(replace(DECISION, entries=tuple(settled)))
        found = moves(report, report.targets())
        assert (found["up"], found["down"], found["tied"]) == (1, 1, tied)
        said = pages.moves({"moves": found, "state": "live"})
        assert ("2 jobs share the lowest number, 1: Slurm takes them by their ids" in said) == (
            tied > 0
        )
    assert pages.moves({"moves": found, "state": "paused"}).startswith(
        "1 job would move up, 1 down"
    )


def test_gpus_users_and_reasons_are_shown_without_a_name(tmp_path: Path) -> None:
    board = board_after(tmp_path)
    document = board.document(FRESH, UNJUDGED)
    assert document["gpus"] == [{"type": "p100", "used": 0, "free": 4, "down": 0}]
    assert document["waiting"]["jobs"] == 4
    assert {u["user"] for u in document["users"]} <= {"user A", "user B"}
    assert (document["nodes"]["all"], document["nodes"]["idle"]) == (1, 1)
    text = page(document, board)
    for shown in ("0 of 4 used", "p100: 4 of 4 free", "4 jobs, 4 GPUs", "user A", "4 Priority"):
        assert shown in text
    assert "alice" not in text
    (tmp_path / "named").mkdir()
    named = board_after(tmp_path / "named", jobs=True, users=True)
    assert "alice" in page(named.document(FRESH, UNJUDGED), named)


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
    board = board_after(tmp_path, jobs=True)
    document = board.document(FRESH, UNJUDGED)

    def jobs(**asked: str) -> list[str]:
        return re.findall(r'<th scope=row><a href="job\?id=(\d+)">', page(document, board, **asked))

    assert jobs()[0] == "3"
    assert sorted(jobs()) == ["1", "2", "3", "77"]
    assert jobs(sort="before")[0] == "1"
    assert jobs(sort="before", way="down")[-1] == "1"
    assert jobs(q="77") == ["77"]
    assert "No waiting job fits." in page(document, board, q="nothing")
    assert jobs(sort="madness", **{"from": "x", "range": "9y"})
    assert jobs(**{"from": "9" * 5_000})
    assert EVIL not in page(document, board, q=EVIL)


def test_a_job_has_a_page_where_jobs_are_shown(tmp_path: Path) -> None:
    board = board_after(tmp_path, jobs=True)
    document = board.document(FRESH, UNJUDGED)
    code, text = pages.answer("/job", document, board, {"id": " 3 "})
    assert code == 200
    assert "Place 1 of 4 in Slurm's queue" in text
    assert "By Slurm's own order it is place 3; rltuned wants place 1." in text
    assert "The number taken apart" in text
    assert "(cycle 1)" in text
    assert (
        "rltuned explain 3 --limit 30</code> says when it would start with a limit of 30m" in text
    )
    code, last = pages.answer("/job", document, board, {"id": "1"})
    assert "Who stands before it" in last
    for name in ("4711", EVIL, ""):
        code, text = pages.answer("/job", document, board, {"id": name})
        assert code == 404
        assert EVIL not in text
    (tmp_path / "hidden").mkdir()
    assert board_after(tmp_path / "hidden").job("3") is None


def test_a_daemon_that_only_observes_shows_slurms_queue() -> None:
    seen = snapshot(job(1, priority=5), job(2, priority=9), job(3, priority=0, held_by="user"))
    starts = {JobId(2): Start(JobId(2), 1, 0.0, 300.0, 3_600.0)}
    board = Board(lambda: NOW, jobs=True, expected=lambda: Expected(NOW, starts))
    board.cycle(CycleReport(1, NOW, HealthState.OBSERVE, 60.0, {}, seen))
    assert [(row["job"], row["rank_now"]) for row in board.rows()] == [
        ("2", 1), ("1", 2), ("3", None),
    ]  # fmt: skip
    assert board.rows()[0]["expected"] == between(NOW, NOW + 3_600.0, NOW)
    document = board.document(FRESH, UNJUDGED)
    code, text = pages.answer("/job", document, board, {"id": "1"})
    assert code == 200
    assert "Place 2 of 2 in Slurm's queue. rltuned only observes: it orders nothing." in text
    assert "http.jobs" not in text


def test_an_expected_start_is_shown_where_there_is_one(tmp_path: Path) -> None:
    starts = {JobId(3): Start(JobId(3), 1, 0.0, 300.0, 3_600.0)}
    board = Board(lambda: NOW, jobs=True, expected=lambda: Expected(NOW, starts))
    bench = Bench(tmp_path, received=Watching(board))
    bench.world.put(job(9, submitted_at=NOW))
    loop = bench.loop()
    board.loaded(loop.rig)
    loop.run(1)
    document = board.document(FRESH, UNJUDGED)
    until = between(NOW, NOW + 3_600.0, NOW)
    assert f"<dd>{until}</dd>" in pages.answer("/job", document, board, {"id": "3"})[1]
    assert f"<td class=text>{until}</td>" in page(document, board)
    assert "expected start" in page(document, board)
    starts.clear()
    assert "expected start" not in page(document, board)
    # a job that is left alone has one too
    starts[JobId(9)] = Start(JobId(9), 1, 0.0, 300.0, 3_600.0)
    assert f"<dd>{until}</dd>" in pages.answer("/job", document, board, {"id": "9"})[1]
    assert f"<td class=text>{until}</td>" in page(document, board)


def test_a_job_that_is_left_alone_has_the_reason_in_words(tmp_path: Path) -> None:
    board = Board(lambda: NOW, jobs=True)
    bench = Bench(tmp_path, received=Watching(board))
    bench.world.put(job(9, priority=0, held_by="user"))
    loop = bench.loop()
    board.loaded(loop.rig)
    loop.run(1)
    document = board.document(FRESH, UNJUDGED)
    assert (
        "rltuned leaves it alone: its user holds it."
        in pages.answer("/job", document, board, {"id": "9"})[1]
    )
    assert "1 held by their user" in page(document, board)


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
    shown = board.series.shown("24h", NOW + 600.0)
    assert sum(bucket.looks for bucket in shown.buckets) == 4
    text = page(board.document(FRESH, UNJUDGED), board)
    assert "GPUs used, and asked for by waiting jobs: used and asked for" in text
    assert "changes are written to Slurm" in text


def test_what_slurm_says_is_never_markup(tmp_path: Path) -> None:
    board = board_after(tmp_path, jobs=True, users=True)
    away = Health([Condition(HealthState.SLURM_UNREACHABLE, EVIL)])
    text = page(board.document(away, UNJUDGED), board)
    assert re.findall(r"<script[^>]*>", text) == ["<script src=status.js defer>"]
    assert "&lt;script&gt;" in text


def test_before_the_first_cycle_and_without_one(tmp_path: Path) -> None:
    empty = Board(lambda: NOW)
    assert "a cluster not seen yet" in page(empty.document(FRESH, UNJUDGED))
    board = Board(lambda: NOW)
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
    cycles = board_after(tmp_path, cycles=CYCLES + 5).document(FRESH, UNJUDGED)["cycles"]
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


def test_every_state_has_one_word_and_a_level_and_paused_is_not_green() -> None:
    board = Board(lambda: NOW)
    assert {state.level for state in HealthState} == set(pages.LEVELS)
    for state in HealthState:
        text = page(board.document(Health([Condition(state)]), UNJUDGED))
        level, word = state.level, state.word
        kind, sign = pages.LEVELS[level]
        assert f'<p class="big {kind}"><span aria-hidden=true>{sign}</span> {word}</p>' in text
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
    for said in ("No job waits</p>", "None</p>", "Nobody waits.", "0 of 4 used", "The last cycle<"):
        assert said in text
    assert "0.0 h" not in text
    assert "0 jobs" not in text


def test_while_slurm_is_away_nothing_is_said_to_be_written() -> None:
    both = Health([Condition(HealthState.STALE, "18 s old"), Condition(HealthState.LIVE)])
    text = page(Board(lambda: NOW).document(both, UNJUDGED))
    assert "the last result is 18 s old" in text
    assert "changes are written" not in text


def test_pages_of_the_documentation_are_rendered() -> None:
    text = pages.text_page("# Title\n\nA [link](other.md) and [one](https://a.b/c), `code`.\n")
    assert '<h1 id="title">Title</h1>' in text
    assert "A link and" in text
    assert '<a href="https://a.b/c">one</a>' in text
    assert "<code>code</code>" in text


def test_the_replay_of_last_week_is_shown_at_every_stage(tmp_path: Path) -> None:
    week = LastWeek(
        at=float(NOW), jobs=90, verdict="close", slurm_wait_s=100.0, wait_s=69.0, change=-0.31,
        low=-0.38,
        high=-0.24, slurm_longest_s=900.0, longest_s=900.0,
    )  # fmt: skip
    write_state(tmp_path, week)
    shown = {
        "31% shorter waits, simulated": week,
        "No proven difference": week.model_copy(update={"high": 0.1}),
        "Cannot be said": week.model_copy(update={"verdict": "poor"}),
    }
    nothing = Board(lambda: NOW).document(FRESH, UNJUDGED)
    assert "Would it have helped?" not in page(nothing)
    for at, (word, kept) in enumerate(shown.items()):
        (tmp_path / str(at)).mkdir()
        write_state(tmp_path, kept)
        board = board_after(tmp_path / str(at), last_week=lambda: would_it_help(tmp_path, NOW))
        document = board.document(FRESH, UNJUDGED)
        assert document["last_week"]["sentence"] == kept.sentence(NOW)
        assert word in page(document)
