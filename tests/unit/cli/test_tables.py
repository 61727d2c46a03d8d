"""Tables at 80, 100 and 120 columns, into a pipe and on a terminal: what has to be read stays."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from rltuned.cli.tables import ENDLESS, OF_PLAN, Column, console, show_table
from rltuned.lab.cli import backtest, evaluate
from tests.configs import settings_file
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


def shown(columns: Any, rows: Any, width: int) -> list[str]:
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


# -- the shared code ----------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
def test_a_change_keeps_job_partition_user_and_numbers(width: int) -> None:
    (head, row) = shown(OF_PLAN, [WORST], width)[:2]
    assert len(row) <= width
    assert row.split()[0] == "12345678"
    assert "4294000000" in row
    assert "4293000000" in row
    for name, least in (("partition", "gpu-larg"), ("user", "alexa"), ("new", "4293000000")):
        assert name in head
        assert least in row


def test_why_is_cut_first() -> None:
    row = ("7", "gpu", "ann", "9 -> 1", "100", "200", "4m", "now", "p1:2", "x" * 100)
    (head, line) = shown(OF_PLAN, [row], 96)
    assert re.split(" {2,}", head.strip()) == [column.name for column in OF_PLAN]
    assert line.rstrip().endswith("x…")


def test_what_finds_no_room_is_named() -> None:
    columns = (Column("order"), Column("wait", goes=1), Column("tail", goes=2))
    lines = shown(columns, [("delay", "1" * 40, "2" * 40)], 60)
    assert lines[-1] == "no room at 60 columns: tail"
    assert "1" * 40 in lines[1]


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), max_size=5),
       st.integers(20, 200))  # fmt: skip
def test_no_row_is_wider_than_the_screen_or_two_lines_high(
    rows: list[tuple[str, str]], width: int
) -> None:
    columns = (Column("job", least=5), Column("why", goes=1, least=5))
    lines = [s for s in shown(columns, rows, width) if not s.startswith("no room at ")]
    assert len(lines) == 1 + len(rows)
    assert all(Text(line).cell_len <= width for line in lines)


def test_a_file_has_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width == ENDLESS
    (head, row) = shown(OF_PLAN, [WORST], ENDLESS)
    assert re.split(" {2,}", head.strip()) == [column.name for column in OF_PLAN]
    assert re.split(" {2,}", row.strip()) == list(WORST)


# -- the commands -------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "args",
    [("plan", *SIM), ("run", *SIM, "--dry-run", "--once", "--show", "--interval", "60")],
    ids=["plan", "demo and run --show"],
)
def test_plan_and_demo(screen: tuple[Lines, int], args: tuple[str, ...]) -> None:
    lines_of, width = screen
    lines = [line for line in lines_of(width, *args) if " -> " in line]
    assert len(lines) > 10
    assert all(ROW.match(line) and len(line) <= width for line in lines), lines


@pytest.fixture
def journal(tmp_path: Path) -> str:
    live(tmp_path)
    return str(settings_file(tmp_path, f'[daemon]\nstate_dir = "{tmp_path}"\n[http]\nport = 0\n'))


def test_status_and_history_begin_a_line_with_job_and_change(
    screen: tuple[Lines, int], journal: str
) -> None:
    lines_of, width = screen
    (change,) = [s for s in lines_of(width, "status", "--config", journal) if "job 3:" in s]
    assert re.search(r"job 3: priority 100 -> \d+", change[:width])
    lines = lines_of(width, "history", "3", "--config", journal)
    assert lines[0].startswith("job 3 of ")
    assert re.search(r"priority 100 -> \d+: applied", lines[1][:width])


@pytest.mark.parametrize("width", WIDTHS)
def test_evaluate_and_backtest_keep_the_order_and_its_wait(width: int) -> None:
    change = "-12.3% [-15.0%, -10.1%]"
    names = [c.name for c in evaluate.COLUMNS]
    head, row, *_ = shown(evaluate.COLUMNS, [("clairvoyant:saf", *[change] * 5)], width)
    assert head.split()[:2] == names[:2]
    assert row.startswith(f"clairvoyant:saf  {change}")
    row = shown(
        backtest.COLUMNS,
        [("multifactor, simulated", "123456", change, "1234567", "12.34", "33%", "44%", "12.3")],
        width,
    )[1]
    assert row.startswith("multifactor, simulated")
    assert change in row
    assert len(row) <= width
