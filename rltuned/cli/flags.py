"""Options that several commands share, and the settings they lead to."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltuned.errors import SettingsError
from rltuned.text import escaped

if TYPE_CHECKING:  # pydantic and numpy, which `rltuned --help` does without
    from rltuned.settings import Loaded

CONFIG_VARIABLE = "RLTUNED_CONFIG"


class BackendChoice(StrEnum):
    """Which cluster a command looks at."""

    SLURM = "slurm"
    SIM = "sim"


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar=CONFIG_VARIABLE,
        help="Settings file; /etc/rltuned/rltuned.toml when it exists.",
    ),
]
WorldOption = Annotated[
    BackendChoice, typer.Option("--backend", help="The real Slurm, or the cluster built in.")
]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", "-p", help="Rule, model:NAME or model:./FOLDER.")
]
AllOption = Annotated[
    bool,
    typer.Option(
        "--all", help="Of every settings file *.toml beside --config, or in /etc/rltuned."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of the built-in cluster's jobs.", min=0)]
SpeedOption = Annotated[
    float,
    typer.Option(
        "--speed", help="Simulated seconds per second, with --backend sim.", min=0.01, max=1e6
    ),
]


def settings_of(config: Path | None, *flags: tuple[str, object, str]) -> "Loaded":
    """Read the settings; a flag is (dotted key, value or None, name). Raises SettingsError."""
    from rltuned.settings import Flag, load  # noqa: PLC0415

    return load(config, tuple(Flag(*flag) for flag in flags if flag[1] is not None))


def in_force(config: Path | None, *flags: tuple[str, object, str]) -> "Loaded":
    """The same with what `policy.name = "tuned"` stands for. Raises SettingsError, ModelError."""
    from rltuned.daemon import wiring  # noqa: PLC0415 - numpy
    from rltuned.daemon.clock import SystemClock  # noqa: PLC0415

    return wiring.in_force(settings_of(config, *flags), SystemClock().now())


def instances(config: Path | None) -> Iterator["tuple[Path, Loaded | SettingsError]"]:
    """The daemons of this machine: the settings files in the folder of `config`, as rltuned@NAME
    reads them, or why one cannot be used. Each is read when it is its turn. Raises SettingsError.
    """
    from rltuned.settings import DEFAULT_PATH, load  # noqa: PLC0415

    folder = (config or DEFAULT_PATH).parent
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError as error:
        raise SettingsError(f"{folder}: {error.strerror}") from None
    if not paths:
        raise SettingsError(f"{folder}: no settings file *.toml")
    for path in paths:
        try:
            yield path, load(path)
        except SettingsError as error:
            yield path, error


def say(text: str = "") -> None:
    """One line on standard output."""
    sys.stdout.write(f"{printable(text)}\n")


def warn(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"rltuned: {printable(text)}\n")


def printable(text: str) -> str:
    """What Slurm says may hold escape sequences; a terminal must not obey them."""
    return escaped(text, keep="\n")
