"""A study's stored runs are those of the code at hand, or `check` names them."""

import io
import json
from argparse import Namespace
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from scripts.studies import EXPERIMENTS, GROUPS, __main__, data_of, delays, runner, trust
from scripts.studies.runner import Row, Study, differing, drawn, named, study_of


@dataclass(frozen=True)
class Run:
    number: int
    knowledge: str = "limit"


def play(run: Run) -> Row:
    return {"wait_s": 10.0 * run.number, "cpu_s": 9.0}


def test_a_stored_run_with_another_figure_is_named(tmp_path: Path) -> None:
    stored = [
        (Run(1), {"wait_s": 10.0 + 1e-12, "cpu_s": 1.0}),
        (Run(2), {"wait_s": 20.1, "cpu_s": 1.0}),
        (Run(3, "site"), {"wait_s": 1.0}),  # torch on another processor
        (Run(4), {"wait_s": 40.0, "bsld": 3.0}),  # a figure that is no longer made
    ]
    results = tmp_path / "runs.jsonl"
    results.write_text("".join(json.dumps(asdict(run) | row) + "\n" for run, row in stored))
    found = list(differing(drawn(results, Run, sample=9, seed=1), play))
    assert len(found) == 3
    assert [line for line in found if line] == [
        "Run(number=2, knowledge='limit'): wait_s 20.1 -> 20.0"
    ]


def runs(_: Namespace) -> Iterator[Run]:
    return (Run(number, knowledge) for number in (1, 2, 12) for knowledge in ("limit", "site"))


@pytest.mark.parametrize(
    ("only", "again", "code"),
    [("Ground 1", 2, 1), ("ground 1, LIMIT", 1, 0), ("ground 12", 0, 0), ("ground", 0, 2)],
)
def test_rows_are_played_again_by_the_name_that_the_table_has(
    only: str, again: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "runs.jsonl"
    stored = [asdict(Run(1)) | play(Run(1)), asdict(Run(1, "site")) | {"wait_s": 11.0}]
    results.write_text("".join(json.dumps(row) + "\n" for row in stored))
    study = Study(runs, play, {}, names=lambda r: (f"Ground {r.number}", r.knowledge))
    monkeypatch.setattr(runner, "data_of", lambda _: results)
    monkeypatch.setattr(runner, "study_of", lambda _: study)
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            ended: object = __main__.main(["delays", "check", "--only", only])
        except SystemExit as stopped:
            ended = stopped.code
    assert ended == code
    if code < 2:
        assert f"{again} rows played again, {code} differ" in said.getvalue()
    else:
        assert "rows are named as 'Ground 1, limit'" in said.getvalue()


def test_what_is_missing_is_played_and_kept(tmp_path: Path) -> None:
    results, asked = tmp_path / "runs.jsonl", list[Run]()

    def played(run: Run) -> Row:
        asked.append(run)
        return asdict(run) | play(run)

    for _ in range(2):
        runner.play_missing(results, runs(Namespace()), played, 1.0)
    assert asked == list(runs(Namespace()))
    assert list(runner.known(results, Run)) == asked
    runner.play_missing(tmp_path / "none.jsonl", runs(Namespace()), played, -1.0)
    assert len(asked) == 6


def test_every_experiment_of_the_table_has_its_study_and_its_data() -> None:
    for name in EXPERIMENTS:
        study = study_of(name)
        run = next(study.runs(Namespace(seeds=1)))
        assert run in runner.known(data_of(name), type(run))
        assert "table" in study.views
    assert all(set(names) <= set(EXPERIMENTS) for names in GROUPS.values())


def test_the_study_of_delays_names_its_runs_as_the_first_table_does() -> None:
    row = named(delays.runs(Namespace()), "Philly, November, part 1, 0.9, own", delays.names)
    assert len(set(row)) == 16, "four orders in four copies"
    assert {run.ground for run in row} == {"philly-nov-1"}


def test_the_criterion_of_trust_by_hand() -> None:
    """Twice the rule's 99% wait is too much; a trace's loss counts where the interval shows it."""
    figures = {"wait_s": 100.0, "bsld": 10.0, "wait_p99_s": 500.0, "wait_max_s": 900.0}
    base = trust.Run("thetagpu-1", 0.9, "own", 1, 0.0)
    rows: dict[trust.Run, Row] = {}
    for copy in (1, 2, 3):
        for ground, change in (("thetagpu-1", 0.5), ("helios-venus", 1.1)):
            run = replace(base, ground=ground, copy=copy)
            rows[run] = figures
            own = {"wait_s": 100.0 * change + copy / 10, "bsld": 8.0, "wait_p99_s": 1_000.0}
            rows[replace(run, trust=0.5)] = figures | own
    ratios = trust.ratios_of(rows)
    assert len(ratios) == 6
    found = trust.misses(ratios, 0.5)
    assert found == [
        "own limits: 99% 2.000, at most 1.06",
        "helios-venus, own limits: at least +10.0% of wait",
    ]
    assert list(trust.frontier(ratios))[1:] == [
        "| own | 0.9 | 0.5 | 0.74 | 0.80 | 2.00 | 1.00 | 6 |",
        "| own | all | 0.5 | 0.74 | 0.80 | 2.00 | 1.00 | 6 |",
    ]
    assert "thetagpu-1 | 0.5 | -49.8% [" in list(trust.by_trace(ratios))[2]
