"""The daemons of this machine: one settings file each, as rltuned@NAME reads them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rltuned.errors import SettingsError
from rltuned.settings import DEFAULT_PATH, Loaded, load

AllOption = Annotated[
    bool,
    typer.Option(
        "--all", help="Of every settings file *.toml beside --config, or in /etc/rltuned."
    ),
]


@dataclass(frozen=True, slots=True)
class Instance:
    """One daemon. loaded: its settings; None = they cannot be used, and `error` says why."""

    name: str
    path: Path
    loaded: Loaded | None
    error: str = ""


def instances(config: Path | None) -> Iterator[Instance]:
    """Those of the folder of `config`, each read when it is its turn. Raises SettingsError."""
    folder = (config or DEFAULT_PATH).parent
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError as error:
        raise SettingsError(f"{folder}: {error.strerror}") from None
    if not paths:
        raise SettingsError(f"{folder}: no settings file *.toml")
    for path in paths:
        try:
            yield Instance(path.stem, path, load(path))
        except SettingsError as error:
            yield Instance(path.stem, path, None, str(error))
