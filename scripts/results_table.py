"""The tables of docs/results.md from what `rltuned evaluate --report` left.

    python -m scripts.results_table OUT [--model NAME ...] [--place NAME ...]

One row per place, load and model; a figure is the change of the mean in percent with its 95%
interval, then the geometric mean of the ratios (g), wins-losses and the least and largest change of
several training seeds.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEAD = (
    "place",
    "load",
    "model",
    "wait, FCFS",
    "wait, SAF",
    "slowdown, SAF",
    "p99, longest / FCFS",
    "closed, to bound",
)


def cell(pair: dict[str, Any]) -> str:
    """A difference with all that says how sure it is."""
    told = f"{_percent(pair['change'])} [{_percent(pair['low'])}, {_percent(pair['high'])}]"
    told += f", g {_percent(pair['geometric'])}, {pair['wins']}-{pair['losses']}"
    if pair["seeds"]:
        told += f" ({100 * min(pair['seeds']):+.0f} to {100 * max(pair['seeds']):+.0f})"
    return told


def row(place: str, found: dict[str, Any], model: str) -> str:
    """One line of the table."""
    pairs, means = found["paired"][model], found["policies"]
    own, fcfs = means[model], means["fcfs"]
    ways = [
        "/".join(f"{100 * found[k][model][m]:.0f}" for m in ("wait_s", "bsld"))
        for k in ("closed_of_fcfs_to_clairvoyant", "closed_of_fcfs_to_bound")
    ]
    cells = (
        place,
        str(found["plan"]["load"]),
        model.removeprefix("model:"),
        cell(pairs["fcfs"]["wait_s"]),
        cell(pairs["saf"]["wait_s"]),
        cell(pairs["saf"]["bsld"]),
        ", ".join(f"{own[m] / fcfs[m]:.2f}" for m in ("wait_p99_s", "wait_max_s")),
        ", ".join(ways),
    )
    return f"| {' | '.join(cells)} |"


def _percent(share: float) -> str:
    return f"{100 * share:+.1f}"


def main(given: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", action="append", help="only these; default: all")
    parser.add_argument("--place", action="append", help="only these folders of OUT; default: all")
    asked = parser.parse_args(given)
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for path in sorted(asked.out.glob("*/results.json")):
        if asked.place and path.parent.name not in asked.place:
            continue
        for found in json.loads(path.read_text())["comparisons"]:
            for model in found["paired"]:
                if not asked.model or model.removeprefix("model:") in asked.model:
                    print(row(path.parent.name, found, model))


if __name__ == "__main__":
    main()
