"""The `rltuned` command: a table of sub-commands, each in a module of its own.

A module is imported when its command is used, so that `rltuned restore` never waits for torch or
numba.

Exit codes: 0 = done; 1 = done, and something is unfit or could not be finished; 2 = wrong use,
settings, model or input. docs/interfaces.md lists them per command.
"""

import gc
import importlib
import io
import os
import platform
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from rltuned import __version__
from rltuned.cli.flags import say, warn
from rltuned.errors import ModelError, RltunedError, SettingsError, TraceError

LAB: Final = "Offline"
PANELS: Final = {
    "Daily": {
        "plan": "Decide once, show what would change, and write nothing.",
        "explain": "Show where a job stands, why, and what rltuned would do with it.",
        "status": "Show the daemon's state, also when it is down.",
        "groups": "Show groups of dependent jobs, and when they end.",
        "history": "Show what rltuned has changed of a job, when and why, from the journal.",
    },
    "Operate": {
        "run": "Watch the queue and rank it, every interval: the daemon.",
        "check": "Check settings, model, state folder and Slurm, with the remedy for what is "
        "wrong.",
        "breaker": "Show and close the circuit breakers of partitions.",
        "restore": "Restore the priority of the jobs that rltuned changed.",
        "config": "Write, check and show the settings.",
        "models": "The bundles of trained policies.",
        "export": "Write units, dashboards, alerts or examples into a folder.",
    },
    LAB: {
        "train": "Learn policies offline (needs the train extra).",
        "simulate": "Play a trace on a simulated cluster under policies (needs the train extra).",
        "traces": "Traces of jobs: convert, fetch, describe, synth, window, scale.",
        "backtest": "This site's own history, played under rltuned (needs the train extra).",
        "tune": "Choose an order on this site's own record (needs the train extra).",
        "evaluate": "Learned policies beside every rule, with intervals (needs the train extra).",
    },
}
"""Heading of the help text -> command -> what it does. `app_of` loads it."""
COMMANDS: Final = {name: about for those in PANELS.values() for name, about in those.items()}
_SHARED: Final = {"groups": "plan", "history": "status"}
_PANEL_OF: Final = {name: panel for panel, those in PANELS.items() for name in those}


class LazyGroup(TyperGroup):
    """Imports a command when it is used. Any: typer brings a click whose types do not last."""

    _only_names = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        if self._only_names:
            return TyperCommand(
                cmd_name, help=COMMANDS[cmd_name], rich_help_panel=_PANEL_OF[cmd_name]
            )
        command = typer.main.get_command(app_of(cmd_name))
        command.name = cmd_name
        _reflow(command)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] == "version":
            _print_version(True)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._only_names = True  # an overview must not import everything
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self._only_names = True
        return super().shell_complete(ctx, incomplete)


def _reflow(command: Any) -> None:
    """Reflow the help's paragraphs; `[ladder]` is no markup; only `rltuned` installs completion."""
    command.rich_markup_mode = "markdown"
    command.params = [p for p in command.params if not str(p.name).endswith("_completion")]
    for child in getattr(command, "commands", {}).values():
        _reflow(child)


def app_of(name: str) -> typer.Typer:
    """A command: `app` of the module of its name, or NAME_app of the one that it shares."""
    module = f"{'lab.cli' if _PANEL_OF[name] == LAB else 'cli'}.{_SHARED.get(name, name)}"
    gc.disable()  # what an import makes stays: the search for reference cycles finds nothing
    try:
        found = importlib.import_module(f"rltuned.{module}")
    finally:
        gc.freeze()
        gc.enable()
    app: typer.Typer = getattr(found, f"{name}_app" if name in _SHARED else "app")
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        python = platform.python_version()
        say(f"rltuned {__version__} (Python {python}, {platform.machine()})")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def rltuned(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A priority daemon for shared GPU clusters under Slurm."""
    del version  # its callback has printed it and ended the command


def main() -> None:
    """Run the command line; ends the process with the documented exit codes."""
    # numpy's threads wait busily, and the controller's cores are Slurm's
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # prometheus_client would share metrics by files, or name them otherwise
    for name in [name for name in os.environ if name.upper().startswith("PROMETHEUS_")]:
        del os.environ[name]
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # or the next file that is opened takes its place
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    out = _taking_all("stdout", 1)
    _taking_all("stderr", 2)
    code = code_of()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes at its end
        code = code or 1
    if out.broken:
        warn(f"standard output: {out.broken}")
        code = code or 1
    sys.exit(code)


class _TakingAll(io.FileIO):
    """A file that takes all and forgets what has no room: work goes on, and restore with it.
    broken: why, empty = all was written. A reader that went away ends the command.
    """

    broken = ""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            raise
        except OSError as error:
            self.broken = self.broken or error.strerror or str(error)
            return len(data)


def _taking_all(name: str, number: int) -> _TakingAll:
    """Put it under a standard stream."""
    old, file = getattr(sys, name), _TakingAll(number, "w", closefd=False)
    encoding, errors = ("utf-8", "strict") if old is None else (old.encoding, old.errors)
    buffered = io.BufferedWriter(file)
    setattr(sys, name, io.TextIOWrapper(buffered, encoding, errors, line_buffering=True))
    return file


def code_of(words: Sequence[str] | None = None) -> Any:
    """Run a command; its exit code, or what sys.exit takes. words: None = of the command line."""
    try:
        app(words, prog_name="rltuned")
    except SystemExit as end:
        return end.code
    except RltunedError as error:
        for line in str(error).splitlines():
            warn(line)
        return 2 if isinstance(error, SettingsError | ModelError | TraceError) else 1
    except ModuleNotFoundError as error:
        return _lacking(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 1  # the reader of our output went away
    except (OSError, UnicodeError, MemoryError) as error:
        # a path or a text that the machine does not take, and more than it has room for
        warn(_reason(error))
        return 2
    return 0


def _lacking(error: ModuleNotFoundError) -> int:
    package = (error.name or "").partition(".")[0]
    if package == "rltuned":
        raise error
    warn(
        f"needs the Python package {package}, which is not installed; install rltuned[train], or "
        "the package rltuned-train"
    )
    return 2


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or "there is not enough memory for this"
