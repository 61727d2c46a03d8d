"""The figures of docs/performance.md, measured here and now (`make bench`).

    python -m scripts.benchmarks [--model BUNDLE] [--philly CSV] [--site TOML] [--json] [PART ...]

--philly is the real October of Philly that the simulator plays, --site the cluster of the month in
cycles (its trace beside it as .csv.gz); without them the months are generated ones. `applying`
starts a Slurm of its own and runs only when it is named. Exit codes: 0 = measured; 2 = the model or
a trace cannot be used.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rltuned.errors import RltunedError
from scripts.benchmarks import (
    Figure,
    applying,
    deciding,
    growth,
    peers,
    placing,
    reading,
    remembering,
    simulating,
    writing,
)


def main(given: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m scripts.benchmarks")
    parser.add_argument("parts", nargs="*", metavar="PART", help="None: all but applying.")
    parser.add_argument("--model", type=Path, default=Path("models/rltune"))
    parser.add_argument("--philly", type=Path)
    parser.add_argument("--site", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(given)
    parts: dict[str, Callable[[], list[Figure]]] = {
        "peers": peers.measure,  # first: it may need the package index
        "deciding": partial(deciding.measure, asked.model),
        "bursting": partial(deciding.measure_burst, asked.model),
        "ordering": deciding.measure_order,
        "placing": placing.measure,
        "reading": partial(reading.measure, asked.model),
        "remembering": remembering.measure,
        "simulating": partial(simulating.measure, asked.model, asked.philly),
        "growth": growth.measure,
        "writing": partial(writing.measure, asked.site),
        "applying": applying.measure,
    }
    if unknown := set(asked.parts) - set(parts):
        parser.error(f"no part {min(unknown)!r}; there are: {', '.join(parts)}")
    try:
        figures = [figure for name in asked.parts or [*parts][:-1] for figure in parts[name]()]
    except RltunedError as error:
        print(error, file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps([f.document() for f in figures], indent=2))
    else:
        Console(width=160).print(_table(figures))
    return 0


def _table(figures: list[Figure]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("figure", "value", "unit", "reference", "ratio"):
        table.add_column(
            name, no_wrap=True, justify="left" if name in {"figure", "unit"} else "right"
        )
    table.add_column("of")
    for f in figures:
        table.add_row(
            f.name, f"{f.value:.4g}", f.unit, f"{f.reference:.4g}", f"{f.ratio:.3g}", f.source
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
