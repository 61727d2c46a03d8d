"""`--tensorboard`: what TensorBoard itself reads of a training is what the training logs."""

import csv
import json
import math
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rltuned.cli import code_of
from rltuned.errors import ModelError
from rltuned.lab.replay.trace_file import write_trace
from rltuned.sim.trace import Trace
from tests import two_ranks
from tests.train.worlds import random_ground
from tests.unit.cli.runner import run

GROUND = random_ground("testbed", 11, 700)
SMALL = ("--eval-windows", "2", "--eval-jobs", "60", "--eval-every", "2", "--force")


def given(folder: Path, kind: str) -> list[str]:
    trace = folder / "t.csv"
    write_trace(Trace(GROUND.jobs), trace)
    learned_on = ["--trace", str(trace), "--cluster", "testbed", "--work", str(folder / "work")]
    return ["train", kind, *learned_on, "--tensorboard", str(folder / "board"), *SMALL]


def read(folder: Path) -> dict[str, dict[int, float]]:
    """Name -> step -> value."""
    events = EventAccumulator(str(folder))
    events.Reload()
    names = events.Tags()["scalars"]
    found = {name: events.Scalars(name) for name in names}
    assert all(len({e.step for e in those}) == len(those) for those in found.values())
    return {name: {e.step: e.value for e in those} for name, those in found.items()}


def test_a_resumed_training_goes_on_at_its_step(tmp_path: Path) -> None:
    few = ("--window-jobs", "60", "--batches", "4", "--rollouts", "2", "--network", "paper")
    ppo = [*given(tmp_path, "ppo"), *few]
    for out, epochs, more in (("a", "2", ()), ("b", "4", ("--resume",))):
        ran = run(*ppo, "--epochs", epochs, "--out", str(tmp_path / out), *more)
        assert ran.exit_code == 0, ran.output
    with (tmp_path / "work" / "curves.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    shown = read(tmp_path / "board")
    assert sorted(shown) == sorted(rows[0].keys() - {"epoch"})
    for name, values in shown.items():
        logged = {int(r["epoch"]) + 1: float(r[name] or "nan") for r in rows}
        assert values == pytest.approx(
            {step: value for step, value in logged.items() if math.isfinite(value)}, rel=1e-4
        )
    assert sorted(shown["validation"]) == [2, 4]
    with pytest.raises(ModelError, match="has the figures of another training"):
        run(*ppo, "--out", str(tmp_path / "c"))


def test_generations_of_a_search(tmp_path: Path) -> None:
    few = ("--members", "4", "--parts", "2", "--part-jobs", "60", "--generations", "3")
    ran = run(*given(tmp_path, "evolve"), *few, "--out", str(tmp_path / "a"))
    assert ran.exit_code == 0, ran.output
    _, *rows = map(json.loads, (tmp_path / "work" / "generations.jsonl").read_text().splitlines())
    shown = read(tmp_path / "board")
    assert shown["change_low"] == pytest.approx(
        {row["number"] + 1: row["change"][1] for row in rows}, rel=1e-4
    )
    assert shown["cost_least"] == pytest.approx(
        {row["number"] + 1: min(row["costs"]) for row in rows}, rel=1e-4
    )
    assert shown["validation"] == pytest.approx(
        {row["number"] + 1: row["validation"][0] for row in rows if row["validation"]}, rel=1e-4
    )
    assert sorted(shown["validation"]) == [2, 3]


def test_the_first_rank_alone_writes(tmp_path: Path) -> None:
    few = ("--epochs", "1", "--batches", "2", "--rollouts", "2", "--window-jobs", "40")
    words = [*given(tmp_path, "ppo"), *few, "--out", str(tmp_path / "a"), "--distributed"]
    for process in two_ranks.start(tmp_path, two_ranks.command, *words):
        shown, _ = process.communicate(timeout=600)
        assert process.returncode == 0, shown
    assert len(list((tmp_path / "board").iterdir())) == 1
    assert sorted(read(tmp_path / "board")["gap"]) == [1]


@pytest.mark.parametrize("kind", ["ppo", "evolve"])
def test_several_seeds_have_no_common_board(kind: str, tmp_path: Path) -> None:
    ran = run(*given(tmp_path, kind), "--out", str(tmp_path / "a"), "--seeds", "2")
    assert ran.exit_code == 2
    assert "--tensorboard shows one training" in ran.output


@pytest.mark.parametrize("kind", ["ppo", "evolve"])
def test_without_the_package_nothing_begins(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert code_of([*given(tmp_path, kind), "--out", str(tmp_path / "a")]) == 2
    assert capsys.readouterr().err == (
        "rltuned: --tensorboard needs the Python package tensorboard, which is not installed; "
        "install rltuned[tensorboard]\n"
    )
    assert not (tmp_path / "work").exists()
