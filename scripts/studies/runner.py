"""The one runner of the experiments: rows that are missing, rows again, tables."""

import argparse
import importlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from scripts.studies import EXPERIMENTS, data_of

Row = dict[str, Any]
R = TypeVar("R")


@dataclass(frozen=True)
class Study:
    """runs: what an experiment varies, in the order of play; play: the row of a run, or several;
    views: what can be shown by name, `table` prints; names: of a run, as tables call it, for
    --only; sample: rows that `check` plays again.
    """

    runs: Callable[[argparse.Namespace], Iterator[Any]]
    play: Callable[[Any], Row | list[Row]]
    views: Mapping[str, Callable[[], None]]
    names: Callable[[Any], Sequence[object]] = astuple
    sample: int = 10


def study_of(name: str) -> Study:
    """An experiment of the table."""
    module = importlib.import_module(f"scripts.studies.{EXPERIMENTS[name].module}")
    found: Study = module.STUDIES[name]
    return found


def known(results: Path, kind: type[R]) -> dict[R, Row]:
    """Runs of a kind that have been played: results has a line of JSON for each."""
    if not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return {kind(**{k: row[k] for k in names if k in row}): row for row in rows}


def play_missing(
    results: Path, runs: Iterable[R], play: Callable[[R], Row | list[Row]], minutes: float
) -> None:
    """Play what is not known yet, until the time is up."""
    until = time.monotonic() + 60 * minutes
    played: set[R] | None = None
    for run in runs:
        played = set(known(results, type(run))) if played is None else played
        if run in played:
            continue
        if time.monotonic() > until:
            return
        found = play(run)
        rows = found if isinstance(found, list) else [found]
        with results.open("a") as out:
            out.write("".join(json.dumps(row) + "\n" for row in rows))
        played.add(run)


def drawn(results: Path, kind: type[R], sample: int, seed: int) -> dict[R, Row]:
    """Some of the known runs. Those of a predictor that is fitted to the site are left out: torch
    computes otherwise on another processor, and a long run then ends elsewhere.
    """
    stored = known(results, kind).items()
    every = [(run, row) for run, row in stored if getattr(run, "knowledge", "") != "site"]
    picked = np.random.default_rng(seed).permutation(len(every))[:sample]
    return dict(every[at] for at in picked)


def named(runs: Iterable[R], text: str, names: Callable[[R], Sequence[object]]) -> list[R]:
    """Those whose names, in their order, begin with the parts of a text: `Helios Venus, 0.9`."""
    wanted = _parts([text])
    return [run for run in runs if _parts(names(run))[: len(wanted)] == wanted]


def _parts(names: Iterable[object]) -> list[str]:
    texts = (f"{name:g}" if isinstance(name, float) else str(name) for name in names)
    return [part.strip().casefold() for text in texts for part in text.split(",")]


def differing(rows: Mapping[R, Row], play: Callable[[R], Row]) -> Iterator[str | None]:
    """Play runs again. For each: None, or a line where a figure is not the stored one. Processor
    time is no figure.
    """

    def same(a: object, b: object) -> bool:
        floats = isinstance(a, float) and isinstance(b, float)
        return math.isclose(a, b, rel_tol=1e-9) if floats else a == b  # type: ignore[arg-type]

    for run, row in rows.items():
        again = play(run)
        found = [
            f"{name} {row[name]} -> {again[name]}"
            for name in row.keys() & again.keys()
            if not (name.startswith(("cpu_", "seconds")) or same(row[name], again[name]))
        ]
        yield f"{run}: {', '.join(sorted(found))}" if found else None


def check(results: Path, study: Study, runs: list[Any], asked: argparse.Namespace) -> bool:
    """Play stored rows again, a draw or those asked for; whether no figure differs."""
    if asked.only is None:
        rows = drawn(results, type(runs[0]), asked.sample or study.sample, asked.seed)
    else:
        stored = known(results, type(runs[0]))
        rows = {run: stored[run] for run in runs if run in stored}
    done = list(differing(rows, study.play))  # type: ignore[arg-type]
    wrong = [line for line in done if line is not None]
    print(f"{results}: {len(done)} rows played again, {len(wrong)} differ", *wrong, sep="\n")
    return not wrong


def perform(name: str, asked: argparse.Namespace, parser: argparse.ArgumentParser) -> bool:
    """What is asked of one experiment; False: a figure differs."""
    study = study_of(name)
    runs = list(study.runs(asked))
    if asked.only is not None:
        first, runs = runs[0], named(runs, asked.only, study.names)
        if not runs:
            parser.error(f"--only: no row begins with {asked.only!r}; rows are named as "
                         f"{', '.join(map(str, study.names(first)))!r}")  # fmt: skip
    if asked.what == "check":
        return check(data_of(name), study, runs, asked)
    if asked.what == "run":
        play_missing(data_of(name), runs, study.play, asked.minutes)
    elif asked.what in study.views:
        study.views[asked.what]()
        print()
    return True


def mean(rows: Sequence[Row], name: str) -> float:
    """Of one figure over rows."""
    return float(np.mean([row[name] for row in rows]))


def spread(own: Sequence[Row], base: Sequence[Row], ratio: float) -> str:
    """A ratio of mean waits, with that of the copy where it is smallest, and largest."""
    pairs = [a["wait_s"] / b["wait_s"] for a, b in zip(own, base, strict=False)]
    return f"{ratio:.2f} [{min(pairs):.2f}, {max(pairs):.2f}]"


def geometric(rows: Sequence[Sequence[float]]) -> list[float]:
    """(k,) geometric means of (n, k) ratios."""
    found: list[float] = np.exp(np.log(np.array(rows)).mean(axis=0)).tolist()
    return found


def row_of(cells: Iterable[object]) -> str:
    """A row of a Markdown table; ratios have two decimals."""
    texts = (f"{c:.2f}" if isinstance(c, float) else str(c) for c in cells)
    return f"|{'|'.join(f' {text} ' if text else ' ' for text in texts)}|"


def head(*names: str) -> str:
    """The first two rows of a Markdown table."""
    return f"{row_of(names)}\n|{'---|' * len(names)}"
