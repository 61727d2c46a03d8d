"""The figures of docs/performance.md, measured here and now (`make bench`)."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rltuned.errors import RltunedError
from scripts.benchmarks.cases import CASES, Asked, Figure


def main(given: Sequence[str] | None = None) -> int:
    """Measure and print. Exit code 2: the model or a trace cannot be used."""
    words = "\n".join(f"  {name:12}{about}" for name, (_, about) in CASES.items())
    parser = argparse.ArgumentParser(
        prog="python -m scripts.benchmarks", description=f"{__doc__}\n\n{words}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("cases", nargs="*", metavar="CASE", help="None: all but cycling.")
    parser.add_argument("--model", type=Path, default=Asked().model)
    parser.add_argument("--philly", type=Path, help="the real October; None: a generated month")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(given)
    if unknown := set(asked.cases) - set(CASES):
        parser.error(f"no case {min(unknown)!r}; there are: {', '.join(CASES)}")
    chosen = asked.cases or [name for name in CASES if name != "cycling"]
    what = Asked(asked.model, asked.philly)
    try:
        figures = [figure for name in chosen for figure in CASES[name][0](what)]
    except RltunedError as error:
        print(error, file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps([figure.document() for figure in figures], indent=2))
    else:
        Console(width=160).print(_table(figures))
    return 0


def _table(figures: list[Figure]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("figure", "value", "unit", "reference", "ratio", "of"):
        words = name in {"figure", "unit", "of"}
        table.add_column(name, no_wrap=name != "of", justify="left" if words else "right")
    for f in figures:
        numbers = f"{f.reference:.4g}", f"{f.ratio:.3g}"
        table.add_row(f.name, f"{f.value:.4g}", f.unit, *numbers, f.source)
    return table


if __name__ == "__main__":
    sys.exit(main())
