"""What the shell may complete, without importing a command: words.json, which `make docs` writes.

A command stands there with its options and its own commands. From that a command is made which can
be completed and not run.
"""

import inspect
import json
import os
from importlib import resources
from typing import Annotated, Any, Final, Literal

import typer

VARIABLE: Final = "_RLTUNED_COMPLETE"
"""Set by typer's scripts for bash, zsh and fish."""


def is_completing() -> bool:
    """Whether a shell asks for words."""
    return os.environ.get(VARIABLE, "").startswith("complete")


def words_of(name: str) -> Any:
    """A command that can be completed and not run, as typer makes them."""
    table = json.loads((resources.files("rltuned.cli") / "words.json").read_text("utf-8"))
    app = typer.Typer(add_completion=False)
    entry = table[name]
    if "commands" not in entry:
        app.command()(_function(entry["options"]))
        return typer.main.get_command(app)
    app.callback()(_function(entry.get("options", [])))
    for child, found in entry["commands"].items():
        app.command(child)(_function(found["options"]))
    return typer.main.get_command(app)


def _function(options: list[dict[str, Any]]) -> Any:
    def nothing(**_: object) -> None:
        """Never called."""

    parameters = [_parameter(f"p{at}", option) for at, option in enumerate(options)]
    nothing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    nothing.__annotations__ = {p.name: p.annotation for p in parameters}
    return nothing


def _parameter(name: str, option: dict[str, Any]) -> inspect.Parameter:
    names, kind, about = option["names"], option["kind"], option["help"]
    taken: Any = bool if not kind else Literal[tuple(kind.split("|"))] if "|" in kind else str
    info: Any = typer.Option(*names, help=about)
    if option["is_argument"]:
        info = typer.Argument(help=about)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[taken | None, info]
    )
