"""The benchmark's writes are those of the daemon's own cycles, and its RPCs what they add up to."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.lab.replay.run import possible
from rltuned.lab.replay.scenario import Scenario
from rltuned.lab.replay.trace_file import scale
from rltuned.sim.backend import demo_trace
from rltuned.sim.trace import Trace
from scripts.benchmarks import writing
from scripts.benchmarks.__main__ import main
from tests.sim.reference import plainly

JOBS = 120


def test_writes_are_those_of_the_plain_world_and_rpcs_add_its_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the plain world predicts nothing
    protocol = replace(writing.PROTOCOL, predictor=None)
    monkeypatch.setattr(writing, "PROTOCOL", protocol)
    cluster, jobs = demo_trace(writing.SEED)
    crowd = scale(Trace(possible(jobs[:JOBS], cluster, skip=True)[0], {}), 1.3, cluster.gpus).jobs
    figures = {f.name: f for f in writing.measured("few", cluster, crowd, ["delay"])}
    window = Scenario.of(cluster, crowd, writing.RULES)
    plain = plainly(window, "delay", protocol)
    writes, rpcs = figures["writes_few_delay"], figures["rpcs_few_delay"]
    assert plain.writes > 0
    assert writes.value == plain.writes / len(crowd)
    assert writes.reference == writing.MOST_WRITES["delay"]
    span_s = plain.end_s.max() - plain.submit_s.min()
    reading = writing.READING * span_s / 60.0 / len(crowd)
    assert rpcs.reference == pytest.approx(reading)
    looking_back = writing.LOOKING_BACK * min(plain.decisions, plain.writes) / len(crowd)
    assert rpcs.value == pytest.approx(reading + writes.value + looking_back)


def test_what_cannot_be_used_is_reported_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulating", "--philly", str(tmp_path / "none.csv.gz")]) == 2
    assert "none.csv.gz" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["speed"])
    assert stopped.value.code == 2
    assert "no part 'speed'" in capsys.readouterr().err
