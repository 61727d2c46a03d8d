"""A policy of another package in the simulator: the daemon's own decisions, as in the kernel."""

from pathlib import Path

import pytest

from rltuned.core import memory
from rltuned.errors import TraceError
from rltuned.lab.replay.protocol import Protocol
from rltuned.lab.replay.run import simulate
from rltuned.lab.replay.scenario import Scenario
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.cluster import preset
from rltuned.sim.synth import synthesize
from tests.packages import install

CLUSTER = preset("testbed")
WINDOW = Scenario.of(CLUSTER, synthesize("testbed-1024", jobs=80, seed=5).jobs)
PREDICTOR = load_predictor(shipped_predictor())
DELAY = (
    "from rltuned.policies.baselines import BASELINES\n\n\n"
    "def delay(matrix):\n    wish = BASELINES['delay'].wish(matrix)\n"
    "    return wish.own_s, wish.place"
)
AREA = "def area(matrix):\n    return matrix.limit_s * matrix.size"


def test_a_rule_written_elsewhere_gives_the_rule_s_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, AREA, "area")
    theirs = simulate(WINDOW, "plugin:area", Protocol(mode="cycle"))
    ours = simulate(WINDOW, "saf", Protocol(mode="cycle"))
    assert (theirs.start_s == ours.start_s).all()
    assert (theirs.start_s > theirs.submit_s).any()


def test_it_sees_the_run_times_that_the_kernel_predicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon's memory shows whole seconds, which the kernel does not; so they are left as is."""
    monkeypatch.setattr(memory, "_whole", lambda seconds: seconds)
    install(tmp_path, monkeypatch, DELAY, "delay")
    protocol = Protocol(mode="cycle", predictor=PREDICTOR)
    theirs = simulate(WINDOW, "plugin:delay", protocol)
    ours = simulate(WINDOW, "delay", protocol)
    assert (theirs.start_s == ours.start_s).all()
    blind = simulate(WINDOW, "plugin:delay", Protocol(mode="cycle"))
    assert (theirs.start_s != blind.start_s).any()


@pytest.mark.parametrize("protocol", [Protocol(), Protocol(bounded=False)])
def test_what_it_cannot_play_is_refused(
    protocol: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, AREA, "area")
    with pytest.raises(TraceError, match="plays with --mode cycle only"):
        simulate(WINDOW, "plugin:area", protocol)
