"""A trained actor at every event of a simulation, compiled."""

import time

import numpy as np

from rltuned.policies.actor import Actor
from rltuned.sim.cluster import Cluster
from rltuned.sim.engine.arrays import FloatArray, Jobs
from rltuned.sim.engine.run import Played
from rltuned.sim.metrics import Schedule
from rltuned.sim.protocol import Protocol
from rltuned.sim.run import Player, schedule_of_engine
from rltuned.sim.run import Window as Chosen
from rltuned.train.contestants import delayed_by
from rltuned.train.episodes import NOTHING_KEPT, Recorder, led_by, net_of, tables
from rltuned.train.ground import Ground, Window, make_ground
from rltuned.train.rollout.play import episode
from rltuned.train.rollout.state import WAKES, Float32Array


def player_of(actor: Actor) -> Player:
    """What plays windows by this actor's scores; the same schedule as the plain world gives."""
    net = net_of(actor.network)

    def play(chosen: Chosen, cluster: Cluster, protocol: Protocol) -> Schedule:
        began = time.perf_counter()
        ground = make_ground(cluster.name, cluster, chosen.jobs, protocol.rules)
        fixed = _with_predictions(actor, ground)
        window = Window(ground, 0, ground.jobs, ground.prepared, fixed, ground.duration_s)
        delayed = delayed_by(actor, protocol.order)
        setup, state, desk, sight = tables(window, seed=0, delayed=delayed)
        (ranking, mode), tape = led_by(window, net), Recorder(NOTHING_KEPT).tape()
        episode(setup, state, desk, sight, net, ranking, mode, False, False, tape)
        jobs = ground.prepared.jobs
        played = Played(
            start_s=state.start_s,
            end_s=state.start_s + jobs.runs_s,
            offset=np.append(jobs.offset, len(state.shares.node)),
            shares=state.shares,
            passes=rankings(jobs, state.start_s) + int(desk.marks[WAKES]),
        )
        return schedule_of_engine(played, chosen, cluster, began)

    return play


def _with_predictions(actor: Actor, ground: Ground) -> Float32Array:
    """(n, F) the columns that do not change, with the predictor's where the network reads them."""
    if actor.predictor is None:
        return ground.sight.fixed
    users, accounts = [j.user for j in ground.jobs], [j.account for j in ground.jobs]
    told = actor.predictor.columns(users, accounts, ground.prepared.requests)
    return np.column_stack([ground.sight.fixed, told]).astype(np.float32)


def rankings(jobs: Jobs, start_s: FloatArray) -> int:
    """At how many instants something happened while somebody waited."""
    instants = np.unique(np.concatenate([jobs.submit_s, start_s + jobs.runs_s]))
    came = np.searchsorted(np.sort(jobs.submit_s), instants, side="right")
    gone = np.searchsorted(np.sort(start_s), instants, side="left")
    return int((came > gone).sum())
