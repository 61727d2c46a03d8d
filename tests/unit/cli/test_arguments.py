"""No argument of any command ends it with a traceback.

Every option of every command gets odd values, a few of them here, all in `make fuzz`.
"""

import io
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from rltuned.cli import code_of
from scripts.tools.reference.commands import Command, commands
from tests.configs import settings_file

MANY = int(os.environ.get("RLTUNED_MUTATIONS", "300")) // 5
SEED = int(os.environ.get("RLTUNED_SEED", "1"))
LONGEST_S = 60
VALUES = (
    "", " ", "-1", "0", "1", "1e999", "nan", "-inf", "9" * 40, "1.5", "0x1", "\u00b2", "\x00",
    "\x1b[2J", "..", ".", "/", "/dev/null", "/dev/full", "/dev/zero/x", "no/such/place", "a" * 300,
    "=", "a=b",
    "model:", "model:../x", "model:a/b", "99999999d", "0d", "2026-13-41", "0001-01-01",
    "9999-12-31", "1,2", "1_[", "1_[1-", "1+", "*", "[", "{", "%", "\ud800", "tuned", "shipped",
    "none", "sacct",
)  # fmt: skip
BASE: Mapping[str, tuple[str, ...]] = {
    "run": ("--backend", "sim", "--once"),
    "restore": ("--all",),
    "backtest": ("--site", "/no/site", "--train", "none"),
    "tune": ("--site", "/no/site", "--dry-run"),
    "simulate": ("--trace", "/no/trace", "--cluster", "testbed", "--policy", "sjf"),
    "evaluate": ("--model", "/no/model", "--trace", "/no/trace", "--cluster", "testbed"),
    "train ppo": ("--trace", "/no/trace", "--cluster", "testbed", "--out", "/no/such/out"),
    "train predictor": ("--trace", "/no/trace", "--out", "/no/such/out"),
    "train imitate": ("/no/sacct", "--out", "/no/such/out", "--gpus", "4"),
    "traces convert": ("/no/file", "--from", "swf", "--out", "/no/such/out"),
    "traces synth": ("philly-like", "--jobs", "5", "--out", "/no/such/out"),
    "traces window": ("/no/trace", "--jobs", "5", "--out", "/no/such/out"),
    "traces scale": ("/no/trace", "--load", "1", "--gpus", "4", "--out", "/no/such/out"),
    "breaker reset": ("gpu",),
    "explain": ("7", "--backend", "sim"),
    "plan": ("--backend", "sim"),
    "history": ("7",),
    "models verify": ("/no/model",),
    "models card": ("/no/model",),
    "models promote": ("g-1",),
    "models adopt": ("/no/model",),
}
"""What a command needs, and what ends it soon: nothing is trained, fetched or asked for long."""
NOT_TRIED = frozenset({"status --every", "run --cycles", "run --interval", "run --backend"})
"""They make a command wait for as long as they say, or watch for ever."""


def _every(those: Iterable[Command]) -> Iterator[Command]:
    for one in those:
        yield one
        yield from _every(one.children)


def cases() -> list[tuple[str, str, str, bool]]:
    """Command, option or argument, value, and whether it is an argument."""
    return [
        (name, option.names[0], value, option.is_argument)
        for command in _every(commands())
        for name in [command.path.removeprefix("rltuned ")]
        for option in command.parameters
        for value in VALUES
        if option.kind
        and f"{name} {option.names[0]}" not in NOT_TRIED
        and not name.startswith("traces fetch")
    ]


@contextmanager
def in_time() -> Iterator[None]:
    def late(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"longer than {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def odd_end(words: list[str]) -> str:
    """How a command ended that should have ended in words; empty = it did."""
    said = io.StringIO()
    with in_time(), redirect_stdout(said), redirect_stderr(said):
        try:
            code = code_of(words)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            return f"{type(error).__name__}: {error}"
    return "" if code in {None, 0, 1, 2, 3} else f"exit code {code!r}"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in; no Slurm, and settings of its own."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    config = settings_file(
        tmp_path,
        f'[daemon]\nstate_dir = "{state}"\npause_file = "{tmp_path}/PAUSE"\n[http]\nport = 0\n'
        f'[slurm]\nbin_dir = "{tmp_path}/bin"\ntimeout_s = 1\n',
    )
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("RLTUNED_CONFIG", str(config))
    monkeypatch.chdir(work)
    return work


@pytest.mark.timeout(3_600)
def test_an_odd_value_is_refused_in_words(nowhere: Path) -> None:
    every = cases()
    rng = np.random.default_rng(SEED)
    chosen = rng.permutation(len(every))[: max(MANY, 1)]
    failures: list[str] = []
    for number in chosen.tolist():
        name, option, value, is_argument = every[number]
        base = BASE.get(name, ())
        words = [*name.split(), *(() if is_argument else base)]
        words += [value, *base[1:]] if is_argument else [option, value]
        if why := odd_end(words):
            failures.append(f"{words}: {why}"[:300])
    assert not failures, f"{len(failures)} of {len(chosen)}:\n" + "\n".join(failures[:30])
    assert nowhere.exists()


@pytest.mark.parametrize("out", ["/", ""])
def test_a_bundle_needs_a_name(nowhere: Path, out: str) -> None:  # noqa: ARG001 - to be there
    assert code_of(["train", "evolve", "--out", out]) == 2
