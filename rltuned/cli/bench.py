"""`rltuned bench`: the figures of docs/performance.md, measured here and now."""

import importlib.util
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rltuned.bench import Figure, bursting, deciding, placing, reading
from rltuned.cli.flags import JsonOption, warn

app = typer.Typer()


@app.command()
def bench(
    *,
    model: Annotated[
        Path, typer.Option("--model", help="Folder of the bundle to score with.")
    ] = Path("models/warmstart-saf"),
    philly: Annotated[
        Path | None,
        typer.Option(help="The real month of Philly (merged CSV); a generated one without it."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the daemon's speed and memory, and the simulator's where its extra is installed.

    Exit codes: 0 = measured; 2 = the model or the trace cannot be used.
    """
    figures = [
        *deciding.measure(model),
        *bursting.measure(model),
        *placing.measure(),
        *reading.measure(model),
    ]
    if importlib.util.find_spec("numba") is None:
        warn("the simulator is not measured: the train extra is not installed")
    else:
        from rltuned.bench import simulating  # noqa: PLC0415 - needs the extra

        figures += simulating.measure(model, philly)
    if as_json:
        typer.echo(json.dumps([_document(f) for f in figures], indent=2))
    else:
        Console(width=160).print(_table(figures))


def _document(figure: Figure) -> dict[str, str | float]:
    return {
        "name": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "reference": figure.reference,
        "ratio": figure.ratio,
        "better": figure.better,
        "source": figure.source,
    }


def _table(figures: list[Figure]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("figure", "value", "unit", "reference", "ratio"):
        table.add_column(
            name, no_wrap=True, justify="left" if name in {"figure", "unit"} else "right"
        )
    table.add_column("of")
    for f in figures:
        numbers = (f"{f.value:.4g}", f.unit, f"{f.reference:.4g}", f"{f.ratio:.3g}")
        table.add_row(f.name, *numbers, f.source)
    return table
