"""A busy slurmctld is left alone: doubling, halving, and the gap between in which nothing moves."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from rltuned.daemon.metrics import Metrics
from rltuned.daemon.report import Skip
from rltuned.daemon.state import HealthState
from rltuned.daemon.wiring import Rig
from rltuned.errors import BackendError, SnapshotError
from rltuned.slurm.site import Bounds, Load, Throttle, Weighed, next_stretch, pressures
from tests.builders import sure
from tests.loops import Bench, Desk, report

CALM = Load(1, 0, 0, rpc_count=100, rpc_total_s=1.0, backfill_s=0.01)
BUSY = replace(CALM, server_threads=100)
BETWEEN = replace(CALM, server_threads=70)


@dataclass
class Gauge:
    """Says what a test tells it to say, one answer per look; the last one stays."""

    answers: list[Load | Exception] = field(default_factory=lambda: [CALM])

    def __call__(self) -> Load:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class Gauged(Bench):
    """A bench whose slurmctld can be asked how busy it is."""

    gauge: Callable[[], Load] = field(default_factory=Gauge)

    def rig(self) -> Rig:
        return replace(super().rig(), gauge=self.gauge)


def test_a_busy_controller_is_asked_rarely_and_nothing_else(tmp_path: Path) -> None:
    bench = Gauged(tmp_path, gauge=Gauge([*[BUSY] * 5, CALM]))
    assert bench.loop().run(8) == 0
    skips = [r.skip for r in bench.received.reports]
    assert skips == [Skip.BUSY] * 5 + [None] * 3
    assert bench.world.observed == 3
    assert len(bench.world.plans) == 1
    assert "server_threads is 1.0 times its bound" in bench.received.reports[0].detail
    # 60 s stretched to 120, to the most of ten intervals, and back by halves
    assert bench.clock.waits == [120.0, 240.0, 480.0, 600.0, 600.0, 300.0, 150.0]


def test_between_the_bounds_nothing_changes(tmp_path: Path) -> None:
    bench = Gauged(tmp_path, gauge=Gauge([BUSY, BETWEEN, BETWEEN, CALM, CALM]))
    bench.loop().run(5)
    assert [r.weighed.stretch for r in bench.received.reports if r.weighed] == [2, 2, 2, 1, 1]
    assert bench.world.observed == 4


def test_a_rate_limit_stretches_but_skips_nothing(tmp_path: Path) -> None:
    bench = Gauged(tmp_path, gauge=Gauge([CALM, replace(CALM, rate_limited=3), CALM]))
    bench.loop().run(3)
    assert [r.skip for r in bench.received.reports] == [None] * 3
    assert bench.clock.waits == [60.0, 120.0]


@pytest.mark.parametrize("trouble", [BackendError("sdiag is not there"), SnapshotError("garbled")])
def test_load_that_cannot_be_read_steers_nothing(tmp_path: Path, trouble: Exception) -> None:
    bench = Gauged(tmp_path, gauge=Gauge([trouble]))
    assert bench.loop().run(2) == 0
    assert bench.clock.waits == [60.0]
    weighed = sure(bench.received.reports[0].weighed)
    assert (weighed.load, weighed.unknown) == (None, str(trouble))


def test_slow_rpcs_count_from_one_look_to_the_next(tmp_path: Path) -> None:
    slow = replace(CALM, rpc_count=110, rpc_total_s=11.0)  # ten RPCs of a second each
    bench = Gauged(tmp_path, gauge=Gauge([CALM, slow]))
    bench.loop().run(2)
    assert [r.skip for r in bench.received.reports] == [None, Skip.BUSY]


def test_a_bound_of_zero_does_not_count() -> None:
    weighed = Throttle().weigh(lambda: BUSY, Bounds(server_threads=0), 10.0)
    assert (weighed.busy, weighed.stretch) == ((), 1.0)


@given(
    st.floats(1, 64), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1, 64).filter(lambda m: m > 0)
)
def test_the_factor_stays_in_its_range_and_follows_the_pressure(
    stretch: float, low: float, high: float, most: float
) -> None:
    low, high = sorted((low, high))
    after_low, after_high = next_stretch(stretch, low, most), next_stretch(stretch, high, most)
    assert 1 <= after_low <= max(most, 1)
    assert after_low <= after_high


def test_what_the_load_does_is_seen() -> None:
    desk = Desk()
    busy = Weighed(BUSY, pressures(BUSY, 0.1, Bounds()), 4.0)
    desk.publisher.cycle(report(weighed=busy, skip=Skip.BUSY, detail="busy", decision=None))
    (line,) = desk.lines("cycle_skipped")
    assert (line["reason"], line["stretch"]) == ("busy", 4.0)
    limited = replace(CALM, rate_limited=3)
    desk.publisher.cycle(report(weighed=Weighed(limited, {}, 2.0)))
    desk.publisher.cycle(report(weighed=Weighed(None, {}, 1.0, "sdiag: garbled")))
    desk.publisher.cycle(report(weighed=Weighed(CALM, {}, 1.0)))
    first, second, third = desk.lines("cycle")
    assert (first["stretch"], first["rate_limited"]) == (2.0, 3)
    assert (second["load_unknown"], second.get("stretch")) == ("sdiag: garbled", None)
    assert not {"stretch", "rate_limited", "load_unknown", "standby"} & third.keys()
    desk.publisher.cycle(
        report(HealthState.STANDBY, reasons={HealthState.STANDBY: "head2 holds the lease"})
    )
    assert desk.lines("cycle")[-1]["standby"] == "head2 holds the lease"


def test_the_figures_are_metrics() -> None:
    metrics = Metrics(CollectorRegistry())
    read = metrics.registry.get_sample_value
    name = "rltuned_slurmctld_load_ratio"
    assert math.isnan(read(name, {"figure": "rpc_mean"}) or 0.0), "nobody has asked yet"
    busy = Weighed(replace(BUSY, rate_limited=2), pressures(BUSY, 0.25, Bounds()), 4.0)
    metrics.update(report(weighed=busy))
    assert read(name, {"figure": "server_threads"}) == 1.0
    assert read(name, {"figure": "rpc_mean"}) == 0.5
    assert read("rltuned_interval_stretch_ratio") == 4.0
    assert read("rltuned_rate_limited_total") == 2.0
    metrics.update(report(weighed=Weighed(None, {}, 4.0, "garbled")))
    assert math.isnan(read(name, {"figure": "server_threads"}) or 0.0), "unknown is not zero"


def test_a_stretched_daemon_is_as_ready_as_it_says() -> None:
    desk = Desk()
    desk.publisher.cycle(report(weighed=Weighed(CALM, {}, 4.0)))
    desk.clock.advance(3 * 4 * 60 - 1)
    assert desk.publisher.health().ready
    desk.clock.advance(2)
    assert not desk.publisher.health().ready
