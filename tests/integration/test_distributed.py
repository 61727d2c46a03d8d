"""The batch script of docs/training.md, submitted to a real Slurm: one training on three nodes."""

import csv
import json
import re
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.lab.replay.trace_file import write_trace
from rltuned.policies.actor import load_actor
from rltuned.sim.synth import synthesize
from tests.lab import SlurmLab

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).parents[2]
NODES = ("p1", "p2", "k1")
BUDGET = (
    "--cluster", "testbed", "--epochs", "2", "--set", "batches=6", "--set", "rollouts=2",
    "--set", "window_jobs=40", "--set", "eval_windows=1", "--set", "eval_jobs=60",
)  # fmt: skip


def batch_script() -> str:
    text = (ROOT / "docs" / "training.md").read_text()
    [script] = re.findall(r"```sh\n(#!/bin/sh\n#SBATCH.*?)```", text, flags=re.DOTALL)
    return str(script)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "curves.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_script_of_the_docs_trains_on_three_nodes_as_one_rank_does(
    slurm: SlurmLab, tmp_path: Path
) -> None:
    trace = tmp_path / "t.csv"
    write_trace(synthesize("testbed-1024", jobs=700, seed=4, free_share=0.4), trace)
    common = ("--trace", str(trace), *BUDGET)
    alone = CliRunner().invoke(app, ["train", "ppo", "--out", str(tmp_path / "alone"), *common])
    assert alone.exit_code == 0, alone.output

    script, out = tmp_path / "train.sh", tmp_path / "out"
    script.write_text(batch_script())
    tools = f"{Path(sys.executable).parent}:{slurm.search}"
    job = slurm.run(
        "sbatch", "--parsable", f"--nodelist={','.join(NODES)}", "--nodes=3", "--ntasks=3",
        f"--export=ALL,PATH={tools},OMP_NUM_THREADS=1", f"--output={out}", f"--chdir={ROOT}",
        str(script), "--out", str(tmp_path / "three"), *common,
    ).strip()  # fmt: skip
    slurm.wait_for(lambda: slurm.state(job) in {"R", "CD", "F"}, "the job to start")
    shown = slurm.scontrol("-o", "show", "job", job)
    slurm.wait_for(lambda: slurm.state(job) not in {"R", "CG", "PD"}, "the job to end", 800)
    reply = out.read_text()
    assert "NumNodes=3" in shown
    assert "NumTasks=3" in shown

    card = load_actor(tmp_path / "three").card
    assert card.training.machine.endswith("3 ranks"), reply
    mine, theirs = (rows(tmp_path / f"{name}.training") for name in ("alone", "three"))
    assert [r["choices"] for r in theirs] == [r["choices"] for r in mine]
    for one, other in zip(mine, theirs, strict=True):
        assert float(other["gap"]) == pytest.approx(float(one["gap"]), rel=1e-3)
    first, second = (load_file(tmp_path / n / "actor.safetensors") for n in ("alone", "three"))
    for name, values in first.items():
        assert second[name] == pytest.approx(values, abs=1e-3), name
    assert json.loads((tmp_path / "three" / "card.json").read_text())["training"]["seed"] == 1
