"""The compiled daemon cycle writes what `core.decide` writes, and the same jobs start."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.decide import Knobs
from rltuned.core.numbers import Writing
from rltuned.core.order import Order, SlaClass
from rltuned.core.select import Scope
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import TraceJob
from rltuned.sim.world import AGE_ONLY, Fault, Natural, NodeFault, Rules
from tests.examples import examples
from tests.sim import worlds
from tests.sim.reference import plainly

STATIC = ("delay", "qssf", "saf", "wfp3", "fcfs")
MOVING = ("fit_first", "model:rltune", "model:rltune-paper")
WEIGHTED = Natural(kind="multifactor", max_age_s=3_600.0)
NATURALS = (AGE_ONLY, WEIGHTED, replace(WEIGHTED, age_weight=0), Natural())
BUSY_CYCLES = 50
AT_ONCE = Scope(min_age_s=0.0)


@dataclass(frozen=True)
class Setting:
    """A random site: how long its seconds are, and how its daemon writes."""

    scale: int
    interval_s: float
    writing: Writing
    scope: Scope = AT_ONCE
    natural: Natural = AGE_ONLY
    sla: tuple[SlaClass, ...] = ()

    def protocol(self, order: Order | None = None) -> Protocol:
        order = order or Order(own=1.0, share=2.0)
        knobs = Knobs(self.scope, order, writing=self.writing, sla=self.sla, top_k=0)
        return Protocol("cycle", self.interval_s, knobs=knobs)

    @property
    def rules(self) -> Rules:
        return Rules(natural=self.natural)


@st.composite
def sites(draw: st.DrawFn) -> Setting:
    """From a minute, where every second counts, to days, where the neutral delay moves."""
    scale = draw(st.sampled_from([1, 60, 3_600]))
    writing = Writing(
        max_changes=draw(st.sampled_from([1, 2, 5, 500])),
        hysteresis=draw(st.sampled_from([0.0, 0.3, 0.9])),
        min_step_s=draw(st.sampled_from([0.0, 1.0, 60.0])),
    )
    interval_s = draw(st.integers(max(1, scale // 60), scale * 3))
    scope = Scope(
        min_age_s=draw(st.sampled_from([0.0, 2.0, 10.0])),
        max_writes_per_hour=draw(st.sampled_from([None, 1, 3])),
        sla_partitions=frozenset(draw(st.sampled_from(["", "", "b"]))),
        excluded_users=frozenset(draw(st.sampled_from(["", "", "u"]))),
    )
    natural = draw(st.sampled_from(NATURALS))
    promised = draw(st.sampled_from([(), (SlaClass("partition", "a", 60.0),)]))
    return Setting(scale, float(interval_s), writing, scope, natural, promised)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Cluster, tuple[TraceJob, ...]]:
    """A crowded cluster whose times are whole seconds, with partitions of several tiers."""
    where, jobs = draw(worlds.cases())
    level = tuple(
        replace(p, priority_tier=draw(st.sampled_from([1, 1, 2]))) for p in where.partitions
    )
    whole = tuple(replace(j, duration_s=float(round(j.duration_s))) for j in jobs)
    return replace(where, partitions=level), whole


def stretched(where: Cluster, jobs: tuple[TraceJob, ...], site: Setting) -> Scenario:
    """The same world with the site's longer seconds."""
    by = site.scale
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
    return Scenario.of(replace(where, partitions=partitions), longer, site.rules)


@examples(250)
@given(cases(), sites(), st.sampled_from((*STATIC, *MOVING)))
def test_random_worlds_under_any_policy_and_priority_system_give_the_same(
    case: tuple[Cluster, tuple[TraceJob, ...]], site: Setting, policy: str
) -> None:
    window = stretched(*case, site)
    protocol = site.protocol()
    plain = plainly(window, policy, protocol)
    fast = simulate(window, policy, protocol)
    if policy.startswith("model:"):  # a float32's last bit may move a number by one point
        assert np.mean(plain.start_s == fast.start_s) > 0.8
        return
    worlds.assert_alike(plain, fast)
    assert plain.writes == fast.writes


@examples(100)
@given(cases(), sites(), st.sampled_from(("delay", "saf", "qssf", "fit_first")), st.data())
def test_nodes_that_fail_under_the_daemon_give_the_same(
    case: tuple[Cluster, tuple[TraceJob, ...]], site: Setting, policy: str, data: st.DataObject
) -> None:
    window = stretched(*case, site)
    faults = []
    for node in window.cluster.nodes:
        if data.draw(st.booleans()):
            at = float(data.draw(st.integers(0, 50))) * site.scale
            faults += [
                Fault(at, node.name, NodeFault.FAIL),
                Fault(at + 20 * site.scale, node.name, NodeFault.RESUME),
            ]
    window, protocol = replace(window, faults=tuple(faults)), site.protocol()
    plain = plainly(window, policy, protocol)
    fast = simulate(window, policy, protocol)
    worlds.assert_alike(plain, fast)
    assert plain.writes == fast.writes
    assert plain.lost_gpu_s == fast.lost_gpu_s


@pytest.mark.parametrize(
    ("policy", "cap", "natural"),
    [
        ("delay", 1, AGE_ONLY),
        ("delay", 500, AGE_ONLY),
        ("saf", 7, AGE_ONLY),
        ("sjf", 500, AGE_ONLY),
        ("fcfs", 500, AGE_ONLY),
        *(
            (policy, 200, natural)
            for policy in ("model:rltune", "model:rltune-paper", "fit_first")
            for natural in (AGE_ONLY, WEIGHTED, Natural())
        ),
    ],
)
def test_days_of_a_long_queue_give_the_same(policy: str, cap: int, natural: Natural) -> None:
    site = Setting(1, 600.0, Writing(max_changes=cap), Scope(min_age_s=10.0), natural)
    window, protocol = worlds.crowd(120, cap, site.rules), site.protocol()
    plain = plainly(window, policy, protocol)
    fast = simulate(window, policy, protocol)
    assert plain.decisions >= BUSY_CYCLES
    assert (fast.writes == 0) == (policy == "fcfs")
    if policy.startswith("model:"):
        assert np.mean(plain.start_s == fast.start_s) > 0.98
    else:
        worlds.assert_alike(plain, fast)
        assert plain.writes == fast.writes
