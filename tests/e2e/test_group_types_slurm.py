"""On a real Slurm the types of a plan are written on request, and taken back from a file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import SlurmLab

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]

CHOICE = "pascal|kepler"


def rltuned(config: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = (sys.executable, "-m", "rltuned", "groups", *words, "--config", str(config))
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def constraints(slurm: SlurmLab, *jobs: int) -> list[str]:
    return [slurm.run("squeue", "-h", f"-j{job}", "-o%f").strip() for job in jobs]


def test_types_are_written_and_taken_back(slurm: SlurmLab, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    config = tmp_path / "rltuned.toml"
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\n[slurm]\nconf = "{slurm.conf}"\n')
    config.chmod(0o600)
    blocker = slurm.sbatch("-N5", "--exclusive", "-t60")
    slurm.wait_for(lambda: slurm.state(blocker) == "R", 30, "all nodes are busy")
    first = slurm.sbatch("--gres=gpu:1", "-n1", "-t30", f"-C{CHOICE}")
    after = (f"--dependency=afterok:{first}", "--gres=gpu:1", "-n1", "-t30")
    changed, ended, bound = (slurm.sbatch(*after, f"-C{c}") for c in (CHOICE, CHOICE, "pascal"))
    slurm.wait_for(lambda: slurm.state(first) == "PD", 30, "it waits")
    jobs = (first, changed, ended)
    kept = tmp_path / "undo.json"
    words = ("plan", "--group", str(first), "--speed", "p100=4", "--speed", "k80=1")

    shown = rltuned(config, *words, "--json")
    assert shown.returncode == 0, shown.stderr
    assert [one["job"] for one in json.loads(shown.stdout)["commands"]] == [str(j) for j in jobs]
    assert constraints(slurm, *jobs, bound) == [CHOICE] * 3 + ["pascal"]

    made = rltuned(config, *words, "--json", "--apply", str(kept))
    assert made.returncode == 0, made.stderr
    assert [one["done"] for one in json.loads(made.stdout)["applied"]] == [True] * 3
    assert constraints(slurm, *jobs, bound) == ["pascal"] * 4
    again = rltuned(config, *words, "--apply", str(kept))
    assert again.returncode == 2
    assert f"{kept}: cannot be written: File exists" in again.stderr

    slurm.scontrol("update", f"JobId={changed}", "Features=kepler")
    slurm.run("scancel", str(ended))
    undone = rltuned(config, "undo", str(kept))
    assert undone.returncode == 1, undone.stderr
    assert f"job {changed}: left alone: its constraint is kepler" in undone.stdout
    assert f"job {ended}: left alone: it does not wait any more" in undone.stdout
    assert constraints(slurm, first, changed, bound) == [CHOICE, "kepler", "pascal"]


def test_a_file_that_is_no_undo_is_named(tmp_path: Path) -> None:
    config = tmp_path / "rltuned.toml"
    config.write_text("")
    config.chmod(0o600)
    file = tmp_path / "undo.json"
    for text, why in ((None, "cannot be read"), ('[{"job": "1"}]', "address")):
        if text is not None:
            file.write_text(text)
        found = rltuned(config, "undo", str(file))
        assert found.returncode == 2
        assert str(file) in found.stderr
        assert why in found.stderr
