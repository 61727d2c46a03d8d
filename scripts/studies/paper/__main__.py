"""The command line of the study of the paper; see the package."""

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scripts.studies import paper, planners
from scripts.studies.paper import bases, claims, peers, qssf, transfer, warm
from scripts.studies.paper.common import Row
from scripts.studies.plays import check, named, play_missing


@dataclass(frozen=True)
class Part:
    """One of the study, with rows of its own."""

    results: Path
    runs: Callable[[argparse.Namespace], Iterator[Any]]
    play: Callable[[Any], Row]
    table: Callable[..., None]

    def chosen(self, asked: argparse.Namespace) -> Iterator[Any]:
        """The runs, or those of --only."""
        found = self.runs(asked)
        return found if asked.only is None else iter(named(found, asked.only, _names))


PARTS: Final = {
    "bases": Part(bases.RESULTS, bases.runs, bases.play, bases.table),
    "qssf": Part(qssf.RESULTS, qssf.runs, qssf.play, qssf.table),
    "transfer": Part(transfer.RESULTS, transfer.runs, transfer.play, transfer.table),
    "peers": Part(peers.RESULTS, peers.runs, peers.play, peers.table),
    "planners": Part(planners.RESULTS, planners.runs, planners.play, planners.table),
    "warm": Part(warm.RESULTS, warm.runs, warm.play, warm.table),
}


def main() -> None:
    """Play what is missing, print the tables, or play stored rows again."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.studies.paper",
        description=paper.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("run", "table", "check"))
    parser.add_argument("--part", choices=PARTS, action="append", help="of these alone")
    parser.add_argument("--minutes", type=float, default=math.inf, help="then no run begins")
    parser.add_argument("--seeds", type=int, default=1, help="of every training")
    parser.add_argument("--only", help="runs that begin so: `philly, sjf`")
    parser.add_argument("--json", action="store_true", help="the claims as JSON")
    parser.add_argument("--sample", type=int, default=1, help="rows that `check` plays again")
    parser.add_argument("--seed", type=int, default=1, help="of that draw")
    asked = parser.parse_args()
    parts = [PARTS[name] for name in asked.part or PARTS]
    if asked.what == "run":
        for part in parts:
            play_missing(part.results, part.chosen(asked), part.play, asked.minutes)
    elif asked.what == "check":
        for part in parts:
            check(part.results, part.chosen(asked), part.play, asked)
    elif asked.json:
        print(claims.as_json())
    else:
        _print(parts)


def _print(parts: list[Part]) -> None:
    for part in parts:
        part.table()
        print()
    claims.table()
    print()
    claims.daemon_table()


def _names(run: object) -> tuple[object, ...]:
    return tuple(vars(run).values())


if __name__ == "__main__":
    main()
