"""The benchmark of whole cycles runs the daemon's own loop; its stages are the report's."""

import json

from rltuned.daemon.report import CycleStage
from scripts.benchmarks.scaling import (
    BOUNDS_S,
    MOST_GROWTH,
    RESTLESS,
    Cycle,
    Size,
    _in_child,
    figures,
    owning,
    row,
)


def test_a_cycle_is_parted_into_its_stages() -> None:
    # more than the first cycle, which does not count, may write
    (row,) = json.loads(_in_child(Size(1_200, 8), RESTLESS, 1))
    cycle = Cycle(**row)
    assert cycle.applied > 0
    assert set(cycle.stages_s) == set(CycleStage)
    assert 0 < cycle.commands_s < sum(cycle.stages_s.values()) <= cycle.wall_s
    assert cycle.peak_mib > 1


def test_figures_stand_beside_their_bound() -> None:
    cycles = [Cycle(w, 0.5, 0.0, 0.0, {}, 0, 1.0, 1.0) for w in (3.0, 1.0, 2.0)]
    size = Size(10_000, 1_000)
    found = {f.name: f.value for f in figures(size, cycles)}
    assert found == {
        f"cycle_{size}": 2.0, f"cycle_{size}_slowest": 3.0, f"cycle_{size}_processor": 0.5
    }  # fmt: skip
    assert figures(Size(1, 1), cycles) == []
    assert BOUNDS_S[10_000, 1_000] == 3.0
    assert row(size, cycles).startswith(
        "| 10,000 | 1,000 | 2.00 (1.00 to 3.00) | 0.50 | 1 | 0.00 |"
    )


def test_growth_with_what_is_owned_is_reported() -> None:
    whole, journal, cycle = owning(Size(60, 10), 4)
    assert (whole.name, whole.reference) == ("owning_60_pending_10_nodes_growth", MOST_GROWTH)
    assert min(whole.value, journal.value, cycle.value) > 0.0
