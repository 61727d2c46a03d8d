"""The `rltuned` command: a table of sub-commands, each in a module of its own.

A module is imported when its command is asked for, so that `rltuned version` or `rltuned restore`
never waits for torch or numba.

Exit codes: 0 = done; 1 = done, and something is unfit or could not be finished; 2 = wrong use,
settings, model or input. docs/operations.md lists them per command.
"""

import importlib
import os
import sys
from typing import Any, Final

import typer
from typer.core import TyperGroup

from rltuned.errors import ModelError, RltunedError, SettingsError, TraceError

COMMANDS: Final = {
    "run": "rltuned.cli.run",
    "plan": "rltuned.cli.plan",
    "explain": "rltuned.cli.explain",
    "check": "rltuned.cli.check",
    "restore": "rltuned.cli.restore",
    "config": "rltuned.cli.config",
    "models": "rltuned.cli.models",
    "train": "rltuned.cli.train",
    "version": "rltuned.cli.version",
}
"""Command -> the module whose `app` carries it out, in the order of the help text."""


class LazyGroup(TyperGroup):
    """Knows all names, and imports a command when it is used.

    Any: typer brings a click of its own since 0.26, so its types have no name that lasts.
    """

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name])
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command


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
            sys.stderr.write(f"rltuned: {line}\n")
        sys.exit(2 if isinstance(error, SettingsError | ModelError | TraceError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output went away; the interpreter must not complain about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
