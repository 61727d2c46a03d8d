"""`rltuned config`: write, check and show the settings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rltuned.cli.flags import ConfigOption, JsonOption, say, settings_of
from rltuned.cli.newfile import init
from rltuned.daemon.wiring import check_policy_name
from rltuned.settings import load
from rltuned.settings.reference import example as example_text
from rltuned.settings.reference import header, toml

app = typer.Typer(no_args_is_help=True)


@app.callback()
def config_group() -> None:
    """Write, check and show the settings."""


app.command()(init)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The settings file to check.")]) -> None:
    """Check a settings file without starting anything.

    Exit codes: 0 = it can be used; 2 = it cannot, with file, line, key and reason.
    """
    loaded = load(file)
    check_policy_name(loaded)
    say(f"{file}: ok")


@app.command()
def show(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print every value in force and where it comes from."""
    loaded = settings_of(config)
    tables = loaded.settings.model_dump(mode="json")
    if as_json:
        rows = {
            f"{name}.{key}": {"value": value, "source": loaded.origin(f"{name}.{key}")}
            for _, name, keys in _parts(tables)
            for key, value in keys.items()
        }
        say(json.dumps(rows, indent=2))
        return
    for head, name, keys in _parts(tables):
        say(head)
        for key, value in keys.items():
            text = f"# {key} =" if value is None else f"{key} = {toml(value)}"
            say(f"{text:<56} # {loaded.origin(f'{name}.{key}')}")
        say()


def _parts(tables: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Header, name and keys of each table; of an array of tables each for itself."""
    for table, keys in tables.items():
        if isinstance(keys, list):
            yield from ((header(table), f"{table}.{i}", one) for i, one in enumerate(keys))
        else:
            yield header(table), table, keys


@app.command()
def example() -> None:
    """Print a settings file with every key, its default and its meaning."""
    say(example_text().rstrip("\n"))
