"""The study script: its rows differ from the standard in one thing, and its tables count right."""

import json
from pathlib import Path

import pytest

from scripts.results_table import main as results
from scripts.studies.__main__ import ROWS, main, settings_of


def test_every_row_is_the_standard_but_for_what_it_is_named_by() -> None:
    standard = settings_of(ROWS["standard"], 1, 15)
    assert {s.epochs for s in (settings_of(r, 1, 15) for r in ROWS.values())} == {15}
    for row in ROWS.values():
        settings = settings_of(row, 1, 15)
        assert settings.contest.objective == standard.contest.objective
        assert settings.contest.window_jobs == 256
        assert settings.batches == 50


def test_unknown_rows_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "best"])
    assert "no row 'best'" in capsys.readouterr().err


def test_tables_from_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = {r: {"wait": [99.0] * 6, "bsld": [0.99] * 6} for r in ("fcfs", "saf", "sjf", "f1")}
    rules |= dict.fromkeys(("wfp3", "multifactor"), rules["saf"])
    (tmp_path / "rules.json").write_text(json.dumps(dict.fromkeys(("philly", "helios"), rules)))
    for seed, wait in ((1, 49.0), (2, 199.0)):
        folder = tmp_path / f"naive-{seed}"
        folder.mkdir()
        found = {"wait": [wait] * 6, "bsld": [0.49] * 6}
        (folder / "found.json").write_text(json.dumps({"tested": {"philly": found}}))
    main(["table", "--out", str(tmp_path)])
    told = capsys.readouterr().out
    naive = next(line for line in told.splitlines() if line.startswith("| naive"))
    assert "| +0.0 [+0.0, +0.0] | -50.0, +100.0 | -50.0" in naive


def test_the_table_of_results_tells_each_place_and_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = {"change": -0.1, "low": -0.2, "high": 0.05, "geometric": -0.08}
    pair |= {"wins": 3, "losses": 2}
    metrics = {m: pair | {"seeds": [-0.2, 0.0]} for m in ("wait_s", "bsld")}
    mean = {"wait_s": 1_000.0, "bsld": 3.0, "jct_s": 2_000.0, "utilisation": 0.5}
    mean |= {"wait_p99_s": 50.0, "wait_max_s": 80.0}
    found = {
        "plan": {"load": 0.9},
        "policies": dict.fromkeys(("fcfs", "model:x"), mean),
        "paired": {"model:x": {"fcfs": metrics, "saf": metrics}},
        "closed_of_fcfs_to_clairvoyant": {"model:x": {"wait_s": 0.5, "bsld": 0.25}},
        "closed_of_fcfs_to_bound": {"model:x": {"wait_s": 0.4, "bsld": 0.2}},
        "bound": {"wait_s": 10.0, "jct_s": 1_010.0, "bsld": 1.0},
    }
    for folder in ("here", "philly-long-none-0.9", "philly-weak", "philly-none"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "results.json").write_text(json.dumps({"comparisons": [found]}))
    results([str(tmp_path), "--place", "here"])
    told = capsys.readouterr().out.splitlines()[-1]
    assert told.startswith("| here | 0.9 | x | -10.0 [-20.0, +5.0], g -8.0, 3-2 (-20 to +0) |")
    assert told.endswith("| 1.00, 1.00 | 50/25, 40/20 |")
    results([str(tmp_path), "--pages"])
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith(("##", "|"))]
    places = [" ".join(x.split(" ", 3)[:3]) for x in lines if not x.startswith(("| place", "|--"))]
    assert places == [
        "## Philly, held", "| Philly, weak", "| Philly, none", "## Long runs",
        "| Philly long,", "## Others", "| here |",
    ]  # fmt: skip
    results([str(tmp_path), "--policies", "philly-weak"])
    rows = capsys.readouterr().out.splitlines()[-2:]
    assert rows[0] == "| x | 1,000 / 3.0 / 2,000 / 50.0 |"
    assert rows[1] == "| lower bound | 10 / 1.00 / 1,010 / - |"
