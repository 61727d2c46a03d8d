"""Options that several commands share, and the settings they lead to."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltuned.settings.source import Flag, Loaded, load

if TYPE_CHECKING:  # imports numpy, and `rltuned restore` does without
    from rltuned.core.starvation import Bound

CONFIG_VARIABLE = "RLTUNED_CONFIG"


class World(StrEnum):
    """Which cluster a command looks at."""

    SLURM = "slurm"
    SIM = "sim"


class OnOff(StrEnum):
    """A switch that can be named."""

    ON = "on"
    OFF = "off"


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar=CONFIG_VARIABLE,
        help="Settings file; /etc/rltuned/rltuned.toml when it exists.",
        show_default=False,
    ),
]
WorldOption = Annotated[
    World, typer.Option("--backend", help="The real Slurm, or the cluster built in.")
]
PolicyOption = Annotated[
    str | None,
    typer.Option("--policy", "-p", help="Base policy or model:NAME.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
GuardOption = Annotated[
    OnOff,
    typer.Option(
        "--guard", help="Put jobs first that a model lets wait too long; rules go unguarded."
    ),
]
BoundOption = Annotated[
    float,
    typer.Option(
        "--starvation-bound", help="Seconds that a model may let a job wait in any case.", min=0.0
    ),
]
FactorOption = Annotated[
    float,
    typer.Option(
        "--starvation-factor",
        help="Or so many times what jobs submitted before it make it wait.",
        min=1.0,
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Of the built-in cluster's jobs.", min=0)]
SpeedOption = Annotated[
    float,
    typer.Option(
        "--speed", help="Simulated seconds per second, with --backend sim.", min=0.01, max=1e6
    ),
]


def settings_of(config: Path | None, *flags: tuple[str, object, str]) -> Loaded:
    """Read the settings; every flag is (dotted key, value or None = not given, name).

    Raises:
        SettingsError: the file or a flag cannot be used.
    """
    return load(config, tuple(Flag(*flag) for flag in flags if flag[1] is not None))


def starvation_of(guard: OnOff, bound_s: float, factor: float) -> "Bound | None":
    """The guard that the three options ask for."""
    from rltuned.core.starvation import Bound  # noqa: PLC0415

    try:
        return Bound(bound_s, factor) if guard is OnOff.ON else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def say(text: str = "") -> None:
    """One line on standard output."""
    sys.stdout.write(f"{printable(text)}\n")


def warn(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"rltuned: {printable(text)}\n")


def printable(text: str) -> str:
    """What Slurm says may hold escape sequences; a terminal must not obey them."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
