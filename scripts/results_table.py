"""The tables of scripts/studies/results/networks.md from what `rltuned evaluate --report` left.

    python -m scripts.results_table OUT [--model NAME ...] [--place NAME ...]
    python -m scripts.results_table OUT --pages > scripts/studies/results/networks-tables.md
    python -m scripts.results_table OUT --policies philly-weak

One row per place, load and model; a figure is the change of the mean in percent with its 95%
interval, then the geometric mean of the ratios (g), wins-losses and the least and largest change of
several training seeds. --pages: all rows, as a page. --policies: every policy of a place.
"""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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
LIMITS: Final = ("weak", "none", "informative")
_FOLDER: Final = re.compile(
    r"(?P<site>[a-z]+)(?P<kind>-long|-all|-half|-paper)?-(?P<limits>weak|none|informative)(-[\d.]+)?"
)
"""How scripts/results.sh names what it makes."""
SITES: Final = {"philly": "Philly", "helios": "Helios", "pai": "PAI", "testbed": "testbed"}
SECTIONS: Final = (
    ("Philly, held out", "philly", ""),
    ("Testbed, never trained on", "testbed", ""),
    ("Helios-like, never trained on", "helios", ""),
    ("PAI-like, never trained on", "pai", ""),
    ("Long runs of Philly", "philly", "-long"),
    ("Long runs of the testbed", "testbed", "-long"),
    ("Long runs, Helios-like", "helios", "-long"),
    ("Long runs, PAI-like", "pai", "-long"),
    ("All of Philly", "philly", "-all"),
    ("The later half of Philly", "philly", "-half"),
    ("The paper's protocol: 10 windows at random places", "philly", "-paper"),
    ("Others", "", ""),
)
"""Heading, then site and kind of what stands under it."""
INTRODUCTION: Final = """\
# Results: all rows

Every evaluation of [networks.md](networks.md), which says what the models are, how to read a cell,
and what follows from the rows. Made by `sh scripts/results.sh` and
`python -m scripts.results_table .run/eval --pages`.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """What a folder's name says. limits: "" where the name follows no rule."""

    folder: str
    site: str = ""
    kind: str = ""
    limits: str = ""

    @classmethod
    def of(cls, folder: str) -> "Place":
        """From the name of a folder."""
        match = _FOLDER.fullmatch(folder)
        if match is None:
            return cls(folder)
        return cls(folder, match["site"], match["kind"] or "", match["limits"])

    @property
    def label(self) -> str:
        """As the tables call it."""
        if not self.limits:
            return self.folder
        kind = " at random" if self.kind == "-paper" else self.kind.replace("-", " ")
        return f"{SITES.get(self.site, self.site)}{kind}, {self.limits}"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One comparison: a place at a load."""

    place: Place
    found: dict[str, Any]

    @property
    def load(self) -> float:
        """Of the windows; 0: the trace's own."""
        return float(self.found["plan"]["load"] or 0.0)

    @property
    def rank(self) -> tuple[int, str, float]:
        """Where it stands in its section."""
        limits = self.place.limits
        return (LIMITS.index(limits) if limits else 0, self.place.folder, self.load)


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


def evaluations(out: Path) -> list[Evaluation]:
    """All there are, by folder, limits and load."""
    found = [
        Evaluation(Place.of(path.parent.name), comparison)
        for path in sorted(out.glob("*/results.json"))
        for comparison in json.loads(path.read_text())["comparisons"]
    ]
    return sorted(found, key=lambda one: (one.place.site, one.place.kind, one.rank))


def table(rows: Sequence[Evaluation], models: Sequence[str] = ()) -> Iterator[str]:
    """Head and lines; models: only these."""
    yield f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}"
    for one in rows:
        for model in one.found["paired"]:
            if not models or model.removeprefix("model:") in models:
                yield row(one.place.label, one.found, model)


def page(found: Sequence[Evaluation]) -> Iterator[str]:
    """scripts/studies/results/networks-tables.md."""
    yield INTRODUCTION
    for heading, site, kind in SECTIONS:
        if rows := [e for e in found if (e.place.site, e.place.kind) == (site, kind)]:
            yield f"## {heading}\n"
            yield from table(rows)
            yield ""


def policies(found: Sequence[Evaluation]) -> Iterator[str]:
    """Every policy of a place, a column per load: wait, slowdown, JCT (s), utilisation (%)."""
    head = [f"{e.load:g}: wait / slowdown / JCT / utilisation" for e in found]
    yield f"| policy | {' | '.join(head)} |\n|{'---|' * (1 + len(found))}"
    for policy in found[0].found["policies"]:
        each = [e.found["policies"][policy] for e in found]
        cells = [
            f"{m['wait_s']:,.0f} / {m['bsld']:.1f} / {m['jct_s']:,.0f} / "
            f"{100 * m['utilisation']:.1f}"
            for m in each
        ]
        yield f"| {policy.removeprefix('model:')} | {' | '.join(cells)} |"
    ends = [e.found["bound"] for e in found]
    cells = [f"{b['wait_s']:,.0f} / {b['bsld']:.2f} / {b['jct_s']:,.0f} / -" for b in ends]
    yield f"| lower bound | {' | '.join(cells)} |"


def main(given: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", action="append", help="only these; default: all")
    parser.add_argument("--place", action="append", help="only these folders of OUT; default: all")
    parser.add_argument("--pages", action="store_true", help="all rows, as networks-tables.md")
    parser.add_argument("--policies", metavar="PLACE", help="every policy of a folder of OUT")
    asked = parser.parse_args(given)
    found = evaluations(asked.out)
    if asked.pages:
        lines = page(found)
    elif asked.policies:
        lines = policies([e for e in found if e.place.folder == asked.policies])
    else:
        chosen = [e for e in found if not asked.place or e.place.folder in asked.place]
        lines = table(chosen, asked.model or ())
    print("\n".join(lines))


if __name__ == "__main__":
    main()
