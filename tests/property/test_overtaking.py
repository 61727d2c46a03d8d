"""The promise to the overtaken over dozens of cycles: jobs come and start, limits change."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.backlog import LONGEST_S
from rltuned.core.capacity import Capacity
from rltuned.core.decide import Decision, Knobs
from rltuned.core.features import StateMatrix
from rltuned.core.numbers import Writing
from rltuned.core.order import Order, Policy
from rltuned.core.pools import Sizes
from rltuned.domain.units import JobId
from rltuned.policies.actor import load_actor
from rltuned.policies.baselines import BASELINES
from rltuned.policies.plugins import Plugin
from tests.builders import NOW, job, request
from tests.examples import examples
from tests.property.sites import ROOM, Site, orders
from tests.property.tables import SLOPE, policies

CYCLES = 36
STEPS_S = (60.0, 60.0, 600.0, 4 * 3_600.0)
"""Between cycles: in days the neutral delay follows the queue."""
LIMITS_S = (None, 60.0, 3_600.0, 86_400.0, 20 * 86_400.0, math.inf)
POINT_S = 1.0 / SLOPE


def most_for_the_oldest(matrix: StateMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Of a package that wants the oldest to wait for ever."""
    return 1e12 * (1.0 + matrix.wait_s), np.full(len(matrix), 1e6)


def of_the_moment(matrix: StateMatrix) -> np.ndarray:
    """Of one that changes its mind each minute."""
    turn = (matrix.wait_s // 60).astype(int) + np.arange(len(matrix))
    return np.where(turn % 2, 0.0, 1e9)


CHOSEN: tuple[Policy, ...] = (
    *BASELINES.values(),
    load_actor(Path("models/rltune")),
    Plugin("plugin:oldest", most_for_the_oldest, ""),
    Plugin("plugin:moment", of_the_moment, ""),
)


class Churn:
    """A site whose queue changes between cycles, and the largest delay that each job has held."""

    def __init__(self, seed: int, order: Order, cap: int) -> None:
        self.draw, self.order, self.cap = np.random.default_rng(seed), order, cap
        self.site = Site([], {})
        self.held_s: dict[JobId, float] = {}
        self.number = 0
        for _ in range(6):
            self._come(NOW - int(self.draw.integers(20, 200_000)))

    def cycle(self, policy: Policy) -> Decision:
        knobs = Knobs(order=self.order, writing=Writing(max_changes=self.cap), top_k=0)
        self._hold()
        decision = self.site.decided(policy, knobs)
        self.site.carry_out(decision)
        self._hold()
        if self.cap > len(self.site.jobs):
            self._check_in_force(decision)
        return decision

    def pass_time(self) -> None:
        """Jobs start or are cancelled, come, and have their limits changed."""
        self.site.now += float(self.draw.choice(STEPS_S))
        site = self.site
        site.jobs = [j for j in site.jobs if len(site.jobs) < 4 or self.draw.random() > 0.15]
        for at, one in enumerate(site.jobs):
            if self.draw.random() < 0.15:
                limit_s = LIMITS_S[self.draw.integers(len(LIMITS_S))]
                site.jobs[at] = replace(one, request=replace(one.request, time_limit_s=limit_s))
        for _ in range(int(self.draw.integers(0, 4))):
            if len(site.jobs) < 12:
                self._come(site.now - float(self.draw.integers(0, 60)))

    def check(self) -> None:
        """No one is overtaken by one that became eligible later than the largest delay he held."""
        for one in self.site.jobs:
            reach_s = one.ages_since + self.held_s.get(one.job_id, 0.0) + 2 * POINT_S
            for other in self.site.jobs:
                if other.ages_since > reach_s:
                    assert self.site.priority(one) >= self.site.priority(other)

    def _come(self, at_s: float) -> None:
        self.number += 1
        asks = request(
            gpus=int(self.draw.choice([0, 1, 1, 2, 4])),
            cpus=int(self.draw.choice([1, 4, 16])),
            time_limit_s=LIMITS_S[self.draw.integers(len(LIMITS_S))],
            exclusive=bool(self.draw.random() < 0.2),
        )
        user = str(self.draw.choice(["ann", "bob", "eve"]))
        made = job(self.number, asks=asks, submitted_at=at_s, user=user)
        self.site.jobs.append(made)
        self.site.bases[made.job_id] = ROOM

    def _hold(self) -> None:
        for one in self.site.jobs:
            held_s = max(self.held_s.get(one.job_id, 0.0), self.site.in_force_s(one))
            self.held_s[one.job_id] = held_s

    def _check_in_force(self, decision: Decision) -> None:
        """Where a cycle may write all that it wants, no number stands for more than the bound."""
        for entry in decision.entries:
            one = next(j for j in self.site.jobs if j.job_id == entry.job.job_id)
            assert self.site.in_force_s(one) <= entry.upper_s + 2 * POINT_S


def check_bounds(decision: Decision, order: Order) -> None:
    """D <= min(max_delay, clip x L x sqrt(m) + share x B), counted here once more."""
    matrix = decision.matrix
    sizes = Sizes(Capacity.of(decision.snapshot))
    backlog_s = dict(zip((j.job_id for j in matrix.jobs), matrix.backlog_s.tolist(), strict=True))
    for entry in decision.entries:
        asks = entry.job.request
        length_s = LONGEST_S if asks.time_limit_s is None else min(asks.time_limit_s, LONGEST_S)
        own_s = order.clip * length_s * math.sqrt(sizes.of(asks, entry.job.partitions))
        bound_s = min(order.max_delay_s, own_s + order.share * backlog_s[entry.job.job_id])
        assert 0.0 <= entry.delay_s <= bound_s * (1 + 1e-12)
        assert entry.delay_s <= entry.upper_s <= bound_s * (1 + 1e-12)


def play(policy: Policy, order: Order, cap: int, seed: int) -> None:
    churn = Churn(seed, order, cap)
    for _ in range(CYCLES):
        check_bounds(churn.cycle(policy), order)
        churn.check()
        churn.pass_time()
        churn.check()  # between cycles


seeds = st.integers(0, 2**32 - 1)
caps = st.sampled_from((0, 1, 3, 99))


@examples(40)
@given(policies, orders, caps, seeds)
def test_hostile_delays_keep_the_promise_over_many_cycles(
    policy: Policy, order: Order, cap: int, seed: int
) -> None:
    play(policy, order, cap, seed)


@examples(60)
@given(st.sampled_from(CHOSEN), orders, caps, seeds)
def test_every_rule_network_and_plug_in_keeps_it_over_many_cycles(
    policy: Policy, order: Order, cap: int, seed: int
) -> None:
    play(policy, order, cap, seed)
