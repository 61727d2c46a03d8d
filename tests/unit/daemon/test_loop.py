"""The loop with a fake world, a fake clock and a policy that knows its order; load; clocks."""

import weakref
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltuned.core.ladder import Ladder, Rung
from rltuned.daemon.canary import CanaryStatus
from rltuned.daemon.following import Following
from rltuned.daemon.loop import Loop
from rltuned.daemon.report import CycleStage, Skip
from rltuned.daemon.state import Health, HealthState
from rltuned.daemon.systemd import is_paused
from rltuned.daemon.wiring import Rig
from rltuned.domain.plan import Result
from rltuned.domain.units import CLOCK_S
from rltuned.errors import BackendError, ModelError, SnapshotError
from rltuned.journal.cycles import recorded
from rltuned.journal.journal import Journal
from rltuned.journal.store import FILE_NAME, reading
from rltuned.policies.actor import NetworkPolicy, load_actor
from rltuned.settings import Settings
from rltuned.slurm.site import Load, next_stretch
from tests.builders import NOW, sure
from tests.bundles import small_network
from tests.fakes import BrokenPolicy, ConstantOrder, RaisingPolicy, dealt
from tests.loops import WORLD, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_live_cycle_writes_the_new_order(bench: Bench) -> None:
    assert bench.loop().run(1) == 0
    assert bench.priorities() == dealt(3, 2, 1)
    report = bench.received.reports[0]
    assert report.mode is HealthState.LIVE
    assert report.results() == {Result.APPLIED: 3}
    assert {CycleStage.OBSERVE, CycleStage.DECIDE, CycleStage.APPLY} <= report.stages.keys()


def test_a_value_that_was_reverted_is_counted_once_and_written_again(bench: Bench) -> None:
    loop = bench.loop()
    loop.cycle()
    bench.world.put(replace(bench.world.job(3), priority=100))
    loop.cycle()
    assert bench.received.reports[1].reverted == {"priority": 1}
    first, second, third = (bench.priorities()[i] for i in (3, 2, 1))
    assert first > second > third
    loop.cycle()
    assert bench.received.reports[2].reverted == {}


def test_a_failed_write_is_not_counted_as_reverted_until_it_was_made(bench: Bench) -> None:
    loop = bench.loop()
    bench.world.results = {3: Result.FAILED}
    loop.run(2)
    assert bench.priorities()[3] == 100
    bench.world.results = {}
    loop.run(2)
    assert bench.priorities()[3] > 100
    bench.world.put(replace(bench.world.job(3), priority=100))
    loop.cycle()
    found = [report.reverted for report in bench.received.reports]
    assert found == [{}, {}, {}, {}, {"priority": 1}]


def test_pause_file_stops_writes_even_when_it_appears_within_the_cycle(bench: Bench) -> None:
    pause = bench.folder / "PAUSE"
    bench.world.on_observe = lambda n: pause.touch() if n == 1 else pause.unlink()
    bench.loop().run(2)
    first, second = bench.received.reports
    assert (first.mode, second.mode) == (HealthState.PAUSED, HealthState.LIVE)
    assert len(bench.world.plans) == 1


def test_a_pause_file_that_cannot_be_looked_at_counts_as_there(tmp_path: Path) -> None:
    assert not is_paused(tmp_path / "no" / "such")
    (tmp_path / "file").touch()
    assert not is_paused(tmp_path / "file" / "below")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert is_paused(tmp_path / "loop" / "below")


def test_the_schedule_has_a_grid_without_drift_or_burst(bench: Bench) -> None:
    starts: list[float] = []
    takes_s = [10.0, 130.0, 10.0, 60.0, 10.0]

    def observed(n: int) -> None:
        starts.append(bench.clock.elapsed_s)
        bench.clock.advance(takes_s[n - 1])

    bench.world.on_observe = observed
    bench.loop().run(5)
    # the second takes more than two intervals: the ticks at 120 and 180 are left out, not made up
    assert starts == [0.0, 60.0, 240.0, 300.0, 360.0]


def test_back_off_doubles_up_to_the_cap_and_ends_with_the_first_answer(bench: Bench) -> None:
    silence = [BackendError("no answer")] * 6
    bench.world.script = [*silence, WORLD]
    bench.loop().run(8)
    pauses_s = [60.0, 120.0, 240.0, 480.0, 600.0, 600.0, None, None]
    assert [r.failure and r.failure.backoff_s for r in bench.received.reports] == pauses_s
    assert bench.clock.waits == [*pauses_s[:6], 60.0]
    assert [r.skip for r in bench.received.reports[:4]] == [Skip.BACKEND] * 4


def test_a_paused_daemon_stays_paused_while_slurm_is_away(bench: Bench) -> None:
    (bench.folder / "PAUSE").touch()
    bench.world.script = [BackendError("no answer")]
    bench.loop().run(1)
    assert bench.received.reports[0].mode is HealthState.PAUSED


def test_what_no_decision_came_of_is_kept_too(bench: Bench) -> None:
    bench.policy = BrokenPolicy()
    assert bench.loop().run(1) == 1
    assert bench.world.plans == []
    (kept,) = recorded(bench.folder / FILE_NAME)
    assert kept.snapshot == WORLD
    with reading(bench.folder / FILE_NAME) as db:
        assert db.execute("SELECT skipped, model FROM cycles").fetchall() == [("policy", "")]


def test_a_network_without_numbers_is_left_for_the_rule(bench: Bench, tmp_path: Path) -> None:
    whole = load_actor(small_network(tmp_path / "small")).network
    weights = {name: np.full_like(part, np.nan) for name, part in whole.weights.items()}
    bench.policy = NetworkPolicy("model:small", replace(whole, weights=weights))
    loop = bench.loop()
    assert loop.run(2) == 0
    first, second = bench.received.reports
    assert [sure(r.decision).policy for r in (first, second)] == ["delay", "delay"]
    assert loop.rig.in_place_of.startswith("model:small: ")
    assert "finite" in loop.rig.in_place_of


def test_three_unexpected_errors_in_a_row_end_the_process(bench: Bench) -> None:
    bench.policy = RaisingPolicy([RuntimeError("bug")] * 3)
    assert bench.loop().run() == 1
    assert bench.received.words == ["unexpected bug"] * 3
    assert bench.world.plans == []


def test_two_unexpected_errors_and_a_good_cycle_do_not(bench: Bench) -> None:
    bugs = [RuntimeError("bug"), RuntimeError("bug")]
    bench.policy = RaisingPolicy([*bugs])
    bench.clock.on_wait = lambda n: n == 4
    assert bench.loop().run() == 0
    assert len(bench.received.reports) == 4


def test_a_stop_while_waiting_ends_at_once_and_one_in_the_cycle_after_it(bench: Bench) -> None:
    bench.clock.on_wait = lambda n: n == 2
    assert bench.loop().run() == 0
    assert len(bench.received.reports) == 2

    def order_stop(_: int) -> None:
        bench.orders.stop = True

    bench.world.on_observe = order_stop
    assert bench.loop().run() == 0
    assert len(bench.received.reports) == 3
    assert bench.received.reports[2].ok


def test_a_reload_leaves_nothing_of_the_old_settings_behind(bench: Bench) -> None:
    """In review the memory of a daemon of 3,000 jobs rose by a megabyte with each reload."""
    loop = bench.loop()
    old = ConstantOrder((1,), name="old")
    object.__setattr__(old, "itself", old)  # counting references does not free it
    loop.rig = replace(bench.rig(), policy=old)
    seen = weakref.ref(old)
    del old
    bench.reload = bench.rig
    bench.orders.reload = True
    loop.run(2)
    assert seen() is None


def test_without_a_journal_nothing_is_written(bench: Bench) -> None:
    (bench.folder / "journal.sqlite").write_text("this is no database, but long enough to tell\n")
    assert bench.loop().run(2) == 1  # as the one who runs it once wants to know
    bench.live = False
    assert bench.loop().run(1) == 0
    assert bench.world.plans == []
    assert bench.received.reports[0].mode is HealthState.OBSERVE
    assert "journal.sqlite" in bench.received.reports[0].journal_error
    (bench.folder / "journal.sqlite").unlink()
    bench.live = True
    assert bench.loop().run(1) == 0
    assert bench.received.reports[-1].mode is HealthState.LIVE


def test_a_look_that_the_journal_cannot_mark_is_not_kept(bench: Bench) -> None:
    with closing(Journal(bench.folder)) as journal:
        journal.remember("neutral_delays", [], NOW)
    loop = bench.loop()
    loop.rig = replace(loop.rig, ladder=Ladder(rung=Rung.OBSERVE))
    loop.run(1)
    assert "neutral delays" in bench.received.reports[0].journal_error
    assert list(recorded(bench.folder / FILE_NAME)) == []


def test_the_loop_reports_in_while_it_waits(bench: Bench) -> None:
    bench.heartbeat_s = 25.0
    bench.loop().run(2)
    assert bench.clock.waits == [25.0, 25.0, 10.0]


def test_two_loops_on_one_journal_do_not_take_each_others_numbers(bench: Bench) -> None:
    bench.live = False
    one, other = bench.loop(), bench.loop()
    assert [loop.cycle().cycle for loop in (one, other, other, one)] == [1, 2, 3, 4]


def test_slurm_that_takes_none_of_the_changes_ends_a_counted_run_with_1(bench: Bench) -> None:
    bench.world.results = dict.fromkeys((1, 2, 3), Result.REFUSED)
    assert bench.loop().run(1) == 1


def test_what_was_refused_or_has_gone_is_no_error(bench: Bench) -> None:
    bench.world.results = {1: Result.REFUSED, 3: Result.GONE}
    assert bench.loop().run(1) == 0
    assert bench.received.reports[0].results() == {
        Result.REFUSED: 1,
        Result.APPLIED: 1,
        Result.GONE: 1,
    }
    assert [c.target.job_id for c in Journal(bench.folder).claims("test")] == [2]


def test_a_promotion_is_taken_over_before_the_next_cycle_and_tried_once(bench: Bench) -> None:
    in_force, usable = "gen-1", True

    class Followed(Following):
        def __init__(self) -> None:
            super().__init__(Settings())

        def turn(self, at: float) -> tuple[str, None]:
            assert at > 0
            return in_force, None

    def reload() -> Rig:
        if not usable:
            raise ModelError("model gen-3: damaged")
        return replace(bench.rig(), generation=in_force, following=Followed())

    bench.reload = reload
    loop = bench.loop()
    loop.rig = reload()
    loop.run(2)
    assert bench.received.words == []
    in_force = "gen-2"
    loop.run(3)
    assert [w.split()[0] for w in bench.received.words] == ["reloading", "loaded"]
    assert loop.rig.generation == "gen-2"
    in_force, usable = "gen-3", False
    loop.run(4)
    assert [w.split()[0] for w in bench.received.words[2:]] == ["reloading", "not"]
    assert loop.rig.generation == "gen-2"


CALM = Load(1, 0, 0, rpc_count=100, rpc_total_s=1.0, backfill_s=0.01)
BUSY = replace(CALM, server_threads=100)
BETWEEN = replace(CALM, server_threads=70)


def gauged(folder: Path, *answers: Load | Exception) -> tuple[Bench, Loop]:
    """A loop whose slurmctld says how busy it is, one answer per look; the last one stays."""
    left, bench = [*answers], Bench(folder)
    loop = bench.loop()

    def gauge() -> Load:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    loop.rig = replace(loop.rig, gauge=gauge)
    return bench, loop


LIMITED = replace(CALM, rate_limited=3)
SLOW = replace(CALM, rpc_count=110, rpc_total_s=11.0)
"""Ten RPCs of a second each since the look before."""


@pytest.mark.parametrize(
    ("loads", "busy", "waits_s"),
    [
        # 60 s stretched to 120, to the most of ten intervals, and back by halves
        ([*[BUSY] * 5, *[CALM] * 3], 5, [120.0, 240.0, 480.0, 600.0, 600.0, 300.0, 150.0]),
        ([BUSY, BETWEEN, BETWEEN, CALM, CALM], 1, [120.0, 120.0, 120.0, 60.0]),
        ([CALM, LIMITED, CALM], 0, [60.0, 120.0]),  # which skips nothing
    ],
)
def test_a_busy_controller_is_asked_rarely_and_nothing_else(
    tmp_path: Path, loads: list[Load | Exception], busy: int, waits_s: list[float]
) -> None:
    bench, loop = gauged(tmp_path, *loads)
    assert loop.run(len(loads)) == 0
    skips = [r.skip for r in bench.received.reports]
    assert skips == [Skip.BUSY] * busy + [None] * (len(loads) - busy)
    assert bench.world.observed == len(loads) - busy
    assert len(bench.world.plans) == 1
    assert bench.clock.waits == waits_s
    if busy:
        assert "server_threads is 1.0 times its bound" in str(bench.received.reports[0].failure)


def test_slow_rpcs_count_from_one_look_to_the_next(tmp_path: Path) -> None:
    bench, loop = gauged(tmp_path, CALM, SLOW)
    loop.run(2)
    assert [r.skip for r in bench.received.reports] == [None, Skip.BUSY]


@pytest.mark.parametrize("trouble", [BackendError("sdiag is not there"), SnapshotError("garbled")])
def test_load_that_cannot_be_read_steers_nothing(tmp_path: Path, trouble: Exception) -> None:
    bench, loop = gauged(tmp_path, trouble)
    assert loop.run(2) == 0
    assert bench.clock.waits == [60.0]
    weighed = sure(bench.received.reports[0].weighed)
    assert (weighed.load, weighed.unknown) == (None, str(trouble))


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


@pytest.mark.parametrize("off_s", [None, 0.0, CLOCK_S, -CLOCK_S])
def test_clocks_that_agree_or_are_unknown_stop_nothing(tmp_path: Path, off_s: float | None) -> None:
    bench = Bench(tmp_path)
    loop = bench.loop()
    loop.rig = replace(loop.rig, clock_off_s=lambda: off_s)
    assert loop.cycle().mode is HealthState.LIVE
    assert bench.world.plans


@pytest.mark.parametrize("off_s", [CLOCK_S + 1, -CLOCK_S - 1, 1e9])
def test_beyond_two_minutes_it_observes_and_undoes_nothing(tmp_path: Path, off_s: float) -> None:
    bench = Bench(tmp_path)
    loop, off = bench.loop(), [0.0]
    loop.rig = replace(loop.rig, clock_off_s=lambda: off[0])
    loop.cycle()
    written, plans = bench.priorities(), len(bench.world.plans)
    off[0] = off_s
    report = loop.cycle()
    assert (report.mode, report.decision) == (HealthState.OBSERVE, None)
    assert f"{off_s:+.0f} s off" in str(Health(report.conditions(CanaryStatus())))
    assert (bench.priorities(), len(bench.world.plans)) == (written, plans)
    bench.clock.advance(400 * 86_400.0)  # whose clock it is that is wrong is not known
    loop.cycle()
    bench.clock.advance(-400 * 86_400.0)
    with reading(tmp_path / FILE_NAME) as db:
        assert db.execute("SELECT min(cycle) FROM cycles").fetchone() == (1,), "nothing is cleared"
    off[0] = 0.0
    assert loop.cycle().mode is HealthState.LIVE
