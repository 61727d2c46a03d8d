"""Who takes part in an evaluation: bundles, alone or as training seeds of one another."""

from dataclasses import dataclass
from functools import partial

from rltuned.errors import ModelError
from rltuned.policies.actor import Actor
from rltuned.sim.policy import actor_of
from rltuned.sim.protocol import Protocol
from rltuned.train.episodes import play_policy
from rltuned.train.evaluate import Play


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
    actors = tuple(actor_of(one) for one in listed.split(","))
    if len({str(a.card.architecture) for a in actors}) > 1:
        raise ModelError(f"{given}: not seeds of one another: their architectures differ")
    return Contestant(name if equals else actors[0].name, actors)


def plays_of(contestant: Contestant, protocol: Protocol) -> list[Play]:
    """One player per training seed."""
    return [partial(play_policy, policy=a, protocol=protocol) for a in contestant.actors]
