"""Who overtakes whom in the kernel's cycles, as the starts show it where nothing is backfilled."""

import numpy as np
import pytest

from rltuned.core.backlog import length_s
from rltuned.core.decide import Knobs
from rltuned.core.features import FloatArray
from rltuned.core.numbers import Writing
from rltuned.core.order import Order
from rltuned.core.select import Scope
from rltuned.lab.replay.metrics import Schedule
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import play_decided, schedule_of, simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.plugins import Plugin
from rltuned.sim.dispatch import AGE_ONLY
from rltuned.sim.world import Rules
from tests.sim.worlds import crowd

HOUR = 3_600.0
INTERVAL_S = 600.0
POINT_S = 1.0 / AGE_ONLY.system.slope
ASKED = 50.0
"""Times what a rule would ask for: far beyond every bound."""
CYCLES = 50
OLDEST = Plugin("oldest", lambda matrix: 1e9 * (1.0 + matrix.wait_s), "")


RULES = Rules(natural=AGE_ONLY, backfill="none")


def protocol(order: Order) -> Protocol:
    knobs = Knobs(Scope(min_age_s=0.0), order, writing=Writing(max_changes=10_000), top_k=0)
    return Protocol("cycle", INTERVAL_S, knobs=knobs)


def furthest_s(found: Schedule) -> FloatArray:
    """(n,) how much later than each job the latest came that started before it while it waited."""
    later_s = found.submit_s[None, :] - found.submit_s[:, None]
    before = found.start_s[None, :] < found.start_s[:, None]
    furthest: FloatArray = np.where(before, later_s, -np.inf).max(axis=1)
    return furthest


@pytest.mark.parametrize("policy", ["delay", "saf", "sjf", "smallest", "qssf", "model:rltune"])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("max_delay_s", [HOUR, 24 * HOUR])
def test_no_one_is_overtaken_beyond_the_bound_of_his_own_length(
    policy: str, seed: int, max_delay_s: float
) -> None:
    window = crowd(120, seed, RULES)
    order = Order(own=ASKED, share=0.0, clip=0.5, max_delay_s=max_delay_s)
    found = simulate(window, policy, protocol(order))
    check(found, clipped_s(window, order))


@pytest.mark.parametrize("policy", ["delay", "saf", "model:rltune"])
@pytest.mark.parametrize("share", [0.75, 4.0])
def test_no_one_is_overtaken_beyond_max_delay_whatever_the_backlog(
    policy: str, share: float
) -> None:
    window = crowd(120, 4, RULES)
    order = Order(share=share, max_delay_s=3 * HOUR)
    found = simulate(window, policy, protocol(order))
    check(found, np.full(len(window), order.max_delay_s))


def test_a_package_that_wants_the_oldest_to_wait_cannot_have_it() -> None:
    window = crowd(120, 5, RULES)
    order = Order(own=ASKED, share=0.0, clip=0.5, max_delay_s=6 * HOUR)
    played = play_decided(window.world(), OLDEST, protocol(order))
    found = schedule_of(played.world, window, 0.0, decisions=played.decisions, writes=played.writes)
    check(found, clipped_s(window, order))


def clipped_s(window: Scenario, order: Order) -> FloatArray:
    """(n,) the bound without a backlog."""
    length = length_s(np.array([job.time_limit_s for job in window.jobs]))
    bound_s: FloatArray = np.minimum(
        order.clip * length * np.sqrt(window.prepared.size), order.max_delay_s
    )
    return bound_s


def check(found: Schedule, bound_s: FloatArray) -> None:
    """A job is written at the first cycle after it came; whoever overtook it before that had come
    by then.
    """
    assert found.decisions >= CYCLES
    overtaken_s = furthest_s(found)
    assert (overtaken_s > 0).any(), "somebody is overtaken"
    assert (overtaken_s <= np.maximum(bound_s, INTERVAL_S) + 2 * POINT_S).all()
