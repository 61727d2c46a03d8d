"""Tables, completion and streams; what a command imports before it does anything."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from rltuned.cli.tables import ENDLESS, OF_PLAN, Column, console, show_table
from rltuned.settings import load
from rltuned.sim.cluster import read_cluster
from scripts.tools.reference.commands import commands
from tests import needs
from tests.configs import settings_file
from tests.programs import ran
from tests.unit.cli.journalled import live
from tests.unit.cli.runner import run

ROOT = Path(__file__).resolve().parents[3]
WIDTHS = (80, 100, 120)
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WORST = (
    "12345678", "gpu-large,long", "alexandra.x", "1000 -> 2000", "4294000000", "4293000000",
    "6d23h", "22:50 Tue 1 Dec to 00:15 Wed 2 Dec", "node001:8|node002:8",
    "long (7d00h), 8 GPUs, waited 6d23h, does not fit now",
)  # fmt: skip
"""A row that has no room for everything at any of the widths."""


def table_shown(columns: Any, rows: Any, width: int) -> list[str]:
    out = io.StringIO()
    show_table(Console(file=out, width=width), columns, rows)
    return out.getvalue().splitlines()


def at_pipe(width: int, *args: str) -> list[str]:
    """The lines of a command into a pipe."""
    done = run(*args, env={"COLUMNS": str(width)})
    assert done.exit_code in {0, 1}, done.output
    return done.stdout.splitlines()


def at_terminal(width: int, *args: str) -> list[str]:
    """The lines of a command on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES"}}
    child = subprocess.Popen(
        [sys.executable, "-m", "rltuned", *args],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL,
        env={**env, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    text = b""
    while piece := _read(ours):
        text += piece
    os.close(ours)
    assert child.wait(timeout=300) in {0, 1}
    return ESCAPES.sub("", text.decode()).splitlines()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other end is closed
        return b""


def test_what_finds_no_room_is_named() -> None:
    columns = (Column("order"), Column("wait", goes=1), Column("tail", goes=2))
    lines = table_shown(columns, [("delay", "1" * 40, "2" * 40)], 60)
    assert lines[-1] == "no room at 60 columns: tail"
    assert "1" * 40 in lines[1]


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), max_size=5),
       st.integers(20, 200))  # fmt: skip
def test_no_row_exceeds_the_screen_or_its_line(rows: list[tuple[str, str]], width: int) -> None:
    columns = (Column("job", least=5), Column("why", goes=1, least=5))
    lines = [s for s in table_shown(columns, rows, width) if not s.startswith("no room at ")]
    assert len(lines) == 1 + len(rows)
    assert all(Text(line).cell_len <= width for line in lines)


def test_a_file_has_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width == ENDLESS
    (head, row) = table_shown(OF_PLAN, [WORST], ENDLESS)
    assert re.split(" {2,}", head.strip()) == [column.name for column in OF_PLAN]
    assert re.split(" {2,}", row.strip()) == list(WORST)


Lines = Callable[..., list[str]]


@pytest.fixture(
    params=[*((at_pipe, width) for width in WIDTHS), (at_terminal, 100)],
    ids=lambda param: f"{param[0].__name__} {param[1]}",
)
def screen(request: pytest.FixtureRequest) -> tuple[Lines, int]:
    """How a command's lines are had, and how wide; a terminal has a width that is nobody's own."""
    found: tuple[Lines, int] = request.param
    return found


SIM = ("--backend", "sim", "--config", str(ROOT / "deploy/demo.toml"))
ROW = re.compile(r"^\d+ +gpu +user\d\d +\d+ -> \d+ +\d+ +\d+")
"""Job, partition, user, ranks, the number now and the new one."""


def test_plan(screen: tuple[Lines, int]) -> None:
    lines_of, width = screen
    lines = [line for line in lines_of(width, "plan", *SIM) if " -> " in line]
    assert len(lines) > 10
    assert all(ROW.match(line) and len(line) <= width for line in lines), lines


@pytest.fixture
def journal(tmp_path: Path) -> str:
    live(tmp_path)
    return str(settings_file(tmp_path, f'[daemon]\nstate_dir = "{tmp_path}"\n[http]\nport = 0\n'))


def test_status_and_history_begin_with_the_job(screen: tuple[Lines, int], journal: str) -> None:
    lines_of, width = screen
    (change,) = [s for s in lines_of(width, "status", "--config", journal) if "job 3:" in s]
    assert re.search(r"job 3: priority 100 -> \d+", change[:width])
    lines = lines_of(width, "history", "3", "--config", journal)
    assert lines[0].startswith("job 3 of ")
    assert re.search(r"priority 100 -> \d+: applied", lines[1][:width])


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


def test_a_moment_that_cannot_be_meant() -> None:
    site = ROOT / "tests/data/slurm/24.11/site"
    done = run("backtest", "--site", str(site), "--since", "2999-01-01")
    assert done.exit_code == 2
    assert "not before" in " ".join(done.output.split())


def test_a_mark_before_the_first_letter_of_a_file_is_no_letter(tmp_path: Path) -> None:
    settings, cluster = tmp_path / "a.toml", tmp_path / "c.toml"
    settings.write_text("[daemon]\ninterval_s = 61\n", "utf-8-sig")
    assert load(settings).settings.daemon.interval_s == 61
    cluster.write_text('[[nodes]]\nname = "n1"\ngpus = 2\ncpus = 4\nmem_mib = 9\n', "utf-8-sig")
    assert read_cluster(cluster).gpus == 2


@pytest.mark.parametrize(("table", "port"), [("", None), ("[http]\nport = {}\n", 1)])
def test_the_built_in_cluster_takes_the_port(tmp_path: Path, table: str, port: int | None) -> None:
    config = tmp_path / "rltuned.toml"
    free = 20_000 + os.getpid() % 20_000
    config.write_text(table.format(free))
    done = run("run", "--backend", "sim", "--once", "--config", str(config))
    assert done.exit_code == 0, done.output
    assert (f"127.0.0.1:{free}/metrics" in done.stderr) == (port is not None)


EXTRAS = {"torch", "numba", "llvmlite", "matplotlib", "scipy", "cma", "gymnasium"}
"""No dependency of the base install, and seconds to import."""
LISTED = """
import atexit, sys
atexit.register(lambda: print("imported:", *sorted({m.partition(".")[0] for m in sys.modules})))
from rltuned.cli import main
main()
"""
SEVERAL = f"""
import sys
from rltuned.cli import code_of
for words in sys.argv[1:]:
    code = code_of(words.split())
    found = {EXTRAS} & {{m.partition(".")[0] for m in sys.modules}}
    print("was:", code, *found, ":", words)
"""
WRONG = (
    "train ppo", "train ppo --out x --set base=none", "train evolve --out x --set members=1",
    "train imitate .",
    "train predictor --out .",
    "tune --test-period some", "tune --since some",
    "backtest --split 2", "backtest --train full",
    "evaluate", "evaluate -m x --trace x --cluster testbed --set rules=none",
    "evaluate -m x --trace x --cluster testbed --set part=1,0",
    "evaluate -m x --trace x --cluster testbed --bounds off",
    "simulate", "simulate --trace x --cluster none -p fcfs",
    "simulate --trace x --cluster testbed -p none",
)  # fmt: skip
"""Wrong options of the commands that need the train extra."""
SIMULATED = ["simulate", "--trace", "none.csv", "--cluster", "testbed", "--policy", "fcfs"]


def imported(*args: str) -> set[str]:
    """The packages that a command line has imported when it ends."""
    done = ran(sys.executable, "-c", LISTED, *args)
    (names,) = re.findall(r"^imported: (.*)$", done.stdout, re.MULTILINE)
    return set(names.split())


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_the_overview_imports_no_command(args: list[str]) -> None:
    heavy = {"numpy", "pydantic", "pulp", "jinja2", "prometheus_client", "sqlite3"}
    assert not imported(*args) & (heavy | EXTRAS)


def assert_no_extra(code: int, lines: Iterable[str]) -> None:
    """Command lines, one after the other in one process, end so; none imports what few have."""
    rows = re.findall(
        r"^was: (.*)$", ran(sys.executable, "-c", SEVERAL, *lines).stdout, re.MULTILINE
    )
    assert rows == [f"{code} : {line}" for line in lines]


def test_help_needs_no_extra() -> None:
    every = [one for command in commands() for one in (command, *command.children)]
    assert_no_extra(0, [f"{one.path.removeprefix('rltuned ')} --help" for one in every])


def test_a_wrong_option_is_refused_before_an_extra_is_imported() -> None:
    assert_no_extra(2, WRONG)


def test_a_daemon_of_one_policy_imports_neither_solver_nor_templates(tmp_path: Path) -> None:
    config = settings_file(tmp_path, '[policy]\nname = "delay"\nplacement = "pack"\n')
    flags = ("--backend", "sim", "--dry-run", "--once")
    found = imported("run", "--config", str(config), *flags)
    assert not found & ({"pulp", "jinja2"} | EXTRAS)


def test_a_missing_extra_is_named() -> None:
    program = f"import sys; sys.modules['numba'] = None\n{LISTED}"
    done = ran(sys.executable, "-c", program, *SIMULATED, code=2)
    assert done.stderr == (
        "rltuned: needs the Python package numba, which is not installed; "
        "install rltuned[train], or the package rltuned-train\n"
    )


WITHOUT = """\
#!{python}
import sys
for name in ("torch", "numba", "matplotlib"):
    sys.modules[name] = None
from rltuned.cli import main
main()
"""
ASKED = [
    ("rltuned ev", ["evaluate"]),
    ("rltuned models v", ["verify"]),
    ("rltuned evaluate --mod", ["--mode", "--model"]),
    ("rltuned plan --backend s", ["sim", "slurm"]),
    ("rltuned status --a", ["--all"]),
    ("rltuned run --on", ["--once"]),
]
"""What is typed, and what may follow."""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment whose `rltuned` can import no extra."""
    program = tmp_path / "bin" / "rltuned"
    program.parent.mkdir()
    program.write_text(WITHOUT.format(python=sys.executable))
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), "TERM": "dumb"}


def output(env: dict[str, str], *command: str) -> str:
    done = ran(*command, code=None, env=env)
    assert done.stdout.strip(), done.stderr
    return done.stdout


def script(shell: str, env: dict[str, str], folder: Path) -> Path:
    """The shell's script as the packages have it."""
    path = folder / f"rltuned.{shell}"
    path.write_text(output({**env, "_RLTUNED_COMPLETE": f"source_{shell}"}, "rltuned"))
    return path


@pytest.mark.parametrize(("typed", "expected"), ASKED)
def test_bash(env: dict[str, str], tmp_path: Path, typed: str, expected: list[str]) -> None:
    line = f"COMP_WORDS=({typed}); COMP_CWORD={len(typed.split()) - 1}"
    shown = "_rltuned_completion rltuned; printf '%s\\n' ${COMPREPLY[@]}"
    asked = f"source {script('bash', env, tmp_path)}; {line}; {shown}"
    assert sorted(output(env, "bash", "--norc", "-c", asked).split()) == expected


@pytest.mark.parametrize(("typed", "expected"), ASKED)
def test_fish(env: dict[str, str], tmp_path: Path, typed: str, expected: list[str]) -> None:
    needs.program("fish")
    asked = f"source {script('fish', env, tmp_path)}; complete -C '{typed}'"
    lines = output(env, "fish", "--no-config", "-c", asked).splitlines()
    assert sorted(line.split("\t")[0] for line in lines) == expected
