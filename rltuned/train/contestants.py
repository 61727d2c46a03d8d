"""Who takes part in an evaluation: bundles, alone or as training seeds of one another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rltuned.core.features import NUM_FEATURES
from rltuned.core.order import Order
from rltuned.errors import ModelError
from rltuned.policies.actor import Actor, load_actor
from rltuned.policies.predictor import LOG_FULL
from rltuned.sim.engine.arrays import FloatArray
from rltuned.sim.policy import MODEL_PREFIX, MODELS
from rltuned.train.episodes import Delayed, net_of, play_greedy, play_order
from rltuned.train.evaluate import Play
from rltuned.train.ground import Ground, Window
from rltuned.train.rollout.state import Float32Array

QSSF = "qssf"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A model: one bundle, or those of several training seeds, in their order."""

    name: str
    actors: tuple[Actor, ...]


def contestant_of(given: str) -> Contestant:
    """From `BUNDLE`, or `NAME=BUNDLE,BUNDLE,...` for the training seeds of one design.

    Raises:
        ModelError: a bundle cannot be used, or the seeds are of different designs.
    """
    name, equals, listed = given.rpartition("=")
    actors = tuple(_load(one) for one in listed.split(","))
    if len({str(a.card.architecture) for a in actors}) > 1:
        raise ModelError(f"{given}: not seeds of one another: their architectures differ")
    return Contestant(name if equals else actors[0].name, actors)


def _load(name: str) -> Actor:
    given = name.removeprefix(MODEL_PREFIX)
    return load_actor(Path(given) if Path(given).is_dir() else MODELS / given, inspectors=True)


def plays_of(contestant: Contestant, ground: Ground, order: Order | None) -> list[Play]:
    """One player per training seed, within the bounds; None = its pure order."""
    return [_play(actor, ground, order) for actor in contestant.actors]


def _play(actor: Actor, ground: Ground, order: Order | None) -> Play:
    net, columns, delayed = net_of(actor.network), foretold(actor, ground), delayed_by(actor, order)
    return lambda window: play_greedy(
        window if columns is None else window.foretold(columns), net, delayed
    )


def delayed_by(actor: Actor, order: Order | None) -> Delayed | None:
    """An inspector is played as published: its rejections have a bound of their own."""
    if order is None or actor.card.architecture.kind == "inspector":
        return None
    return Delayed(actor.curve, order)


def foretold(actor: Actor, ground: Ground) -> Float32Array | None:
    """(len(ground), 3) predictions for all jobs; None where the network reads none."""
    if actor.predictor is None:
        return None
    users, accounts = [j.user for j in ground.jobs], [j.account for j in ground.jobs]
    return actor.predictor.columns(users, accounts, ground.prepared.requests)


def beside(contestants: Sequence[Contestant], ground: Ground) -> Mapping[str, Play]:
    """Qssf, by the first predictor there is: smallest predicted run time times GPUs first."""
    for contestant in contestants:
        columns = foretold(contestant.actors[0], ground)
        if columns is not None:
            return {QSSF: _by_prediction(columns)}
    return {}


def _by_prediction(columns: Float32Array) -> Play:
    return lambda window: _qssf(window.foretold(columns))


def _qssf(window: Window) -> FloatArray:
    """Quasi-shortest service first (Hu et al., SC'21): predicted GPU time, smallest first."""
    median_s = np.expm1(window.fixed[:, NUM_FEATURES + 1].astype(np.float64) * LOG_FULL)
    gpus = np.array([max(job.gpus, 1) for job in window.jobs], dtype=np.float64)
    return play_order(window, median_s * gpus)
