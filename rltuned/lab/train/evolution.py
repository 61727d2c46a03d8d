"""`rltuned train evolve`: an evolution strategy on the `queue` actor, in reading order.

1. actor_of    eighteen numbers as an actor: linear in where a job stands in its queue
2. TracePart   a stretch of a trace, with what the rule `delay` makes of it
3. cost        of a schedule, against the rule's
4. evolve      generations: draw actors, play all of them on the same parts, move the distribution
5. perform     a search on disk for each seed, and the best seed's actor as a bundle

A folder keeps a line for each generation. A search that was interrupted draws the same actors again
and takes their costs from there, so it ends as if it had never stopped.

Source: CMA-ES, Hansen 2016 (arXiv:1604.00772), in the library cma.
"""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import cma
import numpy as np
import torch
from pydantic import BaseModel

from rltuned.core.queue_features import FIRST_OF_QUEUE, QUEUE_COLUMNS
from rltuned.durable import write_whole
from rltuned.errors import ModelError
from rltuned.lab.kernel.compiler import FloatArray
from rltuned.lab.replay.metrics import SHORTEST_S
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.stats import mean_with_ends
from rltuned.lab.train.course import LEARN_UNTIL
from rltuned.lab.train.episodes import play_policy
from rltuned.lab.train.network import TorchActor, module_of, policy_of
from rltuned.lab.train.run import (
    NONE,
    Found,
    Interval,
    Job,
    check_name,
    export_judged,
    held_out,
    seeds_of,
)
from rltuned.lab.train.trial import CYCLES, RULE
from rltuned.policies.actor import NetworkPolicy, load_actor
from rltuned.policies.card import Card
from rltuned.policies.network import LAYERS

WIDTH: Final = len(QUEUE_COLUMNS)
NUMBERS: Final = 2 * (WIDTH + 1)
"""Of an actor: for each part of a delay a weight per column, and a constant."""
REACH: Final = 1.0
"""Of a correction: its logarithm at most."""
ADDED_S: Final = 60.0
GENERATIONS: Final = "generations.jsonl"
LATER: Final = ("generations", "eval_every")
"""Settings that may change when a search goes on."""


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """What is searched and how.

    Attributes:
        generations: of the search. members: actors in each. parts: of traces that all of them play.
        part_jobs: in each part; the first `warm_up` of them fill the cluster and count for nothing.
        interval_s: of the cycles there. Validations have the daemon's; five times as many cycles
            would be five times as slow and change delays of hours by minutes.
        loads: bounds of the GPU demand that parts are stretched to.
        step: the first deviation of the numbers.
        price: of a larger 99% wait and longest wait, beside the mean of wait and slowdown.
        reach: of a correction, see policies/network.
        eval_every: generations from one validation to the next; the last one is always validated.
        seed: of parts and actors.
    """

    generations: int = 15
    members: int = 20
    parts: int = 30
    part_jobs: int = 1_500
    interval_s: float = 300.0
    warm_up: float = 0.2
    loads: tuple[float, float] = (0.7, 1.1)
    step: float = 0.3
    price: float = 1.0
    reach: float = REACH
    eval_every: int = 5
    seed: int = 1

    def described(self) -> dict[str, int | float | str]:
        return {k: v if isinstance(v, int | float) else str(v) for k, v in asdict(self).items()}


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


@dataclass(frozen=True, slots=True)
class TracePart:
    """A stretch of a trace, and how it is played; rule: (4,) see measured."""

    window: Scenario
    protocol: Protocol
    rule: FloatArray


def part_of(window: Scenario, warm_up: float, protocol: Protocol = CYCLES) -> TracePart:
    """A window with what the rule makes of it."""
    start_s = play_policy(window, RULE, protocol)
    return TracePart(window, protocol, measured(window, start_s, warm_up))


def drawn(
    scenarios: Sequence[Scenario], settings: EvolutionSettings, generation: int
) -> list[Scenario]:
    """The windows of a generation; seed and generation alone say which. Scenarios that are shorter
    than a part are played whole.
    """
    draw = np.random.default_rng([settings.seed, generation])
    found = []
    for _ in range(settings.parts):
        scenario = scenarios[int(draw.integers(len(scenarios)))]
        size = min(settings.part_jobs, len(scenario))
        first = int(draw.integers(0, len(scenario) - size + 1))
        found.append(scenario.cut(first, size, load=float(draw.uniform(*settings.loads))))
    return found


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


@dataclass(frozen=True, slots=True)
class Players:
    """Who plays: so many threads."""

    settings: EvolutionSettings
    workers: int = 1

    def logs(self, policies: Sequence[NetworkPolicy], parts: Sequence[TracePart]) -> FloatArray:
        """(policies, parts, 4) logarithms of `measured` against the rule's; the same for any number
        of threads.
        """

        def play(pair: tuple[NetworkPolicy, TracePart]) -> FloatArray:
            policy, part = pair
            start_s = play_policy(part.window, policy, part.protocol)
            found = measured(part.window, start_s, self.settings.warm_up)
            logs: FloatArray = np.log(found / part.rule)
            return logs

        with ThreadPoolExecutor(self.workers) as pool:
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
    validation: Sequence[TracePart],
    players: Players,
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
    settings, nothing = players.settings, np.zeros(NUMBERS)
    best, chosen, number = 0.0, nothing, -1
    if begin is not None:
        first = cost(players.logs([_policy(begin, settings)], validation)[0], settings.price)
        best, chosen = min((best, nothing), (first, begin), key=lambda one: one[0])
    search, already = _distribution(settings, nothing if begin is None else begin), list(known)
    for at in range(settings.generations):
        members = search.ask()
        if at < len(already):
            found = already[at]
            search.tell(members, found.costs)
        else:
            found = _generation(search, members, at, scenarios, validation, players)
            on_generation(found)
        if found.validation_cost is not None and found.validation_cost < best:
            best, chosen, number = found.validation_cost, np.array(search.mean), at
    return actor_of(chosen, settings.reach), number, best


def _policy(numbers: FloatArray, settings: EvolutionSettings) -> NetworkPolicy:
    return policy_of(actor_of(np.array(numbers), settings.reach))


def _distribution(settings: EvolutionSettings, begin: FloatArray) -> cma.CMAEvolutionStrategy:
    """What it draws depends on where it begins and on the seed alone."""
    draw = np.random.default_rng([settings.seed, NUMBERS])
    options = {
        "popsize": settings.members, "verbose": -9, "seed": settings.seed + 1,
        "randn": lambda *shape: draw.standard_normal(shape),
    }  # fmt: skip
    return cma.CMAEvolutionStrategy(begin, settings.step, options)


def _generation(  # noqa: PLR0917 - by place
    search: cma.CMAEvolutionStrategy,
    members: Sequence[FloatArray],
    number: int,
    scenarios: Sequence[Scenario],
    validation: Sequence[TracePart],
    players: Players,
) -> SearchGeneration:
    """Play the members, move the distribution, and validate its middle where that is due."""
    settings, began = players.settings, time.perf_counter()
    protocol = replace(CYCLES, interval_s=settings.interval_s)
    windows = drawn(scenarios, settings, number)
    parts = [part_of(window, settings.warm_up, protocol) for window in windows]
    logs = players.logs([_policy(one, settings) for one in members], parts)
    if not np.isfinite(logs).all():
        raise FloatingPointError(f"generation {number}: a cost is not finite")
    costs, validated, validation_cost = [cost(one, settings.price) for one in logs], None, None
    search.tell(members, costs)
    if (number + 1) % settings.eval_every == 0 or number + 1 == settings.generations:
        middle = players.logs([_policy(search.mean, settings)], validation)[0]
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
    job: Job[EvolutionSettings],
    *,
    on_generation: Callable[[SearchGeneration], None] = lambda _found: None,
) -> Card:
    """Search with each seed, keep records, export the best. Raises ModelError: the name, a record,
    or the actor is worse than the rule; TraceError: the traces are too short.
    """
    check_name(job.out)
    begin = None
    if job.start is not None:
        begin, reach = numbers_of(job.start)
        job = replace(job, settings=replace(job.settings, reach=reach))
    windows = held_out(job.sources, job.validation, job.judges)
    validation = [part_of(window, job.settings.warm_up) for window in windows]
    found = [_search(one, begin, validation, on_generation) for one in seeds_of(job)]
    return export_judged(job, found, windows)


def _search(
    job: Job[EvolutionSettings],
    begin: FloatArray | None,
    validation: Sequence[TracePart],
    on_generation: Callable[[SearchGeneration], None],
) -> Found:
    """One seed."""
    settings, record = job.settings, SearchRecord(job)
    parts = [
        s.scenario.cut(0, max(1, int(len(s.scenario) * LEARN_UNTIL)))
        for s in job.sources
        for _ in range(s.share)
    ]

    def after(found: SearchGeneration) -> None:
        record.add(found)
        on_generation(found)

    players, known = Players(settings, job.workers), tuple(record.known)
    try:
        actor, number, least = evolve(
            parts, validation, players, begin=begin, known=known, on_generation=after
        )
    except FloatingPointError as error:
        raise ModelError(f"the search stopped: {error}; its record is in {job.folder}") from error
    begun = f", begun from {job.start.name}" if job.start else ""
    return Found(
        actor,
        settings.seed,
        least,
        validation=(record.known[number].validation if number >= 0 else None) or NONE,
        summary=f"CMA-ES, `queue` actor, generation {number + 1} of {settings.generations}.",
        method="CMA-ES on parts of traces in the daemon's cycles, as corrections of the rule"
        + begun,
        teacher=RULE,
        seconds=sum(one.seconds for one in record.known),
        machine=f"{job.workers} threads",
        size=256,
        loads=settings.loads,
    )


class SearchRecord:
    """The folder of a search. known: its generations so far. Raises ModelError: it cannot be used,
    or is of other settings.
    """

    def __init__(self, job: Job[EvolutionSettings]) -> None:
        self._path = job.folder / GENERATIONS
        described = job.settings.described() | {"start": job.start.name if job.start else ""}
        self._described: dict[str, Any] = json.loads(json.dumps(described))
        self.known: list[SearchGeneration] = []
        try:
            job.folder.mkdir(parents=True, exist_ok=True)
            if not self._path.exists():
                return
            lines = self._path.read_text().splitlines()
        except OSError as error:
            raise ModelError(f"{job.folder}: {error.strerror}") from error
        if not job.resume:
            raise ModelError(
                f"{job.folder}: holds a search; continue it with --resume, or remove it"
            )
        try:
            theirs, *rows = map(json.loads, lines)
            names = sorted({*theirs, *self._described} - set(LATER))
            other = [name for name in names if theirs.get(name) != self._described.get(name)]
            self.known = [SearchGeneration.model_validate(row) for row in rows]
        except (ValueError, TypeError, AttributeError) as error:
            raise ModelError(f"{self._path}: cannot be resumed: {error}") from error
        if other:
            raise ModelError(f"{self._path}: was begun with another {other[0]}")
        if [one.number for one in self.known] != list(range(len(self.known))):
            raise ModelError(f"{self._path}: cannot be resumed: generations are missing")

    def add(self, found: SearchGeneration) -> None:
        """Keep one more. Raises ModelError: the disk is full, or not to be written to."""
        self.known.append(found)
        rows = [self._described, *(one.model_dump() for one in self.known)]
        try:
            write_whole(self._path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        except OSError as error:
            raise ModelError(f"{self._path}: {error.strerror}") from error
