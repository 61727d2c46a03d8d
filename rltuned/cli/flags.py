"""Options that several commands share, and the settings they lead to."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltuned.text import escaped

if TYPE_CHECKING:  # pydantic and numpy, which `rltuned --help` does without
    from rltuned.core.order import Order
    from rltuned.policies.predictor import Predictor
    from rltuned.settings import Loaded
    from rltuned.sim.tables import Bad
    from rltuned.sim.trace import Trace

SHIPPED = "shipped"
BAD_SHOWN = 20
CONFIG_VARIABLE = "RLTUNED_CONFIG"


class BackendChoice(StrEnum):
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
    ),
]
WorldOption = Annotated[
    BackendChoice, typer.Option("--backend", help="The real Slurm, or the cluster built in.")
]
PolicyOption = Annotated[str | None, typer.Option("--policy", "-p", help="Rule or model:NAME.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
BoundsOption = Annotated[
    OnOff,
    typer.Option("--bounds", help="Delays within their bounds, or every policy's pure order."),
]
OwnOption = Annotated[
    float, typer.Option("--own", help="Part of a job's own length in its delay.", min=0.0)
]
ShareOption = Annotated[
    float, typer.Option("--share", help="Part of the backlog in its delay.", min=0.0)
]
ClipOption = Annotated[
    float,
    typer.Option(
        "--clip", help="No delay above so many limit x sqrt(GPUs) + share x backlog.", min=0.0
    ),
]
MaxDelayOption = Annotated[
    float, typer.Option("--max-delay", help="No delay above so many seconds.", min=0.0)
]
PredictorOption = Annotated[
    str,
    typer.Option(
        "--predictor", help="Of run times: a folder, the `shipped` one, or `none`: by the limits."
    ),
]
IntervalOption = Annotated[
    float, typer.Option("--interval", help="Seconds between cycles.", min=0.001, max=1e9)
]
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


def order_of(own: float, share: float, clip: float, max_delay_s: float) -> "Order":
    """What the four options ask for."""
    from rltuned.core.order import Order  # noqa: PLC0415

    try:
        return Order(own, share, clip, max_delay_s)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def predictor_of(given: str) -> "Predictor | None":
    """The predictor that the option asks for. Raises ModelError: it cannot be used."""
    from rltuned.policies.predictor import load_predictor  # noqa: PLC0415
    from rltuned.policies.shelf import shipped_predictor  # noqa: PLC0415

    if given == "none":
        return None
    return load_predictor(shipped_predictor() if given == SHIPPED else Path(given))


def shown_trace(path: Path) -> "Trace":
    """A trace file; its rows that are left out are named. Raises TraceError."""
    from rltuned.sim.trace import read_trace  # noqa: PLC0415

    trace = read_trace(path)
    warn_of_bad(path, trace.bad)
    return trace


def warn_of_bad(source: Path, bad: "Sequence[Bad]") -> None:
    """Name rows that are left out by file, line and reason; the first of many, all by number."""
    for row in bad[:BAD_SHOWN]:
        warn(f"{source}:{row.line}: {row.why}")
    if len(bad) > BAD_SHOWN:
        warn(f"{source}: {len(bad) - BAD_SHOWN} more bad rows")


def say(text: str = "") -> None:
    """One line on standard output."""
    sys.stdout.write(f"{printable(text)}\n")


def warn(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"rltuned: {printable(text)}\n")


def printable(text: str) -> str:
    """What Slurm says may hold escape sequences; a terminal must not obey them."""
    return escaped(text, keep="\n")
