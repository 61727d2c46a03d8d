"""A study's stored runs are those of the code at hand, or `check` names them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.studies.plays import Row, differing


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
    found = list(differing(results, Run, play, sample=9, seed=1))
    assert len(found) == 3
    assert [line for line in found if line] == [
        "Run(number=2, knowledge='limit'): wait_s 20.1 -> 20.0"
    ]
