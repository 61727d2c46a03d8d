"""The bench, and what `make bench-check` holds against what is stored."""

from pathlib import Path

import pytest

from scripts.benchmarks.__main__ import main
from scripts.benchmarks.cases import cycles, exponent, play_s
from scripts.benchmarks.check import best, slower
from scripts.benchmarks.worlds import crowd


def test_only_figures_well_above_what_is_stored_are_slower() -> None:
    known = {"same": 2.0, "slow": 2.0}
    assert slower({"same": 2.49, "slow": 2.51, "new": 9.0}, known) == ["slow"]


def test_what_seems_slower_is_measured_again_and_the_least_counts() -> None:
    measured = iter(({"one": 3.0, "two": 1.0}, {"one": 2.0, "two": 2.0}, {"one": 9.0, "two": 9.0}))
    known = {"one": 2.0, "two": 1.0}
    found = best(lambda: next(measured), lambda some: slower(some, known))
    assert found == {"one": 2.0, "two": 1.0}
    assert next(measured) == {"one": 9.0, "two": 9.0}  # not asked for: nothing was slower by then


def test_growth_is_the_power_of_the_jobs() -> None:
    points = [(1_000, 0.5), (4_000, 4.0), (16_000, 128.0)]
    assert exponent(points) == pytest.approx(2.0)


def test_partitions_of_the_crowd_share_nodes_as_their_layout_says() -> None:
    for layout, shared in (("one", 0), ("several", 0), ("overlapping", 20)):
        cluster, jobs = crowd(8, layout)  # type: ignore[arg-type]
        assert sum(len(node.partitions) > 1 for node in cluster.nodes) == shared
        assert len(jobs) == 8
    assert play_s(20, "overlapping", "easy", "sjf") > 0


def test_whole_cycles_write_and_have_their_memory() -> None:
    # more than the first cycle, which does not count, may write
    wall_s, cpu_s, peak_mib, writes = cycles(2_500, 1_000, 1)
    assert 0 < cpu_s <= 2 * wall_s
    assert peak_mib > 1
    assert writes > 0


def test_what_cannot_be_used_is_reported_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deciding", "--model", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["speed"])
    assert stopped.value.code == 2
    assert "no case 'speed'" in capsys.readouterr().err
