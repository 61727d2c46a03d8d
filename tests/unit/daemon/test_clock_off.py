"""slurmctld's clock and this host's: ages count by the one; where they part nothing is written."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.daemon.state import HealthState
from rltuned.domain.units import CLOCK_S
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.run import SlurmCli
from tests.loops import Bench
from tests.recorded import DATA, MARKS, RELEASES, Recording, programs


@pytest.mark.parametrize("off_s", [None, 0.0, CLOCK_S, -CLOCK_S])
def test_clocks_that_agree_or_are_not_known_stop_nothing(
    tmp_path: Path, off_s: float | None
) -> None:
    bench = Bench(tmp_path)
    loop = bench.loop()
    loop.rig = replace(loop.rig, clock_off_s=lambda: off_s)
    assert loop.cycle().mode is HealthState.LIVE
    assert bench.world.plans


@pytest.mark.parametrize("off_s", [CLOCK_S + 1, -CLOCK_S - 1, 1e9])
def test_beyond_two_minutes_it_observes_and_gives_nothing_back(
    tmp_path: Path, off_s: float
) -> None:
    bench = Bench(tmp_path)
    loop, off = bench.loop(), [0.0]
    loop.rig = replace(loop.rig, clock_off_s=lambda: off[0])
    loop.cycle()
    written, plans, neutral = bench.priorities(), len(bench.world.plans), loop._writer._neutral
    before = dict(neutral)
    off[0] = off_s
    report = loop.cycle()
    assert (report.mode, report.decision) == (HealthState.OBSERVE, None)
    assert f"{off_s:+.0f} s off" in report.conditions(report.verdict)[0].sentence  # type: ignore[arg-type]
    assert (bench.priorities(), len(bench.world.plans), neutral) == (written, plans, before)
    off[0] = 0.0
    assert loop.cycle().mode is HealthState.LIVE


@pytest.mark.parametrize("ahead_s", [0.0, 100.0, -100.0, 86_400.0])
@pytest.mark.parametrize("by_load", [True, False])
@pytest.mark.parametrize("release", RELEASES)
def test_a_snapshot_is_taken_by_slurmctlds_clock(
    tmp_path: Path, release: str, by_load: bool, ahead_s: float
) -> None:
    """In review the host's clock went into every number."""
    recording = Recording(DATA / release)
    programs(tmp_path, recording, {})
    told = recording.text("sdiag") if by_load else recording.text("config")
    moment = float(re.search(r"([0-9]{10})", told.split("\n")[1 if by_load else 0])[1])  # type: ignore[index]
    here = moment + ahead_s
    backend = SlurmBackend(SlurmCli(bin_dir=tmp_path), lambda: here, marks=MARKS)
    if by_load:
        backend.observe()  # reads the configuration, which was recorded at another moment
        backend.load()
    taken_at = backend.observe().taken_at
    assert backend.clock_off_s() == pytest.approx(-ahead_s, abs=1.0)
    assert taken_at == pytest.approx(moment if abs(ahead_s) <= CLOCK_S else here, abs=1.0)
