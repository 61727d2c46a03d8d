"""A shipped model, played compiled and played as the daemon would."""

from pathlib import Path

import numpy as np
import pytest

from rltuned.sim.policy import actor_of
from rltuned.sim.presets import preset
from rltuned.sim.protocol import Protocol
from rltuned.sim.run import compare, simulate, whole
from rltuned.sim.synth import synthesize
from rltuned.sim.world import Rules
from rltuned.train.players import player_of

MODELS = [f"model:{card.parent}" for card in sorted(Path("models").glob("*/card.json"))]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "protocol",
    [
        Protocol(),
        Protocol(rules=Rules("none", "spread")),
        Protocol(bounded=False),
    ],
)
def test_the_compiled_player_gives_the_schedule_of_the_plain_world(
    protocol: Protocol, model: str
) -> None:
    window = whole(
        synthesize("testbed-1024", jobs=150, seed=3, free_share=0.4).jobs, first=None, warmup=10
    )[0]
    where = preset("testbed")
    plain = simulate(window, where, model, protocol)
    players = {model: player_of(actor_of(model))}
    fast = compare((window,), where, (model,), protocol, players=players)[model][0]
    # two jobs whose scores differ in the last bit of a float32 may change places
    assert np.mean(plain.start_s == fast.start_s) > 0.98
    if (plain.start_s == fast.start_s).all():
        assert plain.nodes == fast.nodes
        assert plain.decisions == fast.decisions
    assert fast.warmup == plain.warmup == 10
