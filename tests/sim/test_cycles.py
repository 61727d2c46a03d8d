"""The compiled daemon cycle writes what `core.decide` writes, and the same jobs start."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltuned.core.decide import Knobs
from rltuned.core.numbers import Writing
from rltuned.core.order import Order
from rltuned.core.select import Rules as Scope
from rltuned.sim.cluster import Cluster
from rltuned.sim.metrics import Schedule
from rltuned.sim.natural import AGE_ONLY
from rltuned.sim.protocol import Newcomers, Protocol
from rltuned.sim.run import Window, compiled_knows, simulate
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import Rules
from tests import needs
from tests.sim import worlds

needs.module("numba")

POLICIES = ("delay", "saf", "sjf", "fcfs")
AGED = Rules(natural=AGE_ONLY)
BUSY_CYCLES = 50
DAY = 86_400.0


@dataclass(frozen=True)
class Setting:
    """A random site: how long its seconds are, and how its daemon writes."""

    scale: int
    interval_s: float
    writing: Writing
    min_age_s: float

    def protocol(self, newcomers: Newcomers = "cycle", order: Order | None = None) -> Protocol:
        scope = Scope(min_age_s=self.min_age_s)
        knobs = Knobs(scope, order or Order(stretch=1.0), writing=self.writing, top_k=0)
        return Protocol("cycle", self.interval_s, AGED, knobs=knobs, newcomers=newcomers)


@st.composite
def sites(draw: st.DrawFn) -> Setting:
    """From seconds, where every cycle counts, to days, where the neutral delay moves."""
    scale = draw(st.sampled_from([1, 60, 3_600]))
    writing = Writing(
        max_changes=draw(st.sampled_from([1, 2, 5, 500])),
        hysteresis=draw(st.sampled_from([0.0, 0.3, 0.9])),
        min_step_s=draw(st.sampled_from([0.0, 1.0, 60.0])),
    )
    interval_s = draw(st.integers(max(1, scale // 60), scale * 3))
    min_age_s = draw(st.sampled_from([0.0, 2.0, 10.0]))
    return Setting(scale, float(interval_s), writing, min_age_s)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Cluster, tuple[TraceJob, ...]]:
    """A crowded cluster whose times are whole seconds and whose partitions weigh alike."""
    where, jobs = draw(worlds.cases())
    level = tuple(replace(p, priority_factor=1) for p in where.partitions)
    whole = tuple(replace(j, duration_s=float(round(j.duration_s))) for j in jobs)
    return replace(where, partitions=level), whole


def stretched(where: Cluster, jobs: tuple[TraceJob, ...], by: int) -> tuple[Cluster, Window]:
    """The same world with longer seconds."""
    partitions = tuple(
        p if p.max_time_s is None else replace(p, max_time_s=p.max_time_s * by)
        for p in where.partitions
    )
    longer = [
        replace(
            j,
            submit_s=j.submit_s * by,
            duration_s=j.duration_s * by,
            time_limit_s=None if j.time_limit_s is None else j.time_limit_s * by,
        )
        for j in jobs
    ]
    return replace(where, partitions=partitions), Window(0, tuple(longer))


def assert_alike(plain: Schedule, fast: Schedule) -> None:
    assert plain.start_s.tolist() == fast.start_s.tolist()
    assert plain.end_s.tolist() == fast.end_s.tolist()
    assert plain.nodes == fast.nodes
    assert plain.decisions == fast.decisions


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(cases(), sites(), st.sampled_from(POLICIES), st.sampled_from(["cycle", "submit"]))
def test_random_worlds_give_the_same_starts_nodes_decisions_and_writes(
    case: tuple[Cluster, tuple[TraceJob, ...]], site: Setting, policy: str, newcomers: Newcomers
) -> None:
    where, window = stretched(*case, site.scale)
    protocol = site.protocol(newcomers)
    assert compiled_knows(policy, protocol)
    plain = simulate(window, where, policy, protocol, engine=False)
    fast = simulate(window, where, policy, protocol)
    assert_alike(plain, fast)
    if newcomers == "cycle":
        assert plain.writes == fast.writes


def crowd(count: int, seed: int) -> tuple[Cluster, Window]:
    """A queue that stays long for days on a few nodes."""
    rng = np.random.default_rng(seed)
    where = worlds.cluster(*((f"n{i}", 4) for i in range(3)))
    submits = np.sort(rng.integers(0, int(3 * DAY), size=count)).tolist()
    jobs = [
        worlds.job(
            f"j{i}",
            float(submit),
            float(rng.integers(1, 60) * 300),
            int(rng.choice([1, 1, 1, 2, 4, 8])),
            time_limit_s=float(rng.choice([1, 2, 4, 12, 24])) * 3_600.0,
        )
        for i, submit in enumerate(submits)
    ]
    capped = [replace(j, duration_s=min(j.duration_s, j.time_limit_s or 0.0)) for j in jobs]
    return where, Window(0, tuple(capped))


@pytest.mark.parametrize("newcomers", ["cycle", "submit"])
@pytest.mark.parametrize("cap", [1, 7, 500])
@pytest.mark.parametrize("policy", POLICIES)
def test_days_of_a_long_queue_give_the_same(policy: str, cap: int, newcomers: Newcomers) -> None:
    where, window = crowd(120, seed=cap)
    writing = Writing(max_changes=cap)
    protocol = Setting(1, 600.0, writing, 10.0).protocol(newcomers)
    plain = simulate(window, where, policy, protocol, engine=False)
    fast = simulate(window, where, policy, protocol)
    assert plain.decisions >= BUSY_CYCLES
    assert_alike(plain, fast)
    if newcomers == "cycle":
        assert plain.writes == fast.writes
        assert (fast.writes == 0) == (policy == "fcfs")
