"""The `rltuned` command: a table of sub-commands, each in a module of its own.

A module is imported when its command is used, so that `rltuned version` or `rltuned restore` never
waits for torch or numba.

Exit codes: 0 = done; 1 = done, and something is unfit or could not be finished; 2 = wrong use,
settings, model or input. docs/interfaces.md lists them per command.
"""

import importlib
import os
import sys
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from rltuned.cli.flags import warn
from rltuned.errors import ModelError, RltunedError, SettingsError, TraceError

COMMANDS: Final = {
    "run": "Watch the queue and rank it, every interval: the daemon.",
    "plan": "Decide once, show what would change, and write nothing.",
    "explain": "Show where a job stands, why, and what rltuned would do with it.",
    "status": "Show the daemon's state, also when it is down.",
    "top": "Show the daemon and its queue, live.",
    "check": "Check settings, model, state folder and Slurm, with the remedy for what is wrong.",
    "breaker": "Show and close the circuit breakers of partitions.",
    "restore": "Give the jobs that rltuned changed their own priority back.",
    "history": "Show what rltuned has changed of a job, when and why, from the journal.",
    "replay": "Decide a past cycle again from the journal, and compare the plans.",
    "config": "Write, check and show the settings.",
    "models": "The bundles of trained policies.",
    "train": "Learn policies offline (needs the train extra).",
    "simulate": "Play a trace on a simulated cluster under policies (needs the train extra).",
    "traces": "Convert, describe, generate, cut and scale traces.",
    "backtest": "This site's own history, played under rltuned (needs the train extra).",
    "evaluate": "Learned policies beside every rule, with intervals (needs the train extra).",
    "version": "Print the version.",
}
"""Command -> what it does, in the order of the help text. Module rltuned.cli.NAME has its `app`."""


class LazyGroup(TyperGroup):
    """Knows all names, and imports a command when it is used.

    Any: typer brings a click of its own since 0.26, so its types have no name that lasts.
    """

    _only_names = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        if self._only_names:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name])
        command = typer.main.get_command(_module(cmd_name).app)
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._only_names = True  # an overview must not import everything
        try:
            super().format_help(ctx, formatter)
        finally:
            self._only_names = False


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"rltuned.cli.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "rltuned":
            raise
        raise SettingsError(
            f"`rltuned {name}` needs the Python package {error.name}, which is not installed; "
            "install rltuned[train]"
        ) from None


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def rltuned() -> None:
    """A priority daemon for shared GPU clusters under Slurm."""


def main() -> None:
    """Run the command line; ends the process with the documented exit codes."""
    try:
        app(prog_name="rltuned")
    except RltunedError as error:
        for line in str(error).splitlines():
            warn(line)
        sys.exit(2 if isinstance(error, SettingsError | ModelError | TraceError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output went away; the interpreter must not complain about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
