"""One search from its settings to its bundle: what `rltuned train evolve` does.

The folder keeps a line for each generation: what its actors cost and what a validation found. A
search that was interrupted draws the same actors again and takes the costs from there, so it ends
as if it had never stopped.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rltuned.durable import write_whole
from rltuned.errors import ModelError
from rltuned.lab.train.course import LEARN_UNTIL
from rltuned.lab.train.evolution import (
    EvolutionSettings,
    Interval,
    Players,
    SearchGeneration,
    TracePart,
    evolve,
    part_of,
)
from rltuned.lab.train.network import TorchActor
from rltuned.lab.train.ranks import ALONE, Ranks
from rltuned.lab.train.run import Job, check_name, export_judged, held_out
from rltuned.lab.train.trial import DIGITS, RULE
from rltuned.policies.card import Card

GENERATIONS: Final = "generations.jsonl"
LATER: Final = ("generations", "eval_every")
"""Settings that may change when a search goes on."""


def perform(
    search: Job[EvolutionSettings],
    *,
    ranks: Ranks = ALONE,
    on_generation: Callable[[SearchGeneration], None] = lambda _found: None,
) -> Card | None:
    """Search, keep a record, export the best; None on ranks beyond 0. Raises ModelError: the name,
    the record, or the actor is worse than the rule; TraceError: the traces are too short.
    """
    check_name(search.out, ranks)
    settings = search.settings
    record = (
        SearchRecord(search.folder, settings, resume=search.resume) if ranks.rank == 0 else None
    )
    known = ranks.from_first([] if record is None else record.known)
    parts = [
        s.scenario.cut(0, max(1, int(len(s.scenario) * LEARN_UNTIL)))
        for s in search.sources
        for _ in range(s.share)
    ]
    windows = held_out(search.sources, search.validation, search.judges)
    validation = [part_of(window, settings.warm_up) for window in windows]
    players = Players(settings, ranks, search.workers)

    def after(found: SearchGeneration) -> None:
        if record is not None:
            record.add(found)
        on_generation(found)

    try:
        actor, number = evolve(parts, validation, players, known=known, on_generation=after)
    except FloatingPointError as error:
        raise ModelError(
            f"the search stopped: {error}; its record is in {search.folder}"
        ) from error
    return None if record is None else _export(search, (actor, number), validation, record, ranks)


def _export(
    search: Job[EvolutionSettings],
    found: tuple[TorchActor, int],
    validation: Sequence[TracePart],
    record: "SearchRecord",
    ranks: Ranks,
) -> Card:
    (actor, number), settings = found, search.settings
    validated = record.known[number].validation if number >= 0 else None
    each = zip(("validation", "validation_low", "validation_high"), validated or (), strict=False)
    return export_judged(
        search,
        actor,
        summary=f"CMA-ES, `queue` actor, generation {number + 1} of {settings.generations}.",
        method="CMA-ES on parts of traces in the daemon's cycles, as corrections of the rule",
        teacher=RULE,
        windows=[part.window for part in validation],
        results=lambda: {name: round(x, DIGITS) for name, x in each if x is not None},
        seconds=sum(one.seconds for one in record.known),
        machine=f"{search.workers} threads{ranks.words}",
        size=256,
        loads=settings.loads,
    )


class SearchRecord:
    """The folder of a search. known: its generations so far. Raises ModelError: it cannot be used,
    or is of other settings.
    """

    def __init__(self, folder: Path, settings: EvolutionSettings, *, resume: bool) -> None:
        self._path = folder / GENERATIONS
        self._described: dict[str, Any] = json.loads(json.dumps(settings.described()))
        self.known: list[SearchGeneration] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not self._path.exists():
                return
            if not resume:
                raise ModelError(
                    f"{folder}: holds a search; continue it with --resume, or remove it"
                )
            lines = self._path.read_text().splitlines()
        except OSError as error:
            raise ModelError(f"{folder}: {error.strerror}") from error
        try:
            theirs, *rows = map(json.loads, lines)
            self._compare(theirs)
            self.known = [_generation(row) for row in rows]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"{self._path}: cannot be resumed: {error}") from error
        if [one.number for one in self.known] != list(range(len(self.known))):
            raise ModelError(f"{self._path}: cannot be resumed: generations are missing")

    def add(self, found: SearchGeneration) -> None:
        """Keep one more. Raises ModelError: the disk is full, or not to be written to."""
        self.known.append(found)
        rows = [self._described, *map(asdict, self.known)]
        try:
            write_whole(self._path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        except OSError as error:
            raise ModelError(f"{self._path}: {error.strerror}") from error

    def _compare(self, theirs: dict[str, Any]) -> None:
        names = sorted({*theirs, *self._described} - set(LATER))
        other = [name for name in names if theirs.get(name) != self._described.get(name)]
        if other:
            raise ModelError(f"{self._path}: was begun with another {other[0]}")


def _generation(row: dict[str, Any]) -> SearchGeneration:
    validation = row["validation"]
    return SearchGeneration(
        number=int(row["number"]),
        costs=tuple(map(float, row["costs"])),
        change=_interval(row["change"]),
        validation=None if validation is None else _interval(validation),
        validation_cost=None if row["validation_cost"] is None else float(row["validation_cost"]),
        seconds=float(row["seconds"]),
    )


def _interval(values: Sequence[Any]) -> Interval:
    mean, low, high = (None if value is None else float(value) for value in values)
    if mean is None:
        raise ValueError("a mean is missing")
    return mean, low, high
