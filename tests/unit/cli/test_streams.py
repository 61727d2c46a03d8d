"""Output that is full, closed or left; moments that are none; files that begin with a mark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.settings import load
from rltuned.sim.cluster import read_cluster
from tests.programs import ran
from tests.unit.cli.runner import run

SITE = Path(__file__).resolve().parents[2] / "data" / "slurm" / "24.11" / "site"


def shell(line: str, *more: str) -> "subprocess.CompletedProcess[str]":
    """A line of the shell in which $R is our command."""
    return ran(
        "bash",
        "-c",
        line.replace("$R", f"{sys.executable} -m rltuned"),
        *more,
        code=None,
        env=dict(os.environ),
    )


@pytest.mark.parametrize("words", ["--help", "config show", "--version", "models list"])
def test_a_full_output_is_one_line_and_exit_code_1(words: str) -> None:
    done = shell(f"$R {words} >/dev/full")
    assert done.stderr == "rltuned: standard output: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-", "2>/dev/full"])
def test_what_is_closed_costs_nothing(tmp_path: Path, closed: str) -> None:
    done = shell(f"$R traces synth philly-like --jobs 5 --out {tmp_path}/t.csv {closed}")
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr
    text = (tmp_path / "t.csv").read_text()
    assert text.count("\n") >= 6
    assert "5 jobs" not in text, "no message goes into a file that took a closed stream's place"


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    done = shell("$R config show | true; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--since", "99999999d"), "lies before 1970"),
        (("--until", "999999999d"), "lies before 1970"),
        (("--since", "0001-01-01"), "is no time"),
        (("--since", "1969-01-01"), "lies before 1970"),
        (("--since", "9999999999d"), "is no time"),
        (("--since", "2026-05-01", "--until", "2026-01-01"), "not before"),
        (("--since", "2999-01-01"), "not before"),
    ],
)
def test_moments_that_cannot_be_meant(words: tuple[str, ...], why: str) -> None:
    done = CliRunner().invoke(app, ["backtest", "--site", str(SITE), *words])
    assert done.exit_code == 2
    assert why in " ".join(done.output.split())


def test_a_mark_before_the_first_letter_of_a_file_is_no_letter(tmp_path: Path) -> None:
    settings, cluster = tmp_path / "a.toml", tmp_path / "c.toml"
    settings.write_text("[daemon]\ninterval_s = 61\n", "utf-8-sig")
    assert load(settings).settings.daemon.interval_s == 61
    cluster.write_text('[[nodes]]\nname = "n1"\ngpus = 2\ncpus = 4\nmem_mib = 9\n', "utf-8-sig")
    assert read_cluster(cluster).gpus == 2


@pytest.mark.parametrize(("table", "port"), [("", None), ("[http]\nport = {}\n", 1)])
def test_the_built_in_cluster_takes_the_port_of_the_settings(
    tmp_path: Path, table: str, port: int | None
) -> None:
    config = tmp_path / "rltuned.toml"
    free = 20_000 + os.getpid() % 20_000
    config.write_text(table.format(free))
    done = run("run", "--backend", "sim", "--once", "--no-show", "--config", str(config))
    assert done.exit_code == 0, done.output
    assert (f"127.0.0.1:{free}/metrics" in done.stderr) == (port is not None)
