"""What an install compiles is all that the commands need."""

from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.lab.cli.compile import compile_all
from rltuned.lab.kernel import episode, loop, run_times
from rltuned.lab.replay import play
from rltuned.lab.replay.trace_file import write_trace
from rltuned.sim.trace import Trace
from tests.train.worlds import random_ground

ENTRIES: tuple[Any, ...] = (loop.play, run_times.replay, episode.episode)


def compiled() -> list[int]:
    return [len(entry.signatures) for entry in ENTRIES]


def test_commands_find_what_an_install_compiles(tmp_path: Path) -> None:
    misses = ENTRIES[0].stats.cache_misses.total()
    compile_all()
    play.load()  # what a process beside has compiled, from the disk
    assert ENTRIES[0].stats.cache_misses.total() == misses
    before, trace = compiled(), tmp_path / "t.csv"
    assert min(before) > 0
    write_trace(Trace(random_ground("testbed", 11, 700).jobs), trace)
    given = ["--trace", str(trace), "--cluster", "testbed"]
    learn = ["--quick", "--batches", "1", "--window-jobs", "60", "--eval-jobs", "60"]
    for command in (
        ["simulate", *given, "--mode", "cycle", "--policy", "model:rltune", "--policy", "delay"],
        ["simulate", *given, "--policy", "saf"],
        ["train", "ppo", *given, *learn, "--out", str(tmp_path / "mine")],
    ):
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.output
    assert compiled() == before
