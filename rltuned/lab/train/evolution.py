"""`rltuned train evolve`: an evolution strategy on the `queue` actor.

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
from rltuned.lab.train.export import (
    Found,
    Interval,
    TrainingRun,
    begin,
    check_name,
    export_best,
    held_out,
)
from rltuned.lab.train.network import TorchActor, network_of, policy_of
from rltuned.lab.train.rollout import CYCLES, draw_window, play_policy
from rltuned.lab.train.settings import LEARN_UNTIL, RULE, EvolutionSettings, described
from rltuned.policies import actor as actors

WIDTH: Final = len(actors.QUEUE_COLUMNS)
NUMBERS: Final = 2 * (WIDTH + 1)
"""Of an actor: for each part of a delay a weight per column, and a constant."""
ADDED_S: Final = 60.0
GENERATIONS: Final = "generations.jsonl"
LATER: Final = ("generations", "eval_every")
"""Settings that may change when a search goes on."""


# Actors: eighteen numbers, linear in where a job stands in its queue


def actor_of(numbers: FloatArray, reach: float) -> TorchActor:
    """(NUMBERS,) as an actor. The hidden layers hand the columns on: none of them is negative."""
    actor = TorchActor("queue", (WIDTH, WIDTH), reach)
    rows = torch.tensor(numbers.reshape(2, WIDTH + 1), dtype=torch.float32)
    seen = torch.zeros(WIDTH, actors.FIRST_OF_QUEUE + WIDTH)
    seen[:, actors.FIRST_OF_QUEUE :] = torch.eye(WIDTH)
    weights = (seen, torch.eye(WIDTH), rows[:, :WIDTH])
    biases = (torch.zeros(WIDTH), torch.zeros(WIDTH), rows[:, WIDTH])
    state: dict[str, torch.Tensor] = {}
    for layer, weight, bias in zip(actors.LAYERS, weights, biases, strict=True):
        state |= {f"{layer}.weight": weight, f"{layer}.bias": bias}
    actor.load_state_dict(state)
    return actor


def numbers_of(bundle: Path) -> tuple[FloatArray, float]:
    """(NUMBERS,) and reach of a bundle that an evolution made. Raises ModelError."""
    actor = actors.load_actor(bundle)
    own, form = actor.network.weights, actor.card.architecture
    if form.kind == "queue" and form.hidden == (WIDTH, WIDTH):
        last = [own[f"{actors.LAYERS[-1]}.{name}"].reshape(2, -1) for name in ("weight", "bias")]
        numbers: FloatArray = np.concatenate(last, axis=1).astype(np.float64).ravel()
        again = network_of(actor_of(numbers, form.reach)).weights
        if all(np.array_equal(own[name], value) for name, value in again.items()):
            return numbers, form.reach
    raise ModelError(f"model {bundle}: no network of `rltuned train evolve`; train ppo goes on")


# Parts of traces, and costs against the rule's


Part = tuple[Scenario, Protocol, FloatArray]
"""A stretch of a trace, how it is played, and (4,) what the rule makes of it, see measured."""
Play = Callable[[Sequence[actors.NetworkPolicy], Sequence[Part]], FloatArray]
"""(policies, parts, 4) logarithms of `measured` against the rule's."""


def part_of(window: Scenario, warm_up: float, protocol: Protocol = CYCLES) -> Part:
    """A window with what the rule makes of it."""
    return window, protocol, measured(window, play_policy(window, RULE, protocol), warm_up)


def parts_of(scenarios: Sequence[Scenario], settings: EvolutionSettings, at: int) -> list[Part]:
    """What a generation plays: seed and number alone say it."""
    draw = np.random.default_rng([settings.seed, at])
    size, protocol = settings.part_jobs, replace(CYCLES, interval_s=settings.interval_s)
    windows = [
        draw_window(scenarios, size, settings.loads, draw, part=1.0) for _ in range(settings.parts)
    ]
    return [part_of(window, settings.warm_up, protocol) for window in windows]


def measured(window: Scenario, start_s: FloatArray, warm_up: float) -> FloatArray:
    """(4,) mean wait, mean bounded slowdown, 99% wait and longest wait of the jobs that count. A
    minute, the daemon's interval, is added to each wait: where hardly a job waits, ratios are
    chance.
    """
    first = int(len(start_s) * warm_up)
    wait_s = (start_s - window.submit_s)[first:]
    run_s = window.duration_s[first:]
    slowdown = np.maximum((wait_s + run_s) / np.maximum(run_s, SHORTEST_S), 1.0)
    tail_s = np.array([np.quantile(wait_s, 0.99), wait_s.max()]) + ADDED_S
    return np.array([wait_s.mean() + ADDED_S, slowdown.mean(), *tail_s])


def cost(logs: FloatArray, price: float) -> float:
    """Of the logarithms of `measured` against the rule's, (parts, 4): mean of wait and slowdown;
    below zero: better. Where the 99% or the longest wait is worse on average, that is added; where
    it is better, nothing is taken off.
    """
    wait, slowdown, *tail = logs.mean(axis=0).tolist()
    # of the mean: on a single part these two are mostly chance, which would price any difference
    return float((wait + slowdown) / 2 + price * sum(max(one, 0.0) for one in tail))


def change_of(logs: FloatArray) -> Interval:
    """Of wait and slowdown; logs: (parts, 4)."""
    return mean_with_ends(logs[:, :2].mean(axis=1))


def played(
    policies: Sequence[actors.NetworkPolicy],
    parts: Sequence[Part],
    *,
    warm_up: float,
    workers: int = 1,
) -> FloatArray:
    """See Play; the same for any number of threads."""

    def play(pair: tuple[actors.NetworkPolicy, Part]) -> FloatArray:
        policy, (window, protocol, rule) = pair
        found = measured(window, play_policy(window, policy, protocol), warm_up)
        logs: FloatArray = np.log(found / rule)
        return logs

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(play, product(policies, parts)))
    return np.array(found).reshape(len(policies), len(parts), -1)


# Generations


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
    start: FloatArray | None = None,
    known: Sequence[SearchGeneration] = (),
    on_generation: Callable[[SearchGeneration], None] = lambda _found: None,
) -> tuple[TorchActor, int, float]:
    """The actor that did best in a validation, its generation and cost; generation -1 = where the
    search began, or the rule, which costs 0. start: (NUMBERS,) of an actor; None = of the rule.
    known: generations of an interrupted search, which are not played again. Raises
    FloatingPointError: a cost is not finite.
    """
    price = settings.price

    def policy(numbers: FloatArray) -> actors.NetworkPolicy:
        return policy_of(actor_of(np.array(numbers), settings.reach))

    best, chosen, number = 0.0, np.zeros(NUMBERS), -1
    begun = chosen if start is None else start
    if start is not None and (first := cost(play([policy(start)], validation)[0], price)) < best:
        best, chosen = first, start
    draw = np.random.default_rng([settings.seed, NUMBERS])
    # what it draws depends on where it begins and on the seed alone
    options = {
        "popsize": settings.members, "verbose": -9, "seed": settings.seed + 1,
        "randn": lambda *shape: draw.standard_normal(shape),
    }  # fmt: skip
    search = cma.CMAEvolutionStrategy(begun, settings.step, options)
    every, count = settings.eval_every, settings.generations
    due = {*range(every - 1, count, every), count - 1}
    for at in range(count):
        members = search.ask()
        if at < len(known):
            found = known[at]
            search.tell(members, found.costs)
        else:
            began, parts = time.perf_counter(), parts_of(scenarios, settings, at)
            logs = play(list(map(policy, members)), parts)
            if not np.isfinite(logs).all():
                raise FloatingPointError(f"generation {at}: a cost is not finite")
            costs = [cost(one, price) for one in logs]
            search.tell(members, costs)
            validated, validated_cost = None, None
            if at in due:
                middle = play([policy(search.mean)], validation)[0]
                validated, validated_cost = change_of(middle), cost(middle, price)
            found = SearchGeneration(
                number=at, costs=costs, change=change_of(logs.mean(axis=0)), validation=validated,
                validation_cost=validated_cost, seconds=time.perf_counter() - began,
            )  # fmt: skip
            on_generation(found)
        if found.validation_cost is not None and found.validation_cost < best:
            best, chosen, number = found.validation_cost, np.array(search.mean), at
    return actor_of(chosen, settings.reach), number, best


# On disk


def perform(
    settings: EvolutionSettings,
    run: TrainingRun,
    *,
    workers: int = 1,
    on_generation: Callable[[Path, SearchGeneration], None] = lambda _folder, _found: None,
) -> actors.Card:
    """Search with each seed, keep records in its folder, export the best. workers: threads that
    play. Raises ModelError: the name, a record, or the actor is worse than the rule; TraceError:
    the traces are too short.
    """
    check_name(run.out)
    start = None
    if run.start is not None:
        start, reach = numbers_of(run.start)
        settings = replace(settings, reach=reach)
    windows = held_out(run.sources, settings.eval_windows, settings.eval_jobs, run.judges)
    validation = [part_of(window, settings.warm_up) for window in windows]
    play = partial(played, warm_up=settings.warm_up, workers=workers)
    # cut before windows are: their submits count from the trace's first, to the last digit
    scenarios = [one.cut(0, max(1, int(len(one) * LEARN_UNTIL))) for one in run.scenarios]
    found = []
    for one, folder in run.each(settings):
        begin(folder / GENERATIONS, resume=run.resume)
        shown = described(one) | {"start": run.start.name if run.start else ""}
        done = _resumed(folder / GENERATIONS, shown)
        try:
            actor, number, least = evolve(
                scenarios, validation, one, play, start=start, known=tuple(done),
                on_generation=partial(_keep, folder, shown, done, on_generation),
            )  # fmt: skip
        except FloatingPointError as error:
            raise ModelError(f"the search stopped: {error}; its record is in {folder}") from error
        best = (done[number].validation if number >= 0 else None) or (0.0, None, None)
        summary = f"CMA-ES, `queue` actor, generation {number + 1} of {one.generations}."
        seconds = sum(each.seconds for each in done)
        found.append(Found(least, one.seed, actor, best, summary, seconds))
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


def _resumed(path: Path, shown: dict[str, Any]) -> list[SearchGeneration]:
    """The generations of a record so far. Raises ModelError: it is damaged, or of other settings
    than those shown.
    """
    if not path.exists():
        return []
    try:
        theirs, *rows = map(json.loads, path.read_text().splitlines())
        other = [k for k in shown if k not in LATER and theirs.get(k) != shown[k]]
        found = [SearchGeneration.model_validate(row) for row in rows]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: cannot be resumed: {error}") from error
    if other:
        raise ModelError(f"{path}: was begun with another {other[0]}")
    if [one.number for one in found] != list(range(len(found))):
        raise ModelError(f"{path}: cannot be resumed: generations are missing")
    return found


def _keep(
    folder: Path,
    shown: dict[str, Any],
    done: list[SearchGeneration],
    on_generation: Callable[[Path, SearchGeneration], None],
    found: SearchGeneration,
) -> None:
    """One more generation in the record. Raises ModelError: the disk is full."""
    done.append(found)
    lines = [json.dumps(row) + "\n" for row in (shown, *(one.model_dump() for one in done))]
    try:
        write_whole(folder / GENERATIONS, "".join(lines).encode())
    except OSError as error:
        raise ModelError(f"{folder / GENERATIONS}: {error.strerror}") from error
    on_generation(folder, found)
