"""`rltuned train evolve`: an evolution strategy on the `queue` actor, in reading order.

1. actor_of   eighteen numbers as an actor: linear in where a job stands in its queue
2. part_of    a stretch of a trace, with what the rule `delay` makes of it
3. cost       of a schedule, against the rule's
4. evolve     generations: draw actors, play all of them on the same parts, move the distribution
5. perform    a search on disk for each seed, and the best seed's actor as a bundle

A folder keeps a line for each generation. A search that was interrupted draws the same actors again
and takes their costs from there, so it ends as if it had never stopped.

Source: CMA-ES, Hansen 2016 (arXiv:1604.00772), in the library cma.
"""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import cma
import numpy as np
import torch
from pydantic import BaseModel

from rltuned.errors import ModelError
from rltuned.files import write_whole
from rltuned.lab.compare import mean_with_ends
from rltuned.lab.kernel.compiler import FloatArray
from rltuned.lab.replay.metrics import SHORTEST_S
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.train.network import TorchActor, module_of, policy_of
from rltuned.lab.train.rollout import CYCLES, draw_window, play_policy
from rltuned.lab.train.run import Found, Interval, Run, check_name, export_best, held_out
from rltuned.lab.train.settings import LEARN_UNTIL, RULE, EvolutionSettings, described
from rltuned.policies.actor import (
    FIRST_OF_QUEUE,
    LAYERS,
    QUEUE_COLUMNS,
    Card,
    NetworkPolicy,
    load_actor,
)

WIDTH: Final = len(QUEUE_COLUMNS)
NUMBERS: Final = 2 * (WIDTH + 1)
"""Of an actor: for each part of a delay a weight per column, and a constant."""
ADDED_S: Final = 60.0
GENERATIONS: Final = "generations.jsonl"
LATER: Final = ("generations", "eval_every")
"""Settings that may change when a search goes on."""


# 1. Actors


def actor_of(numbers: FloatArray, reach: float) -> TorchActor:
    """(NUMBERS,) as an actor. The hidden layers hand the columns on: none of them is negative."""
    actor = TorchActor("queue", (WIDTH, WIDTH), reach)
    rows = torch.tensor(numbers.reshape(2, WIDTH + 1), dtype=torch.float32)
    seen = torch.zeros(WIDTH, FIRST_OF_QUEUE + WIDTH)
    seen[:, FIRST_OF_QUEUE:] = torch.eye(WIDTH)
    weights = (seen, torch.eye(WIDTH), rows[:, :WIDTH])
    biases = (torch.zeros(WIDTH), torch.zeros(WIDTH), rows[:, WIDTH])
    state: dict[str, torch.Tensor] = {}
    for layer, weight, bias in zip(LAYERS, weights, biases, strict=True):
        state |= {f"{layer}.weight": weight, f"{layer}.bias": bias}
    actor.load_state_dict(state)
    return actor


def numbers_of(bundle: Path) -> tuple[FloatArray, float]:
    """(NUMBERS,) and reach of a bundle that an evolution made. Raises ModelError."""
    actor = load_actor(bundle)
    own = module_of(actor.network).state_dict()
    if actor.card.architecture.kind == "queue" and actor.card.architecture.hidden == (WIDTH, WIDTH):
        last = [own[f"{LAYERS[-1]}.{name}"].reshape(2, -1) for name in ("weight", "bias")]
        numbers: FloatArray = torch.cat(last, dim=1).numpy().astype(np.float64).ravel()
        reach = actor.card.architecture.reach
        again = actor_of(numbers, reach).state_dict()
        if all(torch.equal(own[name], value) for name, value in again.items()):
            return numbers, reach
    raise ModelError(f"model {bundle}: no network of `rltuned train evolve`; train ppo goes on")


# 2. Parts


Part = tuple[Scenario, Protocol, FloatArray]
"""A stretch of a trace, how it is played, and (4,) what the rule makes of it, see measured."""
Play = Callable[[Sequence[NetworkPolicy], Sequence[Part]], FloatArray]
"""(policies, parts, 4) logarithms of `measured` against the rule's."""


def part_of(window: Scenario, warm_up: float, protocol: Protocol = CYCLES) -> Part:
    """A window with what the rule makes of it."""
    start_s = play_policy(window, RULE, protocol)
    return window, protocol, measured(window, start_s, warm_up)


# 3. Costs


def measured(window: Scenario, start_s: FloatArray, warm_up: float) -> FloatArray:
    """(4,) mean wait, mean bounded slowdown, 99% wait and longest wait of the jobs that count. A
    minute, the daemon's interval, is added to each wait: where hardly a job waits, ratios are
    chance.
    """
    first = int(len(start_s) * warm_up)
    wait_s = (start_s - window.submit_s)[first:]
    run_s = window.duration_s[first:]
    slowdown = np.maximum((wait_s + run_s) / np.maximum(run_s, SHORTEST_S), 1.0)
    most = np.quantile(wait_s, 0.99), wait_s.max()
    each_s = np.array([wait_s.mean(), *most]) + ADDED_S
    return np.array([each_s[0], slowdown.mean(), each_s[1], each_s[2]])


def cost(logs: FloatArray, price: float) -> float:
    """Of the logarithms of `measured` against the rule's, (parts, 4): mean of wait and slowdown;
    below zero: better. Where the 99% or the longest wait is worse on average, that is added; where
    it is better, nothing is taken off.
    """
    wait, slowdown, *tail = logs.mean(axis=0).tolist()
    # of the mean: on a single part these two are mostly chance, which would price any difference
    return float((wait + slowdown) / 2 + price * sum(max(one, 0.0) for one in tail))


def played(
    policies: Sequence[NetworkPolicy],
    parts: Sequence[Part],
    *,
    warm_up: float,
    workers: int = 1,
) -> FloatArray:
    """See Play; the same for any number of threads."""

    def play(pair: tuple[NetworkPolicy, Part]) -> FloatArray:
        policy, (window, protocol, rule) = pair
        found = measured(window, play_policy(window, policy, protocol), warm_up)
        logs: FloatArray = np.log(found / rule)
        return logs

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(play, product(policies, parts)))
    return np.array(found).reshape(len(policies), len(parts), -1)


# 4. Generations


class SearchGeneration(BaseModel, extra="forbid", frozen=True):
    """What came of one. costs: of its members; change: of the mean of log wait and log slowdown
    against the rule, over all members, with its interval over parts; validation: the same of the
    middle of the distribution on held-out windows, and validation_cost what it costs there; None =
    not validated. seconds: what it took.
    """

    number: int
    costs: list[float]
    change: Interval
    validation: Interval | None
    validation_cost: float | None
    seconds: float


def evolve(
    scenarios: Sequence[Scenario],
    validation: Sequence[Part],
    settings: EvolutionSettings,
    play: Play,
    *,
    begin: FloatArray | None = None,
    known: Sequence[SearchGeneration] = (),
    on_generation: Callable[[SearchGeneration], None] = lambda _found: None,
) -> tuple[TorchActor, int, float]:
    """The actor that did best in a validation, its generation and cost; generation -1 = where the
    search began, or the rule, which costs 0. begin: (NUMBERS,) of an actor; None = of the rule.
    known: generations of an interrupted search, which are not played again. Raises
    FloatingPointError: a cost is not finite.
    """
    nothing = np.zeros(NUMBERS)
    best, chosen, number = 0.0, nothing, -1
    if begin is not None:
        first = cost(play([_policy(begin, settings)], validation)[0], settings.price)
        best, chosen = min((best, nothing), (first, begin), key=lambda one: one[0])
    draw = np.random.default_rng([settings.seed, NUMBERS])
    # what it draws depends on where it begins and on the seed alone
    options = {
        "popsize": settings.members, "verbose": -9, "seed": settings.seed + 1,
        "randn": lambda *shape: draw.standard_normal(shape),
    }  # fmt: skip
    search = cma.CMAEvolutionStrategy(nothing if begin is None else begin, settings.step, options)
    for at in range(settings.generations):
        members = search.ask()
        if at < len(known):
            found = known[at]
            search.tell(members, found.costs)
        else:
            found = _generation(search, members, at, scenarios, validation, settings, play)
            on_generation(found)
        if found.validation_cost is not None and found.validation_cost < best:
            best, chosen, number = found.validation_cost, np.array(search.mean), at
    return actor_of(chosen, settings.reach), number, best


def _policy(numbers: FloatArray, settings: EvolutionSettings) -> NetworkPolicy:
    return policy_of(actor_of(np.array(numbers), settings.reach))


def _generation(  # noqa: PLR0917 - by place
    search: cma.CMAEvolutionStrategy,
    members: Sequence[FloatArray],
    number: int,
    scenarios: Sequence[Scenario],
    validation: Sequence[Part],
    settings: EvolutionSettings,
    play: Play,
) -> SearchGeneration:
    """Play the members, move the distribution, and validate its middle where that is due. Seed and
    number alone say on which parts.
    """
    began = time.perf_counter()
    protocol = replace(CYCLES, interval_s=settings.interval_s)
    draw = np.random.default_rng([settings.seed, number])
    windows = [
        draw_window(scenarios, settings.part_jobs, settings.loads, draw, part=1.0)
        for _ in range(settings.parts)
    ]
    parts = [part_of(window, settings.warm_up, protocol) for window in windows]
    logs = play([_policy(one, settings) for one in members], parts)
    if not np.isfinite(logs).all():
        raise FloatingPointError(f"generation {number}: a cost is not finite")
    costs, validated, validation_cost = [cost(one, settings.price) for one in logs], None, None
    search.tell(members, costs)
    if (number + 1) % settings.eval_every == 0 or number + 1 == settings.generations:
        middle = play([_policy(search.mean, settings)], validation)[0]
        validated, validation_cost = _change(middle), cost(middle, settings.price)
    seconds = time.perf_counter() - began
    change = _change(logs.mean(axis=0))
    return SearchGeneration(
        number=number, costs=costs, change=change, validation=validated,
        validation_cost=validation_cost, seconds=seconds,
    )  # fmt: skip


def _change(logs: FloatArray) -> Interval:
    """Of wait and slowdown, (parts, 4)."""
    return mean_with_ends(logs[:, :2].mean(axis=1))


# 5. On disk


def perform(
    settings: EvolutionSettings,
    run: Run,
    *,
    workers: int = 1,
    on_generation: Callable[[SearchGeneration], None] = lambda _found: None,
) -> Card:
    """Search with each seed, keep records, export the best. workers: threads that play. Raises
    ModelError: the name, a record, or the actor is worse than the rule; TraceError: the traces are
    too short.
    """
    check_name(run.out)
    begin = None
    if run.start is not None:
        begin, reach = numbers_of(run.start)
        settings = replace(settings, reach=reach)
    windows = held_out(run.sources, run.validation, run.judges)
    validation = [part_of(window, settings.warm_up) for window in windows]
    play = partial(played, warm_up=settings.warm_up, workers=workers)
    found = []
    for one, folder in run.each(settings):
        record = SearchRecord(folder, one, run)
        found.append(_search(one, record, run, validation, play, begin, on_generation))
    return export_best(
        run,
        settings,
        found,
        windows,
        method="CMA-ES on parts of traces in the daemon's cycles, as corrections of the rule",
        teacher=RULE,
        machine=f"{workers} threads",
        size=256,
    )


def _search(  # noqa: PLR0917 - by place
    settings: EvolutionSettings,
    record: "SearchRecord",
    run: Run,
    validation: Sequence[Part],
    play: Play,
    begin: FloatArray | None,
    on_generation: Callable[[SearchGeneration], None],
) -> Found:
    """One seed."""
    # cut before windows are: their submits count from the trace's first, to the last digit
    parts = [one.cut(0, max(1, int(len(one) * LEARN_UNTIL))) for one in run.scenarios]

    def after(found: SearchGeneration) -> None:
        record.add(found)
        on_generation(found)

    known = tuple(record.known)
    try:
        actor, number, least = evolve(
            parts, validation, settings, play, begin=begin, known=known, on_generation=after
        )
    except FloatingPointError as error:
        raise ModelError(
            f"the search stopped: {error}; its record is in {record.path.parent}"
        ) from error
    best = record.known[number].validation if number >= 0 else None
    summary = f"CMA-ES, `queue` actor, generation {number + 1} of {settings.generations}."
    seconds = sum(one.seconds for one in record.known)
    return Found(least, settings.seed, actor, best or (0.0, None, None), summary, seconds)


class SearchRecord:
    """The file of a search. known: its generations so far. Raises ModelError: it cannot be used,
    or is of other settings.
    """

    def __init__(self, folder: Path, settings: EvolutionSettings, run: Run) -> None:
        self.path = folder / GENERATIONS
        shown = described(settings) | {"start": run.start.name if run.start else ""}
        self._described: dict[str, Any] = json.loads(json.dumps(shown))
        self.known: list[SearchGeneration] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                return
            lines = self.path.read_text().splitlines()
        except OSError as error:
            raise ModelError(f"{folder}: {error.strerror}") from error
        if not run.resume:
            raise ModelError(f"{folder}: holds a search; continue it with --resume, or remove it")
        try:
            theirs, *rows = map(json.loads, lines)
            names = sorted({*theirs, *self._described} - set(LATER))
            other = [name for name in names if theirs.get(name) != self._described.get(name)]
            self.known = [SearchGeneration.model_validate(row) for row in rows]
        except (ValueError, TypeError, AttributeError) as error:
            raise ModelError(f"{self.path}: cannot be resumed: {error}") from error
        if other:
            raise ModelError(f"{self.path}: was begun with another {other[0]}")
        if [one.number for one in self.known] != list(range(len(self.known))):
            raise ModelError(f"{self.path}: cannot be resumed: generations are missing")

    def add(self, found: SearchGeneration) -> None:
        """Keep one more. Raises ModelError: the disk is full, or not to be written to."""
        self.known.append(found)
        rows = [self._described, *(one.model_dump() for one in self.known)]
        try:
            write_whole(self.path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        except OSError as error:
            raise ModelError(f"{self.path}: {error.strerror}") from error
