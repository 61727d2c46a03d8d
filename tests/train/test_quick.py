"""`rltuned train ppo --quick` at a tenth: the held-out cost falls, and what it exports loads."""

import csv
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.lab.replay.trace_file import write_trace
from rltuned.policies.actor import load_actor
from rltuned.sim.trace import Trace
from tests.train.worlds import random_ground

WORKLOAD = random_ground("testbed", 11, 700)


def given(folder: Path) -> list[str]:
    trace = folder / "t.csv"
    write_trace(Trace(WORKLOAD.jobs), trace)
    return ["train", "ppo", "--trace", str(trace), "--cluster", "testbed", "--window-jobs", "60"]


def test_a_tenth_of_quick_learns_and_its_export_loads(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    args = [*given(tmp_path), "--quick", "--batches", "6", "--eval-jobs", "60", "--out", str(out)]
    ran = CliRunner().invoke(app, args)
    assert ran.exit_code == 0, ran.output
    card = load_actor(out).card
    assert (card.training.settings["epochs"], card.training.settings["batches"]) == (12, 6)
    with (tmp_path / "mine.training" / "curves.csv").open(newline="") as file:
        held_out = [float(row["validation"]) for row in csv.DictReader(file)]
    assert len(held_out) == 12
    assert min(held_out) < held_out[0]
    reply = CliRunner().invoke(app, ["models", "verify", str(out)])
    assert reply.exit_code == 0, reply.output


def test_devices_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device, reply in (("cuda", "no CUDA device here"), ("tpu", "is not one of")):
        args = [*given(tmp_path), "--device", device, "--out", str(tmp_path / "mine")]
        ran = CliRunner().invoke(app, args)
        assert ran.exit_code == 2
        assert reply in ran.output
    assert not (tmp_path / "mine").exists()
